"""The event loop of a server process, on which the coroutines of its async services run.

asyncio is imported by the first of them: a server without async services starts sooner.
"""

import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["EventLoop"]


class EventLoop:
    """One loop in a thread of its own: what services share, as a pool of connections, belongs to
    one loop. Leaving its block cancels what still runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None
        self._thread: threading.Thread

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What it returns, or raises; the thread waits meanwhile. Context variables, as the
        deadline of the call, are those of the thread."""
        from asyncio import run_coroutine_threadsafe  # noqa: PLC0415 - see the module

        value, fault = run_coroutine_threadsafe(_caught(coroutine), self._started()).result()
        if fault is not None:
            raise fault
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _started(self) -> "AbstractEventLoop":
        from asyncio import new_event_loop  # noqa: PLC0415 - see the module

        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="hms-async", daemon=True
                )
                self._thread.start()
        return self._loop


def _run(loop: "AbstractEventLoop") -> None:
    from asyncio import Runner  # noqa: PLC0415 - see the module

    with Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


async def _caught(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """SystemExit would end the loop, and with it what other calls wait for."""
    try:
        return await coroutine, None
    except BaseException as fault:  # noqa: BLE001 - it is raised again in the thread of the call
        return None, fault
