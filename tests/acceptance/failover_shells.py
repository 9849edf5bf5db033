"""The blocking client and the asyncio client behind one face, so that a test is written once.

A test says what is done as a function; with asyncio it runs in the loop's thread, and what it
returns is awaited there.
"""

import asyncio
import inspect
import threading
from concurrent.futures import Future

import hms
import hms.aio

WAIT_S = 100


class Blocking:
    """Calls in threads."""

    connect = staticmethod(hms.connect)

    def do(self, doing):
        """Do it and wait."""
        return doing()

    def begin(self, doing):
        """Do it in the background; a future."""
        future = Future()

        def run():
            try:
                future.set_result(doing())
            except hms.HmsError as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def close(self):
        """Nothing to do."""


class Asyncio:
    """Tasks of one loop in a thread."""

    connect = staticmethod(hms.aio.connect)

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, doing):
        """Do it and wait."""
        return self.begin(doing).result(WAIT_S)

    def begin(self, doing):
        """Do it in the background; a future."""

        async def run():
            found = doing()
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def close(self):
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


SHELLS = {"blocking": Blocking, "asyncio": Asyncio}
