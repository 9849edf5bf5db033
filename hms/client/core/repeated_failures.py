"""Failures that come again and again: the first with its traceback, others a line each, counted.

A message that fails comes again, and so do its traceback's fifty lines, for each of the thousands
behind it. What matters is there once; then it matters how often.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hms.client.core.log_events import event_of

__all__ = ["RepeatedFailures"]

PERIOD_S = 60.0
"""After so long the traceback is shown again."""
LINES_PER_S = 10
KNOWN_MAX = 256
TEXT_MAX = 300


@dataclass(slots=True)
class _Known:
    since: float
    count: int = 1
    second: float = 0.0
    lines: int = 0
    left_out: int = 0


class RepeatedFailures(logging.Filter):
    """For a logger. Failures are equal that are raised at one place, of one type."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], _Known] = {}

    def forget(self) -> None:
        """The next failure is the first of its kind."""
        with self._lock:
            self._known.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; one that comes again loses its traceback."""
        if not record.exc_info or record.exc_info[1] is None:
            return True
        error = record.exc_info[1]
        key = record.name, record.msg, record.args, type(error), *_place(error)
        with self._lock:
            now = self._clock()
            known = self._known.get(key)
            if known is None or now - known.since >= PERIOD_S:
                while len(self._known) >= KNOWN_MAX:
                    del self._known[next(iter(self._known))]
                self._known[key] = _Known(now)
                return True
            known.count += 1
            if now - known.second >= 1:
                known.second, known.lines = now, 0
            known.lines += 1
            if known.lines > LINES_PER_S:
                known.left_out += 1
                return False
            left_out, known.left_out = known.left_out, 0
        record.event = event_of(record)
        said = f"{type(error).__name__}: {_line(error)}"
        more = f", {left_out} such lines were left out" if left_out else ""
        record.msg = f"{record.getMessage()}: {said} (time {known.count}{more})"
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


def _place(error: BaseException) -> tuple[str, int]:
    """File and line where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _line(error: BaseException) -> str:
    text = str(error)[:TEXT_MAX]
    return "".join(char if char.isprintable() else " " for char in text)
