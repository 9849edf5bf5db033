"""Waiting for frames at the socket without a hand-over between threads.

Of the threads that wait, one is the reader: it polls the socket itself and takes the frames in for
all. The others sleep until what they wait for is there. When the reader leaves, the role falls to
the background thread, which need not be woken for that, or to the next that comes; only when that
thread is busy is one of the others woken for it. So an answer wakes just the thread that asked:
handing it over from a thread of the library's own costs another wake-up, 20-50 µs of a round trip
of 100.
"""

import os
import select
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

import msgspec

from hms.client.core.connection_lock import ConnectionLock, take_back

AWAY_S = 0.005
"""So long after somebody read the background thread stays away from the socket, when those who wait
follow close on one another: it would be woken for each frame that comes between two waits."""


class Deputy(Protocol):
    """Who reads while nobody waits: the background thread. lock held."""

    is_reader: bool
    """Whether it reads now."""

    def step_aside(self) -> None:
        """Another thread reads from now on."""

    def take_over(self, *, at_once: bool) -> bool:
        """Nobody else reads any more; False when it cannot now. at_once: others wait, or soon
        nobody will."""


class _Sleeper(msgspec.Struct, eq=False):
    """A thread that waits for the thing called key."""

    key: object
    gate: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Held until it is woken; from before it can be."""

    def sleep(self, timeout_s: float) -> None:
        self.gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        if self.gate.locked():
            self.gate.release()


class SocketWait:
    """See the module. lock: the connection's, held around every call; take_in: reads the socket and
    returns whether anything can be polled; deputy: reads while none of those who wait does."""

    def __init__(self, lock: ConnectionLock, take_in: Callable[[], bool], deputy: Deputy) -> None:
        self._lock = lock
        self._take_in = take_in
        self._deputy = deputy
        self._sleepers: list[_Sleeper] = []
        self.reader: _Sleeper | None = None
        """The thread that reads for all."""
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._fd = -1
        self.is_polling = False
        self.last_at = 0.0
        self._is_sparse = False
        """Whether the last wait began long after the one before."""
        self.woken_count = 0
        """So often a thread that slept was woken: by its answer, or to read."""

    @property
    def is_awaited(self) -> bool:
        """Whether any thread waits."""
        return bool(self._sleepers)

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
        me.gate.acquire()
        self._sleepers.append(me)
        self._is_sparse = monotonic() - self.last_at > AWAY_S
        try:
            while True:
                self.last_at = now = monotonic()
                if now >= deadline:
                    return False
                if self.reader is None:
                    self._read(me, deadline - now)
                else:
                    self._sleep(me, deadline - now)
                if is_done():
                    return True
        finally:
            self._sleepers.remove(me)
            if self.reader is None:
                is_awaited = bool(self._sleepers)
                if not self._deputy.take_over(at_once=is_awaited or self._is_sparse):
                    self.promote()

    def wake(self, keys: Sequence[object]) -> None:
        """What is called by these keys has changed; None among them: everything has."""
        is_for_all = None in keys
        for sleeper in self._sleepers:
            if is_for_all or sleeper.key in keys:
                if sleeper is not self.reader:
                    self._wake(sleeper)
                elif self.is_polling:
                    self._wake_reader()

    def promote(self) -> None:
        """The background thread is busy: one of those who wait has to read."""
        if self._sleepers and self.reader is None:
            self._wake(self._sleepers[0])

    def interrupt(self) -> None:
        """Have all that wait look again. The lock is not needed: a signal handler may call this."""
        for sleeper in list(self._sleepers):
            if sleeper is not self.reader:
                sleeper.wake()
        os.eventfd_write(self._wake_fd, 1)

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: a thread may still poll it

    def _sleep(self, me: _Sleeper, left_s: float) -> None:
        try:
            self._lock.release()
            me.sleep(left_s)
        finally:
            try:
                if not self._lock._is_owned():  # noqa: SLF001 - as take_back() asks
                    self._lock.acquire()
            except BaseException:
                take_back(self._lock)
                raise

    def _read(self, me: _Sleeper, left_s: float) -> None:
        self.reader = me
        try:
            if self._take_in():
                if self._deputy.is_reader:
                    self._deputy.step_aside()
                self.is_polling = True
                ready: list[tuple[int, int]] = []
                try:
                    self._lock.release()
                    ready = self._poll.poll(min(left_s * 1000, 3_600_000))
                finally:
                    try:
                        if not self._lock._is_owned():  # noqa: SLF001 - as take_back() asks
                            self._lock.acquire()
                    except BaseException:
                        take_back(self._lock)
                        raise
                    finally:
                        is_rung = bool(ready) and ready[0][0] == self._wake_fd  # the first one
                        if is_rung or not self.is_polling:  # somebody woke us
                            os.eventfd_read(self._wake_fd)
                        self.is_polling = False
                self._take_in()
        finally:
            self.reader = None

    def _wake(self, sleeper: _Sleeper) -> None:
        self.woken_count += 1
        sleeper.wake()

    def _wake_reader(self) -> None:
        if self.is_polling:
            self.is_polling = False
            os.eventfd_write(self._wake_fd, 1)
