"""The background thread of a connection.

It connects, beats, runs the application's callbacks, sends what was held back, and reads only when
nobody waits. It stays away from the socket for a tick after somebody waited: two threads that poll
one descriptor wake each other for nothing.
"""

import os
import select
import threading
from functools import partial
from time import monotonic
from typing import Protocol

from hms.client.core.heartbeat import Heartbeat
from hms.client.core.link import Link, State
from hms.client.core.operations import Mark
from hms.client.core.socket_wait import SocketWait
from hms.client.core.transport_loop import TransportLoop, guarded

TICK_S = 0.005
"""How long it stays away after somebody read."""


class _Driver(Protocol):
    """Whose thread it is. lock: taken anew each time, as a fork replaces it."""

    lock: threading.Lock
    link: Link
    loop: TransportLoop


class BackgroundThread:
    """See the module. waiting: where the application's threads wait."""

    def __init__(self, driver: _Driver, waiting: SocketWait) -> None:
        self._driver, self._link, self._loop = driver, driver.link, driver.loop
        self._waiting = waiting
        self._heartbeat = Heartbeat(driver.loop, lambda: not waiting.has_reader)
        self.is_reader = False
        """Whether it polls the socket."""
        self._is_over = False
        self._wakes_at = 0.0
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="hms-client", daemon=True)

    def start(self) -> None:
        """Begin; lock held."""
        self._thread.start()

    def come_by(self, at: float) -> None:
        """Take a turn by then; lock held."""
        if self._wakes_at > at and self._wake_fd >= 0:
            self._wakes_at = 0.0
            os.eventfd_write(self._wake_fd, 1)

    def call_mark(self, mark: Mark) -> bool:
        """Reach the mark behind the callbacks that are due; False for one of them, and when none
        will run any more."""
        if self._is_over or self._thread is threading.current_thread():
            return False
        self._link.calls.append(partial(self._reached, mark))
        return True

    def _reached(self, mark: Mark) -> None:
        with self._driver.lock:
            mark.is_done = True
            self._link.woken.append(mark)
            self._loop.flush()

    def join(self) -> None:
        """Wait for its end and give everything back; lock not held."""
        if self._thread is threading.current_thread():
            return
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._end()

    def _end(self) -> None:
        with self._driver.lock:
            self._loop.drop_transport(0)
        os.close(self._wake_fd)
        self._wake_fd = -1
        self._loop.give_back(waits=True)

    def _run(self) -> None:
        link = self._link
        while True:
            with self._driver.lock:
                wakes_at = self._turn()
                calls, link.calls = link.calls, []
                self._is_over = is_over = link.state is State.ENDED and not calls
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
        fds, transport = [self._wake_fd], self._loop.transport
        self.is_reader = False
        if transport is not None:
            fds.append(transport.monitor_fd)
            self.is_reader = not self._is_busy(monotonic())
            if self.is_reader:
                fds.append(transport.fd)
        return fds

    def _is_busy(self, now: float) -> bool:
        """Whether application threads read."""
        if self._waiting.has_reader:
            return True
        return not self._link.unattended and now < self._waiting.last_at + TICK_S

    def _turn(self) -> float:
        """Do what is due; when to come again, at the latest when the socket is free."""
        self._wakes_at = 0.0
        self.is_reader = False
        due_at, free_at = self._heartbeat.turn(), self._waiting.last_at + TICK_S
        return min(due_at, free_at) if monotonic() < free_at else due_at
