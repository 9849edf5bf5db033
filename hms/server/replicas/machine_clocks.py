"""By how much the clock of another copy's machine differs from that of this one. For operators;
nothing is decided by it."""

from collections import deque
from typing import Final

__all__ = ["MachineClock"]

KEPT: Final = 10
"""Answers: a clock that was set right is known to be so after so many beats."""
KNOWN_MIN: Final = 3


class MachineClock:
    """Of one copy, as its answers to beats say."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """How long an answer took, and by how much its clock was ahead in the middle of that."""

    def said(self, theirs_ms: int, ours_ms: int, took_s: float) -> None:
        """What the other clock said, on the way of an answer that was asked for took_s before our
        clock said that."""
        self._seen.append((took_s, (theirs_ms - ours_ms) / 1000 + took_s / 2))

    @property
    def ahead_s(self) -> float | None:
        """At least by so much, negative when it is behind; 0 where the way may be all of it. The
        answer that took the least time counts. None until some were heard."""
        if len(self._seen) < KNOWN_MIN:
            return None
        took_s, ahead_s = min(self._seen)
        least_s = max(0.0, abs(ahead_s) - took_s / 2)
        return round(least_s if ahead_s > 0 else -least_s, 3) or 0.0
