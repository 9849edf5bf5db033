"""Heartbeat: what a connection does by the clock: turn() does what is due and says when to come
again.

It tries to connect, looks whether the node is still there, beats, and ticks what was held back.
"""

import logging
from time import monotonic

from hms.client.core.link import State
from hms.client.core.operations import FOREVER
from hms.client.core.transport_loop import TransportLoop

_LOGGER = logging.getLogger("hms.client")


class Heartbeat(TransportLoop):
    """See the module."""

    @property
    def _may_read(self) -> bool:
        """Whether a turn may read, and not somebody else just now."""
        return True

    def _safe_turn(self) -> float:
        """A fault of ours must end the connection, not silently what drives it."""
        try:
            return self._turn()
        except Exception as fault:
            _LOGGER.exception("the client failed inside")
            self.stop(self._lost_error(f"the client failed inside: {fault!r}"), 0)
            return 0.0

    def _turn(self) -> float:
        """Do what is due; when to come again."""
        now = monotonic()
        if self._transport is not None:
            self._look(now)
        if self.link.state is State.OFF and self._try_again(now):
            return now  # a monitor signals only what comes after the first look at it
        self._tick(now)
        self.link.beat(now)
        self.flush()
        if self._may_read and self._read():  # sending may have taken the socket's signal
            return now
        return now if self.link.state is State.ENDED else self._due_at(now)

    def _due_at(self, now: float) -> float:  # noqa: ARG002 - for a shell that has more to do
        tick_at = min((at for at, _ in self._ticks), default=FOREVER)
        return min(self.link.due_at, tick_at, self._attempts.due_at, self._greeting_until)

    def _look(self, now: float) -> None:
        """Read, and find out whether the node is still there."""
        assert self._transport is not None
        fault = self._transport.fault()
        if fault or self._may_read:
            self._take_in()
        self.link.looked(now)
        if self._transport is None:
            return
        if fault:
            self._note_refusal(is_it=not self._transport.is_reached)
            self._lost(fault)
        elif self.link.is_silent(now):
            self._lost(f"nothing came for {self.link.limits.heartbeat_s:g} s")
        elif now >= self._greeting_until:
            self._note_refusal(is_it=False)
            self._lost("the node does not answer HELLO")

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

    def _tick(self, now: float) -> None:
        due = [participant for at, participant in self._ticks if at <= now]
        if due:
            self._ticks = [one for one in self._ticks if one[0] > now]
        for participant in due:
            participant.tick()
