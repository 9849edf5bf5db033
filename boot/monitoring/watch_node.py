"""What becomes an alert of the node itself: its peers, resource managers, clock and backups.

clock_stepped    the machine's clock moved by itself, also while the node was down if it went back;
                 it holds for ten minutes
clock_differs    that of another node, or of another replica's machine, is not this one's
backup_overdue   no backup for too long, counted from the boot when there was none since
ship_lag         somebody shipped what the log sealed, and has not for too long
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hms.boot.sections import Alerts as Limits
from hms.engine.engine import Engine
from hms.engine.xa.branch_operations import count_in_doubt
from hms.server.alerts import Alerts
from hms.server.resource_managers import ResourceManagers

__all__ = ["NodeWatch"]

STEP_SHOWN_S = 600
MILLI = 1000
NAMES_SHOWN = 5
CLOCK_DIFFERS_AFTER_S = 10
"""A machine that stood still hears late what was said."""


class NodeWatch:
    """look() in one thread, with what the engine has under its lock.

    backed_up_ms: when a backup was last begun, 0: not since the boot; shipped_ms: by one who ships.
    """

    def __init__(
        self,
        alerts: Alerts,
        limits: Limits,
        backed_up_ms: Callable[[], int],
        shipped_ms: Callable[[], int],
        resources: Callable[[], ResourceManagers],
        clock_ms: Callable[[], int],
        machine_ms: Callable[[], int | None],
        monotonic: Callable[[], float] = time.monotonic,
        clocks: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._alerts, self._limits = alerts, limits
        self._backed_up_ms, self._resources = backed_up_ms, resources
        self._shipped_ms, self._seen_ms, self._seen_at_s = shipped_ms, 0, 0.0
        self._clock_ms, self._machine_ms, self._monotonic = clock_ms, machine_ms, monotonic
        self._clocks, self._links = clocks, list[Mapping[str, Any]]()
        self._began_s = monotonic()
        self._offset_ms: float | None = None
        """The machine's clock less the monotonic one; not known before the first look."""
        self._stepped_s = 0.0
        self._stepped_at_s = float("-inf")

    def look_at_engine(self, engine: Engine) -> None:
        """Under the engine's lock; of what is bounded by the configuration alone."""
        put, limits = self._alerts.put, self._limits
        found = count_in_doubt(engine.state)["branches_heuristic"]
        text = f"an operator decided {found} branches; hms transaction forget ends it"
        put("heuristic_outcome", found, text)
        peers = () if engine.cluster is None else engine.cluster.peers.values()
        down = sorted(peer.name for peer in peers if not peer.is_up)
        put("peer_down", down, f"{_some(down)} cannot be reached", limits.peer_down_s)
        links = {} if engine.cluster is None else engine.cluster.describe_links()
        self._links = list(links.get("links", ()))

    def _look_at_clocks(self, links: Iterable[Mapping[str, Any]]) -> None:
        """At what the other nodes, or replicas, say of theirs. Nothing is decided by it, but what a
        message says of when it was sent, and a time that an application gives, are by those
        clocks."""
        most_s = self._limits.clock_differs_s
        ahead = {str(one["node"]): one["clock_ahead_s"] or 0.0 for one in links}
        found = [
            f"the clock of {name} is {abs(by_s):,.1f} s {'ahead' if by_s > 0 else 'behind'}"
            for name, by_s in sorted(ahead.items())
            if abs(by_s) > most_s
        ]
        self._alerts.put("clock_differs", found, _some(found), CLOCK_DIFFERS_AFTER_S)

    def look(self) -> None:
        """At the clock, backups and resource managers."""
        put, limits = self._alerts.put, self._limits
        rows = self._resources().describe().get("recovery", {}).get("resources", ())
        down = sorted(str(row.get("name")) for row in rows if row.get("state") == "down")
        put("resource_down", down, f"{_some(down)} cannot be reached", limits.resource_down_s)
        now_ms, now_s = self._clock_ms(), self._monotonic()
        self._look_at_clock(now_ms, now_s)
        self._look_at_clocks((*self._links, *self._clocks()))
        since_s = min((now_ms - self._backed_up_ms()) // MILLI, int(now_s - self._began_s))
        is_late = limits.backup_overdue_s and since_s >= limits.backup_overdue_s
        put("backup_overdue", is_late, f"no backup was begun for {since_s} s")
        self._look_at_shipping(now_s)

    def _look_at_shipping(self, now_s: float) -> None:
        shipped_ms, limit_s = self._shipped_ms(), self._limits.ship_lag_s
        if shipped_ms != self._seen_ms:
            self._seen_ms, self._seen_at_s = shipped_ms, now_s
        since_s = int(now_s - self._seen_at_s)
        is_late = bool(shipped_ms and limit_s) and since_s >= limit_s
        self._alerts.put("ship_lag", is_late, f"nothing was shipped for {since_s} s")

    def _look_at_clock(self, now_ms: int, now_s: float) -> None:
        """At the machine's own clock: the node's follows a step by 1 % only, and shows none. At the
        first look the node's time is what the log knew: a clock that went back shows there."""
        machine_ms = self._machine_ms()
        if machine_ms is not None:
            before_ms = now_ms - now_s * MILLI if self._offset_ms is None else self._offset_ms
            self._offset_ms = machine_ms - now_s * MILLI
            stepped_s = (self._offset_ms - before_ms) / MILLI
            if abs(stepped_s) > self._limits.clock_step_s:
                self._stepped_s, self._stepped_at_s = stepped_s, now_s
        is_recent = now_s - self._stepped_at_s < STEP_SHOWN_S
        text = f"the clock went {abs(self._stepped_s):.1f} s {_way(self._stepped_s)}"
        self._alerts.put("clock_stepped", is_recent, text)


def _way(seconds: float) -> str:
    return "ahead" if seconds > 0 else "back"


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
