"""How busy a node's threads are, for metrics: looked at each second, so no message costs more.

A look sees a moment. The share of busy workers is of the looks of SHARE_S seconds, and the
histogram of the main loop has of each second its slowest turn.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hms.server.histograms import Histogram
from hms.workers.load import PoolLoad

__all__ = ["SHARE_S", "NodeLoad"]

SHARE_S = 15
"""As often as Prometheus scrapes by our configuration."""


class NodeLoad:
    """look() each second, in one thread; describe() in any. turns: of the main loop, so far;
    slowest_turn_s: since it was asked."""

    def __init__(
        self,
        pools: Mapping[str, Callable[[], PoolLoad]],
        turns: Callable[[], int],
        slowest_turn_s: Callable[[], float],
    ) -> None:
        self._pools, self._turns, self._slowest = pools, turns, slowest_turn_s
        self._slowest_s = Histogram()
        self._busy = {name: deque[float](maxlen=SHARE_S) for name in pools}
        self._told: dict[str, dict[str, float]] = {}

    def slowest_turn_s(self) -> float:
        """The same, counted: once a second."""
        found = self._slowest()
        self._slowest_s.observe(found)
        return found

    def look(self) -> None:
        """One look at the pools."""
        told = {}
        for name, ask in self._pools.items():
            load, busy = ask(), self._busy[name]
            busy.append(load.busy / load.workers)
            told[name] = {
                "workers": load.workers,
                "busy": sum(busy) / len(busy),
                "waiting": load.waiting,
                "deepest": load.deepest,
            }
        self._told = told

    def describe(self) -> dict[str, Any]:
        """For metrics."""
        turns = {"turns": self._turns(), "slowest_s": self._slowest_s.describe()}
        return {"pools": self._told, "main_loop": turns}
