"""The background thread of a connection.

It connects, beats, runs the application's callbacks, sends what was held back, and reads only when
no thread of the application does. Two threads that poll one descriptor wake each other for nothing:
so the thread that reads takes the socket out of what this thread polls, in which it may sleep on.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

from hms.client.core.connection_lock import ConnectionLock
from hms.client.core.heartbeat import Heartbeat
from hms.client.core.link import Link, State
from hms.client.core.operations import Mark
from hms.client.core.socket_wait import AWAY_S, SocketWait
from hms.client.core.transport import Transport
from hms.client.core.transport_loop import TransportLoop, guarded

_LOGGER = logging.getLogger("hms.client")


def _called(call: Callable[[], object]) -> None:
    """Run a function of the application. What is to end its thread must not end this one, without
    which nobody beats, connects again or reads."""
    try:
        guarded(call)
    except BaseException:
        _LOGGER.exception("a callback of the application wanted its thread to end")


class _Driver(Protocol):
    """Whose thread it is. lock: taken anew each time, as a fork replaces it."""

    lock: ConnectionLock
    link: Link
    loop: TransportLoop


class BackgroundThread:
    """See the module. waiting: where the application's threads wait."""

    def __init__(self, driver: _Driver) -> None:
        self._driver, self._link, self._loop = driver, driver.link, driver.loop
        self.waiting = SocketWait(driver.lock, driver.loop.take_in, self)
        self._heartbeat = Heartbeat(driver.loop)
        self.is_reader = False
        """Whether it polls the socket."""
        self._is_over = False
        self._wakes_at = 0.0
        self._is_asleep = False
        """Whether it polls, or has been woken from that and waits for the lock."""
        self._transport: Transport | None = None
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="hms-client", daemon=True)

    def start(self) -> None:
        """Begin; lock held."""
        self._thread.start()

    def come_by(self, at: float) -> None:
        """Take a turn by then; lock held."""
        if self._wakes_at > at and self._wake_fd >= 0:
            self._wakes_at = at
            os.eventfd_write(self._wake_fd, 1)

    def watch(self, transport: Transport | None) -> None:
        """Poll this socket's descriptors from now on; lock held."""
        if self._transport is not None:
            self._epoll.unregister(self._transport.fd)
            self._epoll.unregister(self._transport.monitor_fd)
        self._transport, self.is_reader = transport, False
        if transport is not None:
            self._epoll.register(transport.fd, 0)
            self._epoll.register(transport.monitor_fd, select.EPOLLIN)

    def step_aside(self) -> None:
        """Another thread polls the socket from now on; lock held."""
        if self._transport is not None:
            self._epoll.modify(self._transport.fd, 0)
            self.is_reader = False

    def take_over(self, *, at_once: bool) -> bool:
        """Poll the socket, for which nobody has to be woken; at_once False: a little later, if
        nobody else does then. False when it is not asleep; lock held."""
        if not self._is_asleep or self._transport is None:
            return False
        if self.is_reader:
            return True
        if not (at_once or self._link.unattended):  # _is_away(), in place: nobody else waits
            free_at = self.waiting.last_at + AWAY_S
            if monotonic() < free_at:
                if self._wakes_at > free_at:
                    self.come_by(free_at)
                return True
        self._epoll.modify(self._transport.fd, select.EPOLLIN)
        self.is_reader = True
        if self._transport.has_input():  # sending may have taken the socket's signal
            self.come_by(0.0)
        return True

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
        self._epoll.close()
        os.close(self._wake_fd)
        self._wake_fd = -1
        self._loop.give_back(waits=True)

    def _run(self) -> None:
        """Turn after turn: do what is due, and come again when more is, at the latest when the
        socket is free."""
        link = self._link
        while True:
            with self._driver.lock:
                self._wakes_at, self._is_asleep = 0.0, False
                due_at = self._heartbeat.turn(may_read=self.waiting.reader is None)
                free_at = self.waiting.last_at + AWAY_S
                wakes_at = min(due_at, free_at) if monotonic() < free_at else due_at
                calls, link.calls = link.calls, []
                self._is_over = is_over = link.state is State.ENDED and not calls
                self._is_asleep = not (calls or is_over)
                self._wakes_at = wakes_at if self._is_asleep else 0.0
                if not self._is_asleep:
                    self.waiting.promote()
                elif not self.is_reader and not self._is_away(monotonic()):
                    self.take_over(at_once=True)
            if is_over:
                break
            for call in calls:
                _called(call)
            if not calls:
                self._sleep()
        self._end()

    def _sleep(self) -> None:
        """Until a turn is due, which come_by() may bring forward, or something comes."""
        is_early = True
        while is_early and (left_s := self._wakes_at - monotonic()) > 0:
            ready = self._epoll.poll(min(left_s, 3600))
            is_early = len(ready) == 1 and ready[0][0] == self._wake_fd
            if is_early:
                os.eventfd_read(self._wake_fd)

    def _is_away(self, now: float) -> bool:
        """Whether application threads read, or are likely to."""
        waiting = self.waiting
        if waiting.reader is not None:
            return True
        may_be = not (self._link.unattended or waiting.is_awaited)
        return may_be and now < waiting.last_at + AWAY_S
