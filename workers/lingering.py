"""Lingering: work that may wait a moment for more to be done with it.

Work is noted *before* want() is called, and the flag falls *before* the call, so whatever was noted
before a want() that found the flag up is seen by the call that follows.
"""

import threading
from collections.abc import Callable

from hms.workers.threads import join_threads, start_threads

__all__ = ["Linger"]


class Linger:
    """A thread that calls then() delay_s after want(), once for all calls of want() until then."""

    def __init__(self, delay_s: float, then: Callable[[], None], name: str) -> None:
        self._delay_s = delay_s
        self._then = then
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._threads = start_threads(name, 1, self._run)

    def want(self) -> None:
        """Request a call of then(). Cheap when one is due already."""
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self, timeout_s: float) -> bool:
        """Stop calling it; False when the thread has not ended within timeout_s."""
        self._closing.set()
        self._wanted.set()
        return join_threads(self._threads, timeout_s)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._closing.wait(self._delay_s):
                return
            self._wanted.clear()
            self._then()
