"""Heartbeat: what a connection does by the clock: a turn does what is due and says when to come
again.

It tries to connect, looks whether the node is still there, beats, and ticks what was held back.
"""

import logging
from collections.abc import Callable
from operator import itemgetter
from time import monotonic

from hms.client.core.link import State
from hms.client.core.operations import FOREVER
from hms.client.core.transport_loop import TransportLoop

_LOGGER = logging.getLogger("hms.client")
_at = itemgetter(0)


class Heartbeat:
    """See the module. may_read: whether a turn may read, and not somebody else just now."""

    def __init__(self, loop: TransportLoop, may_read: Callable[[], bool] = lambda: True) -> None:
        self._loop, self._link = loop, loop.link
        self._may_read = may_read

    def turn(self) -> float:
        """Do what is due; when to come again. A fault of ours must end the connection, not
        silently what drives it."""
        try:
            return self._turn()
        except Exception as fault:
            _LOGGER.exception("the client failed inside")
            loop = self._loop
            loop.stop(loop.lost_error(f"the client failed inside: {fault!r}"), 0)
            return 0.0

    def _turn(self) -> float:
        loop, link = self._loop, self._link
        now = monotonic()
        if loop.transport is not None:
            self._look(now)
        if link.state is State.OFF and self._try_again(now):
            return now  # a monitor signals only what comes after the first look at it
        if loop.ticks:
            self._tick(now)
        link.beat(now)
        loop.flush()
        if self._may_read() and loop.read():  # sending may have taken the socket's signal
            return now
        return now if link.state is State.ENDED else self._due_at()

    def _due_at(self) -> float:
        loop = self._loop
        tick_at = min(map(_at, loop.ticks), default=FOREVER)
        return min(self._link.due_at, tick_at, loop.attempts.due_at, loop.greeting_until)

    def _look(self, now: float) -> None:
        """Read, and find out whether the node is still there."""
        loop, link = self._loop, self._link
        assert loop.transport is not None
        fault = loop.transport.fault()
        if fault or self._may_read():
            loop.take_in()
        link.looked(now)
        if loop.transport is None:
            return
        if fault:
            loop.note_refusal(is_it=not loop.transport.is_reached)
            loop.lost(fault)
        elif link.is_silent(now):
            loop.lost(f"nothing came for {link.limits.heartbeat_s:g} s")
        elif now >= loop.greeting_until:
            loop.note_refusal(is_it=False)
            loop.lost("the node does not answer HELLO")

    def _try_again(self, now: float) -> bool:
        """Dial if it is time to; whether it did."""
        loop, link = self._loop, self._link
        loop.greeting_until = FOREVER
        if link.welcome is not None and loop.attempts.is_over(now):
            link.lose(loop.lost_error("the time to reconnect is over"), is_final=True)
            link.report(link.error)
        elif now >= loop.attempts.due_at:
            loop.dial(now)
            return loop.transport is not None
        return False

    def _tick(self, now: float) -> None:
        loop = self._loop
        due = [participant for at, participant in loop.ticks if at <= now]
        if due:
            loop.ticks = [one for one in loop.ticks if one[0] > now]
        for participant in due:
            participant.tick()
