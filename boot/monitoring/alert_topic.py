"""Alert topic: begin and end of each alert, published on HMS/alert/NAME.

A publication is not persistent, and one for each change: it causes no other, as what it does to a
place is a condition that is there already or that begins once. Who comes later sees in
alert.list what has begun.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from hms.boot.monitoring.alert_command import TEXT_MAX, Change
from hms.engine.effects import Effects
from hms.engine.engine import Engine

__all__ = ["TOPIC", "AlertTopic"]

TOPIC = "HMS/alert/"
WAITING_MAX = 2000
"""As many as may begin and end between two looks."""
TOLD_AT_ONCE = 50
"""Under one hold of the engine's lock: 2 ms."""


class AlertTopic:
    """put() from any thread, also under the engine's lock; look() is called every second by one,
    without it. command: applies something to the engine."""

    def __init__(
        self,
        node: str,
        engine: Engine,
        command: Callable[[Callable[[Effects, int], None]], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._node, self._engine, self._command = node, engine, command
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Change]] = deque(maxlen=WAITING_MAX)

    def put(self, change: Change) -> None:
        """It is told at the next look, behind those before it."""
        with self._lock:
            self._waiting.append((self._clock_ms(), change))

    def look(self) -> None:
        """Tell what has changed."""
        while self._waiting:
            with self._lock:
                count = min(TOLD_AT_ONCE, len(self._waiting))
                some = [self._waiting.popleft() for _ in range(count)]
            self._command(partial(self._tell, some))

    def _tell(self, some: list[tuple[int, Change]], fx: Effects, now_ms: int) -> None:
        for at_ms, change in some:
            said: dict[str, str | int] = {
                "alert": change.name,
                "state": "begins" if change.begins else "ends",
                "destination": change.destination,
                "node": self._node,
                "at_ms": at_ms,
            }
            text = change.text[:TEXT_MAX]
            self._engine.publish_own(TOPIC + change.name, said, text, now_ms, fx)
