"""The blocking client and the asyncio client behind one face, so that a test is written once.

A test says what is done as a function; with asyncio it runs in the loop's thread, and what it
returns is awaited there.
"""

import asyncio
import inspect
import os
import threading
import zlib
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

import hms
import hms.aio

WAIT_S = 100
PATIENT_S = 90
"""A third of it is how long a client looks for its node while that is booted."""
IS_FULL = os.environ.get("HMS_HA") == "full"


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
SHELLS_SHOWN = sorted(SHELLS) if IS_FULL else ["one of them"]
"""With HMS_HA=full each test has both."""


@contextmanager
def shell_of(request):
    """The shell of a test: the one that the parameter names, else one by the test's name."""
    by_name = sorted(SHELLS)[zlib.crc32(request.node.name.encode()) % len(SHELLS)]
    made = SHELLS[request.param if IS_FULL else by_name]()
    try:
        yield made
    finally:
        made.close()


class Opened:
    """A connection with a session and a producer, closed at the end without waiting for long."""

    def __init__(self, stack, shell, addresses, *, queue="orders", **options):
        self.shell, self.errors, self.events = shell, [], []
        how = {name: options.pop(name) for name in ("transacted", "ack", "xa") if name in options}
        given = {"request_timeout_s": PATIENT_S, "reconnect_interval_s": 0.1} | options
        given["exception_listener"] = self.errors.append
        given["event_listener"] = self.events.append
        self.connection = shell.do(lambda: shell.connect(addresses, **given))
        self.session = shell.do(lambda: self.connection.session(**how))
        self.producer = shell.do(lambda: self.session.producer(queue))
        stack.callback(lambda: shell.do(self.connection.close))

    def sending(self, body, **how):
        """A send in the background."""
        return self.shell.begin(lambda: self.producer.send(body, **how))

    def outcome(self, token):
        return self.shell.do(lambda: self.connection.outcome(token))


def in_doubt(future, kind=hms.SendInDoubt):
    with pytest.raises(kind) as caught:
        future.result(WAIT_S)
    assert caught.value.token
    return caught.value.token
