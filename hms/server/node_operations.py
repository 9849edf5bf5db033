"""Operations on the node's process itself: its alerts, its log, its figures for metrics, and that
another replica is to lead."""

from collections.abc import Callable
from typing import Any

from hms.errors.catalogue import NotSupported
from hms.server.alerts import Alerts
from hms.server.log_levels import LogLevels
from hms.wire import operations as ops

__all__ = ["NODE_OPERATIONS", "NodeOperations"]

NODE_OPERATIONS = ("alert.list", "log.level", "replica.switchover")


def _no_replicas(_asked: ops.SwitchOver) -> dict[str, Any]:
    raise NotSupported(
        feature="a switchover of a node without replicas",
        instead="hms down stops it; with [replica.NAME] another machine goes on.",
    )


class NodeOperations:
    """figures: what the process knows of itself. Under the engine's lock: it waits for nothing."""

    def __init__(
        self,
        alerts: Alerts,
        levels: LogLevels,
        figures: Callable[[], dict[str, Any]] = dict,
        switch_over: Callable[[ops.SwitchOver], dict[str, Any]] = _no_replicas,
    ) -> None:
        self.alerts = alerts
        self.levels = levels
        self._figures, self._switch_over = figures, switch_over

    def operate(self, asked: ops.Operation) -> Any:
        """Plain data."""
        if isinstance(asked, ops.SetLogLevel):
            return self.levels.change(asked)
        if isinstance(asked, ops.SwitchOver):
            return self._switch_over(asked)
        return {"active": self.alerts.active(), "ended": self.alerts.ended()}

    def figures(self) -> dict[str, Any]:
        """For metrics."""
        active = [(one["alert"], one["destination"]) for one in self.alerts.active()]
        return {**self._figures(), "alerts": active, "alerts_left_out": self.alerts.left_out}
