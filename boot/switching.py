"""A planned move to another replica: that one applies the log, what was begun ends, then it leads.

A hot standby that has just been booted has applied nothing of the log, and would do that before it
serves (decision 0086). While it does it here, all goes on.

The operator is answered at the end, by a thread of this node: with who leads from then on, or with
why not and all as it was before.
"""

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from hms.boot.entries import Node
from hms.boot.standby import Taken
from hms.errors.catalogue import NodeStopping, SwitchoverRefused
from hms.errors.tree import HmsError
from hms.server.broker import Broker
from hms.server.node_operations import Later
from hms.wire.operations import APPLY_S, SwitchOver

__all__ = ["Switching"]

log = logging.getLogger("hms.node")

LOOK_S: Final = 0.005
LOOK_SHARE: Final = 10
"""It looks no more than a tenth of the time: with 10,000 clients a look takes some milliseconds."""
GONE_S: Final = 5.0
"""So long the replica that is to lead may be silent, or lack something, while the node drains."""
REST_BYTES: Final = 64 << 10
"""What may be left then: 1,000 small records at most, which a busy machine applies in 0.1 s."""
REST_LATER: Final = 8
"""So many times that, when what was begun has ended: sends went on meanwhile."""
APPLY_LOOK_S: Final = 0.05


class Switching:
    """One move at a time. goes_on: what waited for the end of a drain may go on; moves: the other
    one is to lead, this process is to stop."""

    def __init__(
        self,
        node: Node,
        taken: Taken,
        broker: Broker,
        goes_on: Callable[[], None],
        moves: Callable[[], None],
        preferred: str = "",
    ) -> None:
        """preferred: the replica that is to lead if it has everything and none is named."""
        self._node, self._taken, self._broker = node, taken, broker
        self._goes_on, self._moves, self._preferred = goes_on, moves, preferred
        self.is_stopping = False
        """The node is stopped for another reason."""
        self.is_on = False
        self.target = ""
        """The replica that is to lead by the move that was begun last."""
        self.drains_for = ""
        """The replica that is to lead when what was begun has ended; "" while nothing drains."""
        self.waits_for = ""
        """The replica that is to lead and how much of the log it has to apply first; "" while no
        move waits for that."""
        self.to = ""
        """The replica that is to lead from now on: this process then follows."""
        self._lacks_since_s: float | None = None
        """Since when that one could not lead at once, while the node drains."""

    def begin(self, asked: SwitchOver) -> Later:
        """Begin to drain; under the engine's lock. SwitchoverRefused for what is known already."""
        if self.is_stopping or self.to:
            raise NodeStopping
        if self.is_on:
            detail = f"a move to {self.target} is under way: wait for its end"
            raise self._refused(asked.to or "another replica", detail)
        to = self.target = self._target(asked.to)
        later, self.is_on = Later(), True
        self._lacks_since_s = None
        about = to, asked, later
        threading.Thread(target=self._run, args=about, name="hms-switch", daemon=True).start()
        return later

    def _target(self, to: str) -> str:
        taken, preferred = self._taken, self._preferred
        assert taken.may_lead is not None
        if (
            not to
            and preferred
            and taken.readiness is not None
            and not taken.readiness(preferred)[1]
        ):
            to = preferred
        return taken.may_lead(to)

    def _run(self, to: str, asked: SwitchOver, later: Later) -> None:
        draining = self._broker.draining
        drain_s = self._node.drain_s if asked.drain_s is None else asked.drain_s
        try:
            told = self._await_applied(to, asked)
            log.warning("%s is to lead: what was begun has %g s to end", to, drain_s)
            self.waits_for, self.drains_for = "", to
            self._broker.command(lambda fx, _: draining.begin(fx))
            self._drain(to, drain_s, is_forced=asked.is_forced)
        except HmsError as fault:
            if self.drains_for:
                self._broker.command(lambda fx, _: draining.end(fx))
            self.is_on, self.drains_for, self.waits_for = False, "", ""
            self._goes_on()
            log.warning("all goes on here: %s", fault)
            self._answer(later, fault)
            later.then(fault)
        else:
            log.warning("%s is to lead", to)
            told = {"node": self._node.name, "to": to, "epoch": self._taken.epoch, **told}
            self._answer(later, told)
            later.then(None)
            self._moves()

    def _await_applied(self, to: str, asked: SwitchOver) -> dict[str, Any]:
        """Until that one has applied the log but for a small rest; what the operator is shown of
        it. After apply_s SwitchoverRefused, or by force no more waiting."""
        apply_s = APPLY_S if asked.apply_s is None else asked.apply_s
        begun_s = monotonic()
        first = left = None
        is_told = False
        while True:
            if self._taken.has_told(to, monotonic() - begun_s):
                heard = self._taken.to_apply(to)
                left = left if heard is None else heard  # it may be silent for a moment
                first, is_told = left if not is_told else first, True
            else:
                self._taken.to_apply(to)  # it is asked
            if is_told and (left is None or left <= REST_BYTES):
                break
            waited_s = monotonic() - begun_s
            if waited_s >= apply_s:
                if asked.is_forced:
                    break
                raise self._refused(to, _too_long(waited_s, first, left, is_told=is_told))
            self._waits(to, left, is_told=is_told)
            self._is_there(to, is_end=False, is_late=False, may_lag=True)
            threading.Event().wait(APPLY_LOOK_S if is_told else LOOK_S)
            if self.is_stopping:
                raise NodeStopping
        waited_s = round(monotonic() - begun_s, 1)
        return {"to_apply_bytes": first, "left_bytes": left, "applied_s": waited_s}

    def _waits(self, to: str, left: int | None, *, is_told: bool) -> None:
        """For the status, and once for the log."""
        if is_told and self.waits_for in ("", _unsaid(to)):
            log.warning("%s has up to %s of the log to apply first", to, _size(left or 0))
        has = f"{to}, which has up to {_size(left or 0)} of the log to apply"
        self.waits_for = has if is_told else _unsaid(to)

    def _drain(self, to: str, drain_s: float, *, is_forced: bool) -> None:
        begun_s = monotonic()
        pause = threading.Event()
        while True:
            look_s = monotonic()
            is_late = look_s - begun_s >= drain_s
            if self._broker.look(lambda _: self._settled(to, is_late, is_forced, drain_s)):  # noqa: B023
                return
            pause.wait(max(LOOK_S, LOOK_SHARE * (monotonic() - look_s)))

    def _settled(self, to: str, is_late: bool, is_forced: bool, drain_s: float) -> bool:
        """Whether it is so far; under the engine's lock, so nothing begins behind it."""
        if self.is_stopping:
            raise NodeStopping
        left = self._broker.draining.left()
        if left.is_any and is_late and not is_forced:
            detail = f"after {drain_s:g} s there are {left}; --force ends them"
            raise self._refused(to, detail)
        is_end = is_late or not left.is_any
        may_lag = is_forced or not is_end
        if not self._is_there(to, is_end=is_end, is_late=is_late, may_lag=may_lag) or not is_end:
            return False
        if not left.is_any:
            self._broker.draining.finish()
        return True

    def _is_there(self, to: str, *, is_end: bool, is_late: bool, may_lag: bool) -> bool:
        """Whether that one could lead at once; is_end: then it is to. One that stands still for a
        moment, or was booted anew and applies the log again unless it may_lag, is waited for;
        SwitchoverRefused for one that is gone."""
        assert self._taken.hand_over is not None
        try:
            left = 0 if may_lag else self._taken.to_apply(to) or 0
            if left > REST_LATER * REST_BYTES:
                raise self._refused(to, _lags(left))
            if is_end:
                self.to = self._taken.hand_over(to)
            else:
                self._target(to)
        except SwitchoverRefused:
            now_s = monotonic()
            if self._lacks_since_s is None:
                self._lacks_since_s = now_s
            if is_late or now_s - self._lacks_since_s >= GONE_S:
                raise
            return False
        self._lacks_since_s = None
        return True

    def _refused(self, to: str, detail: str) -> SwitchoverRefused:
        return SwitchoverRefused(node=self._node.name, to=to, detail=detail)

    def _answer(self, later: Later, said: dict[str, Any] | HmsError) -> None:
        known = self._broker.engine.state.connections
        self._broker.command(lambda fx, now_ms: later.answer(said, known, now_ms, fx))


def _size(size: int) -> str:
    """For an operator."""
    return f"{size >> 10:,} KiB"


def _unsaid(to: str) -> str:
    return f"{to}, which has not said yet how much of the log it has to apply"


def _too_long(waited_s: float, first: int | None, left: int | None, *, is_told: bool) -> str:
    """Why it is waited for no more, and what helps."""
    lacks = "it has not said how much of the log it has to apply"
    if is_told:
        lacks = f"{_lags(left or 0)}; it had up to {_size(first or 0)} at first"
    return f"after {waited_s:.1f} s {lacks}. More time: --apply-s; at once: --force"


def _lags(left: int) -> str:
    return f"it has up to {_size(left)} of the log to apply, and {_size(REST_BYTES)} may be left"
