"""Rare lines: what strangers can cause again and again is not written to the log each time.

A client that asks for the same refusal ten thousand times a second would else fill the disk.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["RareLines"]

LINES_MAX = 100
PERIOD_S = 60.0


class RareLines:
    """At most LINES_MAX lines in PERIOD_S; the next one after that says how many were left out.

    write: a method of a logger. From any thread.
    """

    def __init__(
        self, write: Callable[..., None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._until = 0.0
        self._written = self._left_out = 0

    def say(self, text: str, *arguments: object, extra: dict[str, Any] | None = None) -> None:
        """Write a line, or leave it out; extra: its fields."""
        left_out = 0
        with self._lock:
            now = self._clock()
            if now >= self._until:
                left_out, self._until = self._left_out, now + PERIOD_S
                self._written = self._left_out = 0
            if self._written >= LINES_MAX:
                self._left_out += 1
                return
            self._written += 1
        if left_out:
            about = {"event": "lines_left_out"}
            self._write("%d lines like the next one were left out", left_out, extra=about)
        if extra is None:
            self._write(text, *arguments)
        else:
            self._write(text, *arguments, extra=extra)
