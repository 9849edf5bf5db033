"""The background thread of a connection.

It connects, beats, runs the application's callbacks, sends what was held back, and reads only when
nobody waits. It stays away from the socket for a tick after somebody waited: two threads that poll
one descriptor wake each other for nothing.
"""

import os
import select
import threading
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from hms.client.core.fork_detection import forbid_in_child
from hms.client.core.link import State
from hms.client.core.operations import Mark, Steps, Wait
from hms.client.core.thread_driver import TICK_S, ThreadDriver
from hms.client.core.transport_loop import guarded


class BackgroundThread(ThreadDriver):
    """See the module."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        super().__init__(address, **options)
        self._is_over = False
        forbid_in_child(self)
        self._thread = threading.Thread(target=self._run, name="hms-client", daemon=True)

    def begin(self) -> None:
        """Begin to connect; lock held."""
        super().begin()
        self._thread.start()

    def telling(self) -> Steps[None]:
        """Wait until the callbacks that are due have run, unless one of them asks for it."""
        if self._is_over or self._thread is threading.current_thread():
            return
        mark = Mark()
        self.link.calls.append(partial(self._reached, mark))
        deadline = monotonic() + self.request_timeout_s
        if not (yield Wait(mark, lambda: mark.is_done, deadline)):
            raise self.too_late("callbacks of send_async()", self.request_timeout_s)

    def _reached(self, mark: Mark) -> None:
        with self.lock:
            mark.is_done = True
            self.link.woken.append(mark)
            self.flush()

    def join(self) -> None:
        """Wait for the background thread and give everything back; lock not held."""
        if self._thread is threading.current_thread():
            return
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._end()

    def _end(self) -> None:
        with self.lock:
            self._drop_transport(0)
        os.close(self._wake_fd)
        self._wake_fd = -1
        self._give_back(waits=True)

    def _run(self) -> None:
        while True:
            with self.lock:
                wakes_at = self._safe_turn()
                calls, self.link.calls = self.link.calls, []
                self._is_over = is_over = self.link.state is State.ENDED and not calls
                polled = self._polled() if not (calls or is_over) else []
                self._wakes_at = wakes_at if polled else 0.0
            if is_over:
                break
            for call in calls:
                guarded(call)
            if polled:
                self._sleep(polled, wakes_at)
        self._end()

    def _sleep(self, polled: list[int], wakes_at: float) -> None:
        poll = select.poll()
        for fd in polled:
            poll.register(fd, select.POLLIN)
        left_s = max(0.0, wakes_at - monotonic())
        ready = poll.poll(min(left_s * 1000, 3_600_000))
        if any(fd == self._wake_fd for fd, _ in ready):
            os.eventfd_read(self._wake_fd)

    def _polled(self) -> list[int]:
        """What to poll; the socket only when no other thread is likely to."""
        fds = [self._wake_fd]
        self._thread_reads = False
        if self._transport is not None:
            fds.append(self._transport.monitor_fd)
            self._thread_reads = not self._is_busy(monotonic())
            if self._thread_reads:
                fds.append(self._transport.fd)
        return fds

    def _is_busy(self, now: float) -> bool:
        """Whether application threads read."""
        if self._waiting.has_reader:
            return True
        return not self.link.unattended and now < self._waiting.last_at + TICK_S

    def _turn(self) -> float:
        self._wakes_at = 0.0
        self._thread_reads = False
        return super()._turn()

    def _due_at(self, now: float) -> float:
        due_at, free_at = super()._due_at(now), self._waiting.last_at + TICK_S
        return min(due_at, free_at) if now < free_at else due_at
