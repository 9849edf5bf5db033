"""Heartbeat: what a connection does by the clock: a turn does what is due and says when to come
again.

It tries to connect, looks whether the node is still there, beats, ticks what was held back, and
asks other replicas when the node is silent (inquiry.py).
"""

import logging
from operator import itemgetter
from time import monotonic

from hms.client.core.link import State
from hms.client.core.operations import FOREVER
from hms.client.core.transport_loop import TransportLoop

_LOGGER = logging.getLogger("hms.client")
_at = itemgetter(0)


class Heartbeat:
    """See the module."""

    def __init__(self, loop: TransportLoop) -> None:
        self._loop, self._link = loop, loop.link

    def turn(self, *, may_read: bool = True) -> float:
        """Do what is due; when to come again. may_read: nobody else reads just now. A fault of ours
        must end the connection, not silently what drives it."""
        loop, link = self._loop, self._link
        try:
            now = monotonic()
            if loop.transport is not None:
                self._look(now, may_read=may_read)
            if link.state is State.OFF and self._try_again(now):
                return now  # a monitor signals only what comes after the first look at it
            ticks, loop.ticks = loop.ticks, []
            for one in ticks:
                if one[0] <= now:
                    one[1].tick()
                else:
                    loop.ticks.append(one)
            loop.flush()
            if may_read and loop.transport is not None and loop.transport.has_input():
                return now  # sending may have taken the socket's signal
            if link.state is State.ENDED:
                return now
            ask_at = loop.inquiry.turn(now)
            tick_at = min(map(_at, loop.ticks), default=FOREVER)
            return min(link.due_at, tick_at, ask_at, loop.attempts.due_at, loop.greeting_until)
        except Exception as fault:
            _LOGGER.exception("the client failed inside")
            loop.stop(loop.lost_error(f"the client failed inside: {fault!r}"), 0)
            return 0.0

    def _look(self, now: float, *, may_read: bool) -> None:
        """Read, find out whether the node is still there, and beat; turn() flushes."""
        loop, link, transport = self._loop, self._link, self._loop.transport
        assert transport is not None
        fault = transport.fault() if transport.has_news() else ""
        if (fault or may_read) and transport.has_input():
            loop.read(transport)
        is_silent = link.beat(now)
        if loop.transport is None:
            return
        if fault:
            loop.note_refusal(is_it=not loop.transport.is_reached)
            loop.lost(fault)
        elif is_silent:
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
