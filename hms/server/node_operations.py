"""Operations on the node's process itself: its alerts, its log, its figures for metrics."""

from collections.abc import Callable
from typing import Any

from hms.server.alerts import Alerts
from hms.server.log_levels import LogLevels
from hms.wire import operations as ops

__all__ = ["NODE_OPERATIONS", "NodeOperations"]

NODE_OPERATIONS = ("alert.list", "log.level")


class NodeOperations:
    """figures: what the process knows of itself. Under the engine's lock: it waits for nothing."""

    def __init__(
        self, alerts: Alerts, levels: LogLevels, figures: Callable[[], dict[str, Any]] = dict
    ) -> None:
        self.alerts = alerts
        self.levels = levels
        self._figures = figures

    def operate(self, asked: ops.Operation) -> Any:
        """Plain data."""
        if isinstance(asked, ops.SetLogLevel):
            return self.levels.change(asked)
        return {"active": self.alerts.active(), "ended": self.alerts.ended()}

    def figures(self) -> dict[str, Any]:
        """For metrics."""
        active = [(one["alert"], one["destination"]) for one in self.alerts.active()]
        return {**self._figures(), "alerts": active, "alerts_left_out": self.alerts.left_out}
