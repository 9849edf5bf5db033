"""How long a copy takes to have something synced, from when it was sent until it says so."""

from collections import deque
from typing import Final

__all__ = ["SyncTimes"]

KEPT: Final = 1000
"""Of the last batches."""
MILLI: Final = 1000


class SyncTimes:
    """One copy that has the whole log; its caller sees to one thread at a time."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, float]] = deque(maxlen=KEPT)
        """Marks, and when what ends there was sent."""
        self._taken_s: deque[float] = deque(maxlen=KEPT)

    def sent(self, mark: int, at_s: float) -> None:
        """A batch that ends with the mark is on its way."""
        self._sent.append((mark, at_s))

    def synced(self, mark: int, at_s: float) -> None:
        """The copy has everything up to the mark."""
        while self._sent and self._sent[0][0] <= mark:
            self._taken_s.append(at_s - self._sent.popleft()[1])

    def describe(self) -> dict[str, float] | None:
        """p50 and p99 of the last batches, in ms; None before the first one."""
        if not self._taken_s:
            return None
        taken = sorted(self._taken_s)
        return {name: _at(taken, of) for name, of in (("p50", 0.5), ("p99", 0.99))}


def _at(taken: list[float], of: float) -> float:
    return round(taken[min(len(taken) - 1, int(of * len(taken)))] * MILLI, 3)
