"""Alerts: conditions that an operator should know of, with a begin, an end and a reason.

Who looks says `set` while a condition is there and `clear` when it is not; an alert begins when
its condition has held for its time, and ends as soon as that is gone. Both are a line in the log.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Alerts", "Tell"]

log = logging.getLogger("hms.alerts")

ALERTS_MAX = 1000
"""So many conditions are kept; what comes beyond is counted."""
ENDED_MAX = 100
Key = tuple[str, str]
"""Name and destination, "" for one of the node."""


@dataclass(slots=True)
class _Condition:
    since_s: float
    since_ms: int
    text: str
    after_s: float
    has_begun: bool = False


class Tell(Protocol):
    """Hears that an alert begins or ends; on the thread that looks."""

    def __call__(self, *, begins: bool, name: str, destination: str, text: str) -> None:
        """destination: "" for one of the node."""


def _nobody(*, begins: bool, name: str, destination: str, text: str) -> None:
    """Nobody hears of it."""


class Alerts:
    """From any thread. clock: of seconds that never run backwards; clock_ms: for people."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        tell: Tell = _nobody,
    ) -> None:
        self._clock, self._clock_ms, self._tell = clock, clock_ms, tell
        self._lock = threading.Lock()
        self._known: dict[Key, _Condition] = {}
        self._ended: deque[dict[str, Any]] = deque(maxlen=ENDED_MAX)
        self.left_out = 0
        """Conditions that were not kept, as there were too many."""

    def set(self, name: str, destination: str, text: str, after_s: float = 0) -> None:
        """The condition is there; it is an alert when it holds for after_s."""
        begins = None
        with self._lock:
            key = name, destination
            found = self._known.get(key)
            if found is None:
                if len(self._known) >= ALERTS_MAX:
                    self.left_out += 1
                    return
                found = self._known[key] = _Condition(
                    self._clock(), self._clock_ms(), text, after_s
                )
            found.text = text
            if not found.has_begun and self._clock() - found.since_s >= after_s:
                found.has_begun, begins = True, text
        if begins is not None:
            extra = {"event": "alert_begins", "alert": name, "destination": destination}
            log.warning("alert %s begins%s: %s", name, _of(destination), begins, extra=extra)
            self._tell(begins=True, name=name, destination=destination, text=begins)

    def clear(self, name: str, destination: str = "") -> None:
        """The condition is not there."""
        if (name, destination) not in self._known:
            return
        with self._lock:
            found = self._known.pop((name, destination), None)
            if found is None or not found.has_begun:
                return
            lasted_s = self._clock() - found.since_s
            self._ended.append(_row((name, destination), found) | {"until_ms": self._clock_ms()})
        extra = {"event": "alert_ends", "alert": name, "destination": destination}
        log.warning("alert %s ends%s after %d s", name, _of(destination), lasted_s, extra=extra)
        self._tell(begins=False, name=name, destination=destination, text=found.text)

    def put(self, name: str, is_so: object, text: str, after_s: float = 0) -> None:
        """A condition of the node that is there, or is not."""
        if is_so:
            self.set(name, "", text, after_s)
        else:
            self.clear(name)

    def keep(self, destinations: Container[str]) -> None:
        """Conditions of all other destinations are over: those are gone."""
        for name, destination in list(self._known):
            if destination and destination not in destinations:
                self.clear(name, destination)

    def active(self) -> list[dict[str, Any]]:
        """Those that have begun and not ended, the oldest first."""
        with self._lock:
            return [_row(key, one) for key, one in self._known.items() if one.has_begun]

    def ended(self) -> list[dict[str, Any]]:
        """The last ones that ended."""
        with self._lock:
            return list(self._ended)


def _row(key: Key, one: _Condition) -> dict[str, Any]:
    name, destination = key
    return {
        "alert": name,
        "destination": destination,
        "text": one.text,
        "since_ms": one.since_ms,
    }


def _of(destination: str) -> str:
    return f" at {destination}" if destination else ""
