"""Workers that wait for work, and how one of them is woken.

The count of sleepers belongs to the pool's lock; sleeping and waking happen outside of it. A
wake-up is a token in the kernel: it waits for a worker that was counted but has not gone to sleep
yet, so none is lost. Compared with threading.Condition this saves about 10 of 33 microseconds of a
handover to a pool and back: the woken thread takes one lock fewer that its waker still holds.
"""

import os

__all__ = ["Sleepers"]


class Sleepers:
    """The workers of one pool that have nothing to do."""

    def __init__(self) -> None:
        self.count = 0
        """Workers that found nothing to do count themselves, and are taken off when they are chosen
        to be woken; under the pool's lock."""
        self._tokens = -1
        self._tokens = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        if self._tokens >= 0:
            os.close(self._tokens)

    def choose(self) -> int:
        """Choose one to be woken; the number of wake-ups due. Under the pool's lock."""
        chosen = min(1, self.count)
        self.count -= chosen
        return chosen

    def choose_all(self) -> int:
        """Choose all to be woken. Under the pool's lock."""
        chosen, self.count = self.count, 0
        return chosen

    def wake(self, chosen: int) -> None:
        """Wake as many as were chosen; when the lock is free, or they would run into it."""
        if chosen:
            os.eventfd_write(self._tokens, chosen)

    def sleep(self) -> None:
        """Wait to be woken, after the count was raised."""
        while True:
            try:
                os.eventfd_read(self._tokens)
            except (
                InterruptedError
            ):  # a signal came to this thread; its handler runs in the main one
                continue
            return
