"""A histogram of latencies in a fixed number of buckets, each at most 1/64 wide of what it holds.

An hour of load has millions of latencies; what keeps them must not grow, or its own memory would
disturb what is measured. What a bucket says is its middle, so it errs by less than 1 %.
"""

from array import array
from collections.abc import Mapping

__all__ = ["BUCKETS", "Histogram", "bucket_of", "middle_us"]

_BITS = 6
_PARTS = 1 << _BITS
"""Buckets of each doubling."""
_DOUBLINGS = 22
"""Up to 268 seconds; what took longer is in the last bucket, and in the maximum as it is."""
BUCKETS = _PARTS * (_DOUBLINGS + 1)


def bucket_of(value_us: int) -> int:
    """The bucket of a latency in microseconds."""
    if value_us < _PARTS:
        return max(0, value_us)
    shift = value_us.bit_length() - _BITS - 1
    return min(BUCKETS - 1, (shift << _BITS) + (value_us >> shift))


def middle_us(bucket: int) -> float:
    """The middle of what a bucket holds, in microseconds."""
    if bucket < _PARTS:
        return float(bucket)
    shift = (bucket >> _BITS) - 1
    least = (bucket - (shift << _BITS)) << shift
    return least + ((1 << shift) - 1) / 2


class Histogram:
    """How many latencies fell into each bucket, and the longest."""

    __slots__ = ("_counts", "count", "most_us")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * BUCKETS))
        self.count = self.most_us = 0

    def record(self, value_us: int) -> None:
        """One latency."""
        self._counts[bucket_of(value_us)] += 1
        self.count += 1
        self.most_us = max(self.most_us, value_us)

    def taken(self) -> dict[int, int]:
        """What was recorded, by bucket; the histogram is empty again."""
        found = {bucket: count for bucket, count in enumerate(self._counts) if count}
        for bucket in found:
            self._counts[bucket] = 0
        self.count = self.most_us = 0
        return found

    def add(self, counts: Mapping[int, int], most_us: int) -> None:
        """What another one has recorded."""
        for bucket, count in counts.items():
            self._counts[bucket] += count
            self.count += count
        self.most_us = max(self.most_us, most_us)

    def percentile_us(self, percent: float) -> float:
        """The latency that so many percent did not exceed; 0 when there was none."""
        rank, seen = percent / 100 * self.count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return min(middle_us(bucket), float(self.most_us))
        return 0.0

    def figures_ms(self) -> dict[str, float]:
        """What a table shows of it, in milliseconds."""
        named = {f"p{percent:g}": self.percentile_us(percent) for percent in (50, 99, 99.9)}
        named["max"] = float(self.most_us)
        return {name: round(value / 1000, 3) for name, value in named.items()}
