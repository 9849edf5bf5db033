"""Whose the socket of the link is: its own thread's, or for a moment another's."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["SocketTurn"]


class SocketTurn:
    """The socket, and all that is known of who is connected there, is touched only in a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_lent = False

    @contextmanager
    def own(self) -> Iterator[None]:
        """The turn of the link's thread, or of one that comes behind it."""
        with self._lock:
            yield

    def lend(self, rest: Callable[[float], None], pause_s: float) -> None:
        """In its own turn: rest() so long, while others may take the turn."""
        self._is_lent = True
        self._lock.release()
        try:
            rest(pause_s)
        finally:
            self._lock.acquire()
            self._is_lent = False

    def take(self) -> bool:
        """Whether another thread has the turn from here on; it waits for nothing."""
        if not (self._is_lent and self._lock.acquire(blocking=False)):
            return False
        is_mine = self._is_lent
        if not is_mine:
            self._lock.release()
        return is_mine

    def give_back(self) -> None:
        """After take()."""
        self._lock.release()
