"""The most that the mixed load comes to: the rate is raised until what is due does not arrive, or
arrives late.

Throughput alone does not tell: a node that is overloaded does more at once and so has less work
with each message, and goes on like that for long, with latencies of seconds.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["FOLLOWED", "P99_MS_MAX", "Kept", "find_maximum"]

FOLLOWED = 0.97
"""A step is kept up with when this share of its rate arrives, until its last message,"""
P99_MS_MAX = 25.0
"""and 99 of 100 messages of each kind in that time. At 50 ms the node still follows, and 70 % of
that rate takes nine tenths of the processors: now and then a message takes more than 100 ms."""
_RAISE = 1.4
_HALVINGS = 2
_LONGER = 4
"""The maximum must be kept up with for so many steps on end: a few seconds are too kind."""
_LOWER = 0.9
_RATE_MAX = 1_000_000.0


class Kept(NamedTuple):
    """How a rate was kept up with; p99_ms: of the kind of message that is worst."""

    share: float
    p99_ms: float

    @property
    def is_enough(self) -> bool:
        """It may be the maximum."""
        return self.share >= FOLLOWED and self.p99_ms <= P99_MS_MAX


Step = Callable[[float, int], Kept]
"""Runs a rate for so many steps on end."""


def find_maximum(step: Step, start: float, say: Callable[[str], object]) -> float:
    """The highest rate that was kept up with; 0 when not even the first one was."""

    def is_followed(rate: float, steps: int = 1) -> bool:
        """It is tried again once: another process may have had the machine for a moment."""
        for _ in range(2):
            kept = step(rate, steps)
            say(
                f"{rate:10,.0f} a second: {kept.share:.3f} of it achieved, p99 {kept.p99_ms:.1f} ms"
            )
            if kept.is_enough:
                return True
        return False

    good, rate = 0.0, start
    while rate <= _RATE_MAX and is_followed(rate):
        good, rate = rate, rate * _RAISE
    bad = rate
    for _ in range(_HALVINGS if good else 0):
        rate = math.sqrt(good * bad)
        good, bad = (rate, bad) if is_followed(rate) else (good, rate)
    while good and not is_followed(good, _LONGER):
        good = good * _LOWER if good > start else 0.0
    return good
