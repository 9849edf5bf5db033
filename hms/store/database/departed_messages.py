"""Messages that nothing holds any more, and whose rows stay for a while.

A consumer may acknowledge a message while its body is still being read for somebody, for itself
even when it acknowledges nothing (AckMode NONE). So the row goes only a minute after the message
left; what a crash leaves behind is found at the next boot.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

READABLE_S: Final = 60.0
SWEEP_MAX: Final = 4_000
"""So many rows are deleted with one transaction."""


class Departed:
    """Message ids in the order in which they left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: deque[tuple[float, int]] = deque()

    def left(self, ids: Iterable[int], now_s: float) -> None:
        """These left at that moment."""
        with self._lock:
            self._ids.extend([(now_s, id_) for id_ in dict.fromkeys(ids)])

    def nowhere(self, *ids: int) -> None:
        """Rows that may go at once, such as those that a crash has left behind."""
        with self._lock:
            self._ids.extendleft([(-READABLE_S, id_) for id_ in ids])

    def is_due(self, now_s: float) -> bool:
        """Whether rows should be deleted now."""
        with self._lock:
            return bool(self._ids) and self._ids[0][0] + READABLE_S <= now_s

    def take(self, now_s: float) -> list[int]:
        """The ids whose rows may go now, as many as should go at once."""
        taken: list[int] = []
        with self._lock:
            while len(taken) < SWEEP_MAX and self._ids and self._ids[0][0] + READABLE_S <= now_s:
                taken.append(self._ids.popleft()[1])
        return taken
