"""Equal events of a log: beyond so many within a second they are counted and told once.

Equal are lines of one logger and one level that differ in their arguments only. What is fatal is
always written, and DEBUG too: who asks for it looks for one line among many.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from hms.client.core.log_events import event_of

__all__ = ["EQUAL_MAX", "EqualEvents"]

EQUAL_MAX = 10
PERIOD_S = 1.0
_KEYS_MAX = 1000
"""Texts that are made before they are logged are as many events as there are texts."""


@dataclass(slots=True)
class _Event:
    until: float
    written: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None


class EqualEvents:
    """The caller holds a lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events: dict[tuple[str, int, str], _Event] = {}
        self.left_out = 0
        """So many are counted and not told yet."""

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; over() comes first."""
        if not logging.DEBUG < record.levelno < logging.CRITICAL:
            return True
        now, key = self._clock(), (record.name, record.levelno, str(record.msg))
        event = self._events.get(key)
        if event is None or now >= event.until:
            if len(self._events) >= _KEYS_MAX:
                self._forget(now)
            event = self._events[key] = _Event(now + PERIOD_S)
        if event.written < EQUAL_MAX:
            event.written += 1
            return True
        event.left_out += 1
        self.left_out += 1
        event.last = record
        return False

    def over(self, *, at_once: bool = False) -> list[logging.LogRecord]:
        """A line for each event whose second is over, of what was left out of it."""
        if not self.left_out:
            return []
        now, told = self._clock(), []
        for key, event in list(self._events.items()):
            if event.left_out and (at_once or now >= event.until):
                told.append(_summary(self._events.pop(key)))
                self.left_out -= event.left_out
        return told

    def _forget(self, now: float) -> None:
        kept = {key: e for key, e in self._events.items() if now < e.until or e.left_out}
        self._events = kept if len(kept) < _KEYS_MAX else {k: e for k, e in kept.items() if e.last}


def _summary(event: _Event) -> logging.LogRecord:
    last = event.last
    assert last is not None
    said = vars(last) | {
        "event": event_of(last),
        "msg": "%d more like this within a second, the last: %s",
        "args": (event.left_out, last.getMessage()),
        "exc_info": None,
        "exc_text": None,
        "stack_info": None,
    }
    return logging.makeLogRecord(said)
