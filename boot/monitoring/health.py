"""Health of a node, seen from outside: live, ready, or why not.

state                                       live   ready
not running, stopped, failed                no     no
starting, recovering                        yes    no    how far, how long it will take
standby                                     yes    no    what it waits for
ready                                       yes    yes
ready, in alarm                             yes    yes, but not for producers
draining                                    yes    no
main loop, a worker or the log hangs        no     no
the process stands still                    no     no
"""

import time
from dataclasses import dataclass, field
from typing import Any

from hms.boot.entries import Node
from hms.boot.monitoring.state_file import read_state, state_file_of
from hms.boot.roles import role_of
from hms.boot.supervise import Process, find

__all__ = ["IN_ALARM", "Health", "health_of"]

IN_ALARM = frozenset(("store_full", "store_low", "memory_high", "producers_blocked"))
"""Alerts in which a producer should not be sent to this node."""
SILENT_S = 5.0
"""A node writes its state each second; a loaded machine may let it wait."""


@dataclass(frozen=True, slots=True)
class Health:
    """live: it need not be restarted; ready: work may be sent to it."""

    node: str
    state: str
    is_live: bool
    is_ready: bool
    text: str
    alerts: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[str, float] = field(default_factory=dict)

    @property
    def is_ready_for_producers(self) -> bool:
        """Whether what they send would be taken."""
        return self.is_ready and not self._alarms

    @property
    def _alarms(self) -> list[str]:
        return sorted({one["alert"] for one in self.alerts} & IN_ALARM)

    @property
    def text_for_producers(self) -> str:
        """Why not."""
        is_alarm = self.is_ready and self._alarms
        return f"in alarm: {', '.join(self._alarms)}" if is_alarm else self.text

    def details(self) -> dict[str, Any]:
        """All that is known, as plain data."""
        return {
            "node": self.node,
            "state": self.state,
            "live": self.is_live,
            "ready": self.is_ready,
            "ready_for_producers": self.is_ready_for_producers,
            "text": self.text,
            "alerts": self.alerts,
            "checks": self.checks,
        }


def health_of(node: Node, now_s: float | None = None) -> Health:
    """Asks neither the node nor the network. now_s: of the clock that all processes share."""
    now = time.monotonic() if now_s is None else now_s
    said = read_state(state_file_of(node))
    is_running = said is not None and _process_of(said).is_alive
    if said is not None and is_running:
        return _judge(node.name, said, now)
    process = find(node)
    if process is None:
        is_failed = said is not None and said["state"] == "failed"
        reason = f"failed: {said['reason']}" if said is not None and is_failed else "not running"
        state = "failed" if is_failed else "down"
        return Health(node.name, state, is_live=False, is_ready=False, text=reason)
    if standby := role_of(node, process.pid):
        text = _waits_for(standby["waits_for"])
        return Health(node.name, "standby", is_live=True, is_ready=False, text=text)
    return Health(node.name, "starting", is_live=True, is_ready=False, text="starting")


def _process_of(said: dict[str, Any]) -> Process:
    """Whose words they are; one that never was, when that is not told."""
    return Process(**said["process"]) if said["process"] else Process(0, 0, "")


def _judge(name: str, said: dict[str, Any], now: float) -> Health:
    state, silent_s = said["state"], now - said["written_s"]
    alerts, checks = said["alerts"], {"written": round(silent_s, 3), **said["checks"]}
    is_live = is_ready = False
    if state == "failed":
        text = f"failed: {said['reason']}"
    elif silent_s > max(SILENT_S, said["watchdog_s"]):
        text = f"the process has not said anything for {silent_s:.0f} s"
    elif said["hung"]:
        text = f"no progress for {said['watchdog_s']:g} s: {', '.join(said['hung'])}"
    else:
        is_live, is_ready = True, state == "ready"
        text = _text(said, now)
    return Health(name, state, is_live, is_ready, text, alerts, checks)


def _waits_for(what: str) -> str:
    return f"stands by, waits for {what}"


def _text(said: dict[str, Any], now: float) -> str:
    state = str(said["state"])
    if state == "standby":
        return _waits_for(said["reason"])
    if state == "recovering" and said["total_bytes"]:
        share = said["done_bytes"] / said["total_bytes"]
        text = f"recovering {100 * share:.0f} %"
        if share > 0:
            spent_s = said["written_s"] - said["began_s"]
            left_s = spent_s * (1 - share) / share - (now - said["written_s"])
            text += f", {max(left_s, 0):.0f} s left"
        return text
    if state == "ready" and said["alerts"]:
        return f"ready, alerts: {', '.join(sorted({one['alert'] for one in said['alerts']}))}"
    return state
