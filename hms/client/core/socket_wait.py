"""Waiting for frames at the socket without a hand-over between threads.

Of the threads that wait, one is the reader: it polls the socket itself and takes the frames in for
all. The others sleep until what they wait for is there, or until the role falls to them. So an
answer wakes just the thread that asked: handing it over from a thread of the library's own costs
another wake-up, 20-50 µs of a round trip of 100.
"""

import os
import select
import threading
from collections.abc import Callable, Sequence
from time import monotonic


class _Sleeper:
    """A thread that waits for the thing called key."""

    __slots__ = ("_gate", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self, timeout_s: float) -> None:
        self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        if self._gate.locked():
            self._gate.release()


class SocketWait:
    """See the module. lock: the connection's, held around every call; take_in: reads the socket and
    returns whether anything can be polled; idle: is told when the last waiting thread has left."""

    def __init__(
        self, lock: threading.Lock, take_in: Callable[[], bool], idle: Callable[[], None]
    ) -> None:
        self._lock = lock
        self._take_in = take_in
        self._idle = idle
        self._sleepers: list[_Sleeper] = []
        self._reader: _Sleeper | None = None
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._fd = -1
        self.is_polling = False
        self.last_at = 0.0

    @property
    def has_reader(self) -> bool:
        """Whether a thread reads for all."""
        return self._reader is not None

    def watch(self, fd: int) -> None:
        """Poll this descriptor from now on; -1 for none."""
        if self._fd >= 0:
            self._poll.unregister(self._fd)
        if fd >= 0:
            self._poll.register(fd, select.POLLIN)
        self._fd = fd
        self._wake_reader()

    def wait_for(self, key: object, is_done: Callable[[], object], deadline: float) -> bool:
        """Wait until is_done() or the deadline; is_done is asked whenever key is woken."""
        if is_done():
            return True
        me = _Sleeper(key)
        self._sleepers.append(me)
        try:
            while True:
                self.last_at = now = monotonic()
                if now >= deadline:
                    return False
                if self._reader is None:
                    self._read(me, deadline - now)
                else:
                    self._sleep(me, deadline - now)
                if is_done():
                    return True
        finally:
            self._sleepers.remove(me)
            if self._reader is None:
                self._succeed()

    def wake(self, keys: Sequence[object]) -> None:
        """What is called by these keys has changed; None among them: everything has."""
        is_for_all = None in keys
        for sleeper in self._sleepers:
            if is_for_all or sleeper.key in keys:
                if sleeper is self._reader:
                    self._wake_reader()
                else:
                    sleeper.wake()

    def interrupt(self) -> None:
        """Have all that wait look again. The lock is not needed: a signal handler may call this."""
        for sleeper in list(self._sleepers):
            if sleeper is not self._reader:
                sleeper.wake()
        os.eventfd_write(self._wake_fd, 1)

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: a thread may still poll it

    def _sleep(self, me: _Sleeper, left_s: float) -> None:
        self._lock.release()
        try:
            me.sleep(left_s)
        finally:
            self._lock.acquire()

    def _read(self, me: _Sleeper, left_s: float) -> None:
        if not self._take_in():
            return
        self._reader = me
        self.is_polling = True
        self._lock.release()
        ready: list[tuple[int, int]] = []
        try:
            ready = self._poll.poll(min(left_s * 1000, 3_600_000))
        finally:
            self._lock.acquire()
            self._reader = None
            is_rung = bool(ready) and ready[0][0] == self._wake_fd  # it was registered first
            if is_rung or not self.is_polling:  # somebody woke us
                os.eventfd_read(self._wake_fd)
            self.is_polling = False
        self._take_in()

    def _succeed(self) -> None:
        """The reader leaves: the role goes to another that waits, or to nobody."""
        if self._sleepers:
            self._sleepers[0].wake()
        else:
            self._idle()

    def _wake_reader(self) -> None:
        if self.is_polling:
            self.is_polling = False
            os.eventfd_write(self._wake_fd, 1)
