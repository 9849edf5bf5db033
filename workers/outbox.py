"""The outbox: what many threads hand to the one thread that owns the sockets.

Batches are appended whole, which the interpreter does in one step, so there is no lock. The wake-up
follows a flag: the consumer says that it goes to rest *and then* looks once more whether something
came; a producer appends *and then* looks whether the consumer rests. The second one sees
what the other did, so a wake-up is at worst one too many, never one too few.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Doorbell", "Outbox"]

_T = TypeVar("_T")


class Outbox(Generic[_T]):
    """A queue from any thread to one; wake() is called when that one rests and something came."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.batches: deque[Sequence[_T]] = deque()
        """Batches that wait to be taken."""
        self.is_awake = True
        """Whether the consumer is awake, or has been woken."""

    def put_many(self, items: Sequence[_T]) -> None:
        """Hand over a batch, which must not change any more; wake the consumer if it rests."""
        if not items:
            return
        self.batches.append(items)
        if not self.is_awake:
            self.is_awake = True
            self._wake()

    def drain(self, items_max: int) -> list[_T]:
        """Up to items_max of what waits, in the order of the batches."""
        taken: list[_T] = []
        batches = self.batches
        while batches and (room := items_max - len(taken)) > 0:
            batch = batches.popleft()
            taken += batch[:room]
            if len(batch) > room:
                batches.appendleft(batch[room:])
        return taken

    def rest(self) -> bool:
        """The consumer is about to sleep: True when it may, False when something waits."""
        self.is_awake = False
        if self.batches:
            self.is_awake = True
            return False
        return True

    def rouse(self) -> None:
        """The consumer is awake, whatever woke it: producers need not wake it."""
        self.is_awake = True


class Doorbell:
    """A descriptor that one thread polls and any thread, or signal handler, may ring.

    It is closed with the last reference, not before: a worker that rings late must not write into
    a descriptor that has been given to somebody else meanwhile.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._fd

    def ring(self) -> None:
        """Wake the thread that polls."""
        os.eventfd_write(self._fd, 1)

    def silence(self) -> None:
        """Forget the rings so far."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return
