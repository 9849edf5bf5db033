"""The background thread of a connection.

It connects, beats, runs the application's callbacks, sends what was held back, and reads only when
nobody waits. It stays away from the socket for a tick after somebody waited: two threads that poll
one descriptor wake each other for nothing.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from field_buffer.errors import HmsError
from tpmon.driver import FOREVER, TICK_S, Driver
from tpmon.link import State
from tpmon.transport import contexts

_LOGGER = logging.getLogger("hms.client")


class Background(Driver):
    """See the module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread = threading.Thread(target=self._run, name="hms-client", daemon=True)

    def start(self) -> None:
        """Begin to connect; lock held."""
        self._attempts.begin(monotonic())
        self._thread.start()

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good; lock held."""
        self._drop_transport(linger_ms)
        self.link.lose(error, is_final=True)
        self.flush()
        self._call_thread_by(0.0)

    def join(self) -> None:
        """Wait for the background thread and give everything back; lock not held."""
        if self._thread is threading.current_thread():
            return
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._give_back()

    def _give_back(self) -> None:
        with self.lock:
            self._drop_transport(0)
        os.close(self._wake_fd)
        self._wake_fd = -1
        contexts.release()

    def _run(self) -> None:
        while True:
            with self.lock:
                wakes_at = self._safe_turn()
                calls, self.link.calls = self.link.calls, []
                is_over = self.link.state is State.ENDED and not calls
                polled = self._polled() if not (calls or is_over) else []
                self._wakes_at = wakes_at if polled else 0.0
            if is_over:
                break
            for call in calls:
                _guarded(call)
            if polled:
                self._sleep(polled, wakes_at)
        self._give_back()

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

    def _safe_turn(self) -> float:
        """A fault of ours must end the connection, not silently its thread."""
        try:
            return self._turn()
        except Exception as fault:
            _LOGGER.exception("the client failed inside")
            self.stop(self._lost_error(f"the client failed inside: {fault!r}"), 0)
            return 0.0

    def _turn(self) -> float:
        """Do what is due; when to come again."""
        self._wakes_at = 0.0
        self._thread_reads = False
        now = monotonic()
        if self._transport is not None:
            self._look(now)
        if self.link.state is State.OFF and self._try_again(now):
            return now  # a monitor signals only what comes after the first look at it
        if now >= self._tick_at:
            self._tick()
        self.link.beat(now)
        self.flush()
        if self._read_before_sleep():
            return now
        due = [self.link.due_at, self._tick_at, self._attempts.due_at, self._greeting_until]
        if now < self._waiting.last_at + TICK_S:
            due.append(self._waiting.last_at + TICK_S)
        return min(due) if self.link.state is not State.ENDED else now

    def _look(self, now: float) -> None:
        """Read, and find out whether the node is still there."""
        assert self._transport is not None
        fault = self._transport.fault()
        if fault or not self._waiting.has_reader:
            self._take_in()
        if self._transport is None:
            return
        if fault:
            self._lost(fault)
        elif self.link.is_silent(now):
            self._lost(f"nothing came for {self.link.limits.heartbeat_s:g} s")
        elif now >= self._greeting_until:
            self._lost("the node does not answer HELLO")

    def _read_before_sleep(self) -> bool:
        """Sending may have taken the socket's signal: read once more before it is polled."""
        return not self._waiting.has_reader and self._read()

    def _try_again(self, now: float) -> bool:
        """Dial if it is time to; whether it did."""
        self._greeting_until = FOREVER
        if self.link.welcome is not None and self._attempts.is_over(now):
            self.link.lose(self._lost_error("the time to reconnect is over"), is_final=True)
            self.link.report(self.link.error)
        elif now >= self._attempts.due_at:
            self._dial(now)
            return self._transport is not None
        return False

    def _tick(self) -> None:
        self._tick_at = FOREVER
        ticking, self.link.ticking = self.link.ticking, []
        for participant in ticking:
            participant.tick()


def _guarded(call: Callable[[], None]) -> None:
    """Run a function of the application; its fault must not end the thread."""
    try:
        call()
    except Exception:
        _LOGGER.exception("a callback of the application failed")
