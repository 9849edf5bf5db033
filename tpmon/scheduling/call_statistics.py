"""Tallies: how many calls there were, how long they took, how they failed. No clock.

Latencies fall into buckets of which each is a quarter wider than the one before, so a percentile is
at most so much too high.
"""

from bisect import bisect_left
from collections import deque
from typing import Any

__all__ = ["Tally"]

BUCKETS = 96
GROWTH = 1.25
RATE_S = 10
ERROR_CHARACTERS_MAX = 200

_BOUNDS_US = [int(10 * GROWTH**n) for n in range(BUCKETS)]
_SHOWN_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Few: each service has a series for each."""
_SHOWN_AT = [bisect_left(_SHOWN_S, bound / 1e6) for bound in _BOUNDS_US]


class Tally:
    """Counts of one service or server."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.last_error = ""
        self._timed = self._elapsed_us = 0
        self._buckets = [0] * BUCKETS
        self._seen: deque[tuple[int, int]] = deque()

    def ended(self, elapsed_us: int) -> None:
        """A call came back; how long the service ran."""
        self.calls += 1
        self._timed += 1
        self._elapsed_us += elapsed_us
        self._buckets[min(bisect_left(_BOUNDS_US, elapsed_us), BUCKETS - 1)] += 1

    def broke_off(self) -> None:
        """A call ended without its server's doing."""
        self.calls += 1

    def failed_with(self, error: str) -> None:
        """The last one failed."""
        self.failed += 1
        self.last_error = error[:ERROR_CHARACTERS_MAX]

    def tick(self, now_ms: int) -> None:
        """Look at the count, for the rate."""
        self._seen.append((now_ms, self.calls))
        while len(self._seen) > 1 and now_ms - self._seen[0][0] > RATE_S * 1000:
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        """Calls a second, of the last seconds."""
        if len(self._seen) < 2:  # noqa: PLR2004 - two looks make a span
            return 0.0
        (first_ms, before), (last_ms, after) = self._seen[0], self._seen[-1]
        return round((after - before) * 1000 / (last_ms - first_ms), 1) if last_ms > first_ms else 0

    def percentile_ms(self, share: float) -> float:
        """The run time that this share of the calls did not pass."""
        left = share * self._timed
        for bound, count in zip(_BOUNDS_US, self._buckets, strict=True):
            left -= count
            if count and left <= 0:
                return round(bound / 1000, 3)
        return 0.0

    def histogram(self) -> dict[str, Any]:
        """For metrics: bounds in seconds, the count of each by itself, and the sum. A call counts
        as long as its bucket, so at most a quarter too long; the sum is exact."""
        counts = [0] * (len(_SHOWN_S) + 1)
        for at, count in zip(_SHOWN_AT, self._buckets, strict=True):
            counts[at] += count
        return {"bounds": list(_SHOWN_S), "counts": counts, "sum": self._elapsed_us / 1e6}

    def describe(self) -> dict[str, Any]:
        """For operators."""
        return {
            "calls": self.calls,
            "failed": self.failed,
            "per_s": self.per_s,
            "p50_ms": self.percentile_ms(0.5),
            "p95_ms": self.percentile_ms(0.95),
            "p99_ms": self.percentile_ms(0.99),
            "last_error": self.last_error,
        }
