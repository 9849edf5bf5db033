"""The shell of threads: the application's own threads drive a connection's operations.

An application thread sends on the socket itself, under the connection's lock, and while it waits it
reads for all (socket_wait.py). What the background thread does stands in background_thread.py.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hms.client.core.calls import Calls
from hms.client.core.operations import FOREVER, Outside, Steps, Wait
from hms.client.core.socket_wait import SocketWait
from hms.client.core.transport import Transport

TICK_S = 0.005
"""How long the background thread stays away after somebody read."""
_T = TypeVar("_T")


class ThreadDriver(Calls):
    """See the module."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        super().__init__(address, **options)
        self.lock: threading.Lock = threading.Lock()
        self._waiting = SocketWait(self.lock, self._take_in, self._nobody_waits)
        self._wakes_at = 0.0
        self._thread_reads = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def me(self) -> object:
        """The thread that asks."""
        return threading.current_thread()

    def run(self, steps: Steps[_T]) -> _T:
        """Drive an operation to its end."""
        with self.lock:
            try:
                step = next(steps)
                while True:
                    step = self._after(step, steps)
            except StopIteration as ended:
                result: _T = ended.value
                return result
            finally:
                self.flush()

    def _after(self, step: Wait | Outside, steps: Steps[_T]) -> Wait | Outside:
        """Do a step; the one that comes after it."""
        try:
            self.flush()
            outcome = self.wait_for(*step) if isinstance(step, Wait) else self._call(step)
        except BaseException as fault:  # noqa: BLE001 - the operation decides
            return steps.throw(fault)
        return steps.send(outcome)

    def _call(self, step: Outside) -> object:
        self.lock.release()
        try:
            return step.call()
        finally:
            self.lock.acquire()

    # ---- for whoever holds the lock

    def take_in(self) -> None:
        """Take in what is here already, lock held."""
        if not self._waiting.has_reader:
            self._take_in()

    def wait_for(self, key: object, is_done: Callable[[], object], deadline: float) -> bool:
        """Wait until is_done() or the deadline, reading for all meanwhile."""
        return self._waiting.wait_for(key, is_done, deadline)

    # ---- for whoever does not hold it

    def wait_until(self, key: object, is_done: Callable[[], object]) -> None:
        """Wait until is_done(), asked again whenever key is woken or interrupt() is called."""
        with self.lock:
            self.wait_for(key, is_done, FOREVER)
            self.flush()

    def interrupt(self) -> None:
        """Have all that wait look again; a signal handler may call this too."""
        self._waiting.interrupt()

    # ---- what the carrier needs

    def _wake(self, key: object) -> None:
        self._waiting.wake(key)

    def _watch(self, transport: Transport | None) -> None:
        self._waiting.watch(-1 if transport is None else transport.fd)

    def _after_flush(self) -> None:
        if self.link.calls or (self.link.unattended and not self._is_read):
            self._come_by(0.0)

    @property
    def _is_read(self) -> bool:
        return self._thread_reads or self._waiting.has_reader

    @property
    def _is_polled(self) -> bool:
        return self._thread_reads or self._waiting.is_polling

    @property
    def _may_read(self) -> bool:
        return not self._waiting.has_reader

    def _nobody_waits(self) -> None:
        soon = 0.0 if self.link.unattended else self._waiting.last_at + TICK_S
        if not self._thread_reads:
            self._come_by(soon)

    def _come_by(self, at: float) -> None:
        """Have the background thread take its turn by then."""
        if self._wakes_at > at and self._wake_fd >= 0:
            self._wakes_at = 0.0
            os.eventfd_write(self._wake_fd, 1)
