"""A planned move to another replica: what was begun ends, then the other one leads.

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
from hms.wire.operations import SwitchOver

__all__ = ["Switching"]

log = logging.getLogger("hms.node")

LOOK_S: Final = 0.005
LOOK_SHARE: Final = 10
"""It looks no more than a tenth of the time: with 10,000 clients a look takes some milliseconds."""
GONE_S: Final = 5.0
"""So long the replica that is to lead may be silent, or lack something, while the node drains."""


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
        self.drains_for = ""
        """The replica that is to lead when what was begun has ended; "" while nothing drains."""
        self.to = ""
        """The replica that is to lead from now on: this process then follows."""
        self._lacks_since_s: float | None = None
        """Since when that one could not lead at once, while the node drains."""

    def begin(self, asked: SwitchOver) -> Later:
        """Begin to drain; under the engine's lock. SwitchoverRefused for what is known already."""
        if self.is_stopping or self.to:
            raise NodeStopping
        if self.is_on:
            detail = f"a move to {self.drains_for} is under way: wait for its end"
            raise self._refused(asked.to or "another replica", detail)
        to = self._target(asked.to)
        drain_s = self._node.drain_s if asked.drain_s is None else asked.drain_s
        later, self.is_on, self.drains_for = Later(), True, to
        self._lacks_since_s = None
        about = to, drain_s, asked.is_forced, later
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

    def _run(self, to: str, drain_s: float, is_forced: bool, later: Later) -> None:
        draining = self._broker.draining
        log.warning("%s is to lead: what was begun has %g s to end", to, drain_s)
        self._broker.command(lambda fx, _: draining.begin(fx))
        try:
            self._drain(to, drain_s, is_forced=is_forced)
        except HmsError as fault:
            self._broker.command(lambda fx, _: draining.end(fx))
            self.is_on, self.drains_for = False, ""
            self._goes_on()
            log.warning("all goes on here: %s", fault)
            self._answer(later, fault)
            later.then(fault)
        else:
            log.warning("%s is to lead", to)
            told = {"node": self._node.name, "to": to, "epoch": self._taken.epoch}
            self._answer(later, told)
            later.then(None)
            self._moves()

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
        if not self._is_there(to, is_end=is_end, is_late=is_late) or not is_end:
            return False
        if not left.is_any:
            self._broker.draining.finish()
        return True

    def _is_there(self, to: str, *, is_end: bool, is_late: bool) -> bool:
        """Whether that one could lead at once; is_end: then it is to. One that stands still for a
        moment is waited for; SwitchoverRefused for one that is gone."""
        assert self._taken.hand_over is not None
        try:
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
