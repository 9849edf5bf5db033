"""Histograms: how long something took, in buckets that a scrape reads.

observe() is called by one thread at a time, which the caller sees to: under the engine's lock, or
by the one that leads the log. A reader may see a count that its sum does not have yet.
"""

from bisect import bisect_left
from typing import Any

__all__ = ["BATCH_RECORDS", "SECONDS", "Histogram"]

SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
BATCH_RECORDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class Histogram:
    """Counts by upper bound, the last one without any, and the sum of what was counted."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more. The way of a message does the same in place, for a call less."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def describe(self) -> dict[str, Any]:
        """Bounds, the count of each bucket by itself, and the sum of all values."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.total}
