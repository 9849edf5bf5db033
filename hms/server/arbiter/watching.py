"""Watching by looking: an arbiter is read now and then, and who waits is told when it changed."""

import threading
from collections.abc import Callable

from hms.errors.catalogue import ArbiterUnavailable
from hms.errors.tree import HmsError
from hms.server.arbiter.interface import Arbiter, Standing

__all__ = ["Watch", "watch_with"]

JOIN_S = 10.0


class Watch:
    """A thread that reads; faults are told as changes, since the one notified reads for itself."""

    def __init__(
        self, read: Callable[[], Standing | None], callback: Callable[[], None], pause_s: float
    ) -> None:
        self._read, self._callback, self._pause_s = read, callback, pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hms-arbiter-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        known: object = self._look()
        while not self._over.wait(self._pause_s):
            now = self._look()
            if now != known:
                known = now
                self._callback()

    def _look(self) -> object:
        try:
            return self._read()
        except ArbiterUnavailable:
            return "unavailable"
        except HmsError as error:
            return str(error)

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)


def watch_with(own: Arbiter, callback: Callable[[], None], pause_s: float) -> Callable[[], None]:
    """Watch through an arbiter that nothing else uses; it is closed when the watch ends."""
    watch = Watch(own.read, callback, pause_s)

    def end() -> None:
        watch.close()
        own.close()

    return end
