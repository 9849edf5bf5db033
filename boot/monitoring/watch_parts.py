"""What becomes an alert of the node's parts, each of which is asked what is wrong with it.

slow_main_loop       a turn of the main thread took too long; it holds for a minute
memory_pressure      connections were closed for what was held for them; it holds for a minute
process_memory_high  the kernel ends the node when it takes more than its container or unit may
log_not_compacting   the log is too large and grows, and its oldest segment stays
server_down          a [server.NAME] has a process that ends again and again, or was given up
listener_missing     what waits for a service that nobody offers
certificate_expiring of those that hms.conf and security.toml name
audit_broken         its chain of hashes, as the boot found it
anchor_not_sent      number and hash of its last record did not go where audit_anchor says
alert_not_told       the command of [alerts] fails
debugger_allowed     allow_debugger lets other processes look into the node's memory
log_payloads         bodies and values of properties may stand in the log
copy_damaged         a replica's log has damaged bytes: hms switchover, then it is repaired
policy_rejected      security.toml has a fault, or that of another node
addresses_locked     wrong logins come on from there; new connections are dropped
policy_differs       another node of the cluster holds another policy
replica_unprotected  no copy of the log may be lost; replica_behind, replica_blocked, arbiter_down
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hms.boot.counts import counted
from hms.boot.monitoring.alert_command import NOT_TOLD
from hms.boot.monitoring.certificates import ends_ms
from hms.boot.sections import Alerts as Limits
from hms.server.alerts import Alerts
from hms.store.interface import LogGrowth

__all__ = ["Parts", "PartsWatch"]

LOOKS_KEPT = 60
HOUR_S = 3600
DAY_MS = 86_400_000
GROWN_SEGMENTS = 2
NAMES_SHOWN = 5


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is asked; a text is what is wrong, "" nothing. slowest_turn_s: since it was asked."""

    slowest_turn_s: Callable[[], float]
    growth: Callable[[], LogGrowth | None]
    servers: Callable[[], Iterable[Mapping[str, Any]]]
    listeners_missing: Callable[[], Iterable[Mapping[str, str]]]
    audit_broken: Callable[[], str]
    closed_for_memory: Callable[[], int] = int
    """So many connections since the boot."""
    resident: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Bytes that the process has in memory, and how many it may have; 0: nobody says."""
    anchor_not_sent: Callable[[], str] = _nothing
    alert_not_told: Callable[[], str] = _nothing
    debugger_allowed: Callable[[], str] = _nothing
    log_payloads: Callable[[], str] = _nothing
    copy_damaged: Callable[[], str] = _nothing
    policy_rejected: Callable[[], str] = _nothing
    policy_differs: Callable[[], str] = _nothing
    addresses_locked: Callable[[], Sequence[str]] = tuple
    certificates: Callable[[], Iterable[Path]] = tuple
    copies: Callable[[], Mapping[str, str]] = dict
    """By the name of the alert."""


class PartsWatch:
    """look() each second, in one thread."""

    def __init__(
        self,
        alerts: Alerts,
        limits: Limits,
        parts: Parts,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alerts, self._limits, self._parts = alerts, limits, parts
        self._clock_ms, self._monotonic = clock_ms, monotonic
        self._turns_s: deque[float] = deque(maxlen=LOOKS_KEPT)
        self._closed: deque[int] = deque([0], maxlen=LOOKS_KEPT)
        self._oldest, self._newest_then = -1, 0
        self._ends: Mapping[Path, int] = {}
        self._read_again_s = float("-inf")

    def look(self) -> None:
        """One look."""
        put, limits, parts = self._alerts.put, self._limits, self._parts
        self._turns_s.append(parts.slowest_turn_s())
        slowest_ms = max(self._turns_s) * 1000
        text = f"a turn of the main loop took {slowest_ms:.0f} ms"
        put("slow_main_loop", slowest_ms > limits.slow_main_loop_ms, text)
        self._closed.append(parts.closed_for_memory())
        closed = self._closed[-1] - self._closed[0]
        text = f"{counted(closed, 'connection was', 'connections were')} closed in a minute"
        put("memory_pressure", closed, f"{text}: too many bytes were held for them")
        used, most = parts.resident()
        is_high = bool(most) and 100 * used > limits.process_memory_high_percent * most
        text = f"the node has {used >> 20} MiB in memory, of {most >> 20} MiB that it may have"
        put("process_memory_high", is_high, text)
        self._look_at_growth(parts.growth())
        failing = [_failing(row) for row in parts.servers()]
        self._put("server_down", _some(failing), limits.server_down_s)
        missing = [f"{one['service']} ({one['destination']})" for one in parts.listeners_missing()]
        text = _some(missing) and f"nobody offers {_some(missing)}, whose messages wait"
        self._put("listener_missing", text, limits.listener_missing_s)
        self._put("audit_broken", parts.audit_broken())
        self._put("anchor_not_sent", parts.anchor_not_sent())
        self._put(NOT_TOLD, parts.alert_not_told())
        self._put("debugger_allowed", parts.debugger_allowed())
        self._put("log_payloads", parts.log_payloads())
        self._put("copy_damaged", parts.copy_damaged())
        self._put("policy_rejected", parts.policy_rejected())
        self._put("policy_differs", parts.policy_differs(), limits.policy_differs_s)
        locked = _some(parts.addresses_locked())
        self._put("addresses_locked", locked and f"locked after wrong logins: {locked}")
        for name, text in parts.copies().items():
            self._put(name, text, getattr(limits, f"{name}_s"))
        self._look_at_certificates()

    def _put(self, name: str, text: str, after_s: float = 0) -> None:
        self._alerts.put(name, text, text, after_s)

    def _look_at_growth(self, growth: LogGrowth | None) -> None:
        if growth is None:
            return
        if growth.oldest != self._oldest:
            self._oldest, self._newest_then = growth.oldest, growth.newest
            self._alerts.clear("log_not_compacting")
        grown = growth.newest - self._newest_then
        text = (
            f"the log is {growth.excess_bytes >> 20} MiB larger than it should be; its oldest "
            f"segment, {growth.oldest}, stays while {grown} were written"
        )
        is_stuck = growth.excess_bytes > 0 and grown >= GROWN_SEGMENTS
        self._alerts.put("log_not_compacting", is_stuck, text, self._limits.log_not_compacting_s)

    def _look_at_certificates(self) -> None:
        now_s, now_ms = self._monotonic(), self._clock_ms()
        if now_s >= self._read_again_s:
            self._read_again_s = now_s + HOUR_S
            self._ends = {path: ends_ms(path) for path in self._parts.certificates()}
        until_ms = now_ms + self._limits.certificate_expiring_days * DAY_MS
        texts = [
            f"{path} {'has ended' if end <= now_ms else f'ends in {(end - now_ms) // DAY_MS} days'}"
            for path, end in self._ends.items()
            if 0 < end <= until_ms
        ]
        self._put("certificate_expiring", _some(texts))


def _failing(row: Mapping[str, Any]) -> str:
    fault = row["fault"] or row["failing"]
    return f"{row['name']}: {fault}" if fault else ""


def _some(texts: Sequence[str]) -> str:
    texts = [text for text in texts if text]
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
