"""Operations on the node's process itself: its alerts, its log, its figures for metrics, and that
another replica is to lead, or to count."""

from collections.abc import Callable, Container
from typing import Any, Protocol

from hms.engine.effects import Effects, Refusal, Reply
from hms.errors.catalogue import NotSupported
from hms.errors.tree import HmsError
from hms.server.alerts import Alerts
from hms.server.log_levels import LogLevels
from hms.server.log_payloads import LogPayloads
from hms.wire import operations as ops

__all__ = ["NODE_OPERATIONS", "UNFORESEEN", "Ended", "Later", "NodeOperations"]

NODE_OPERATIONS = (
    "alert.list",
    "log.level",
    "log.payloads",
    "replica.add",
    "replica.remove",
    "replica.switchover",
)
UNFORESEEN = 1014
"""Of an error that has no number."""


class Ended(Protocol):
    """Audits how an order ended; under the engine's lock."""

    def __call__(
        self, error: int, now_ms: int, fx: Effects, affected: int | None = None, /
    ) -> None:
        """error: 0, or its number; affected: how many messages, publications or clients."""


class Later:
    """An answer that comes later. asked: connections that wait for it, with their correlations, and
    what audits how it ended, 0 or the number of an error; under the engine's lock."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, Ended]] = []
        self.then: Callable[[HmsError | None], None] = lambda _fault: None
        """Told the end: None when it was done."""

    def answer(
        self,
        said: dict[str, Any] | HmsError,
        connections: Container[int],
        now_ms: int,
        fx: Effects,
    ) -> None:
        """Tell those who wait and are there still; how it ended is audited either way. Under the
        engine's lock."""
        for connection, correlation, audit in self.asked:
            audit((said.number or UNFORESEEN) if isinstance(said, HmsError) else 0, now_ms, fx)
            if connection not in connections:
                continue
            if isinstance(said, HmsError):
                fx.out.append(Refusal(connection, correlation, said))
            else:
                fx.out.append(Reply(connection, correlation, said))


def _no_replicas(_asked: ops.Operation) -> dict[str, Any]:
    raise NotSupported(
        feature="a switchover, or another copy, of a node without replicas",
        instead="hms down stops it; with [replica.NAME] another machine goes on.",
    )


class NodeOperations:
    """figures: what the process knows of itself. Under the engine's lock: it waits for nothing."""

    def __init__(
        self,
        alerts: Alerts,
        levels: LogLevels,
        payloads: LogPayloads,
        figures: Callable[[], dict[str, Any]] = dict,
        replicas: Callable[[ops.Operation], dict[str, Any] | Later] = _no_replicas,
    ) -> None:
        self.alerts = alerts
        self.levels, self.payloads = levels, payloads
        self._figures, self._replicas = figures, replicas

    def operate(self, asked: ops.Operation) -> Any:
        """Plain data."""
        if isinstance(asked, ops.SetLogLevel):
            return self.levels.change(asked)
        if isinstance(asked, ops.SetLogPayloads):
            return self.payloads.change(asked)
        if isinstance(asked, ops.SwitchOver | ops.AddReplica | ops.RemoveReplica):
            return self._replicas(asked)
        return {"active": self.alerts.active(), "ended": self.alerts.ended()}

    def figures(self) -> dict[str, Any]:
        """For metrics."""
        active = [(one["alert"], one["destination"]) for one in self.alerts.active()]
        return {**self._figures(), "alerts": active, "alerts_left_out": self.alerts.left_out}
