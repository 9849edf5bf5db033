"""Fail-back of a node with replicas: the preferred one leads again by itself, as an operator would
have it (`failback = "AUTO"`)."""

import logging
import time
from collections.abc import Callable
from typing import Any

from hms.boot.entries import Config, Node
from hms.boot.standby import Taken
from hms.boot.switching import Switching
from hms.errors.tree import HmsError
from hms.server.broker import Broker
from hms.server.replicas.failback import Failback, note_move, recent_moves
from hms.store.journal.disk import REAL_DISK
from hms.wire.operations import SwitchOver

__all__ = ["FailingBack", "preferred_of"]

log = logging.getLogger("hms.node")


def preferred_of(config: Config, node: Node) -> str:
    """The replica with engine_roll = "ACTIVE"; "" for none."""
    return next((o.name for o in config.replicas_of(node) if o.engine_roll == "ACTIVE"), "")


class FailingBack:
    """Looked at every second, while this replica leads. damage: of this machine's copy."""

    def __init__(
        self,
        config: Config,
        node: Node,
        taken: Taken,
        broker: Broker,
        switching: Switching,
        damage: Callable[[], str],
    ) -> None:
        self._node, self._taken, self._broker = node, taken, broker
        self._switching, self._damage = switching, damage
        self._preferred = preferred_of(config, node)
        self._decision: Failback | None = None
        if node.failback == "AUTO" and node.replica != self._preferred and taken.readiness:
            self._decision = Failback(
                self._preferred,
                node.failback_after_s,
                recent=recent_moves(REAL_DISK, node.store, time.time()),
                sent_away_in=taken.sent_away_in(self._preferred),
            )

    def facts(self) -> dict[str, Any]:
        """For the status of a node with replicas."""
        if not self._preferred:
            return {}
        state = "MANUAL" if self._decision is None else self._decision.state
        is_here = self._node.replica == self._preferred
        return {"preferred": self._preferred, "failback": "it leads" if is_here else state}

    def look(self) -> None:
        """Begin the move when it is time."""
        decision, switching = self._decision, self._switching
        if decision is None or switching.is_on or switching.to or switching.is_stopping:
            return
        assert self._taken.readiness is not None
        start, why = self._taken.readiness(self._preferred)
        troubles = filter(None, (*self._taken.troubles().values(), self._damage()))
        if not decision.look(time.monotonic(), start, why or next(troubles, "")):
            return
        log.warning("%s is preferred and has everything: it is to lead again", self._preferred)
        try:
            self._broker.command(lambda _fx, _now_ms: self._begin())
        except HmsError as fault:
            log.warning("it does not lead again yet: %s", fault)
            decision.refused()

    def _begin(self) -> None:
        self._switching.begin(SwitchOver(to=self._preferred)).then = self._ended

    def _ended(self, fault: HmsError | None) -> None:
        assert self._decision is not None
        if fault is None:
            note_move(REAL_DISK, self._node.store, time.time())
        else:
            self._decision.refused()
            log.warning("it is tried again in %g s", self._decision.wait_s)
