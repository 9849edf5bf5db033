"""The most that the mixed load comes to: the rate is raised until what is due does not arrive."""

import math
from collections.abc import Callable

__all__ = ["FOLLOWED", "find_maximum"]

FOLLOWED = 0.97
"""A step is kept up with when this share of its rate arrives, until its last message."""
_RAISE = 1.4
_HALVINGS = 2
_LONGER = 4
"""The maximum must be kept up with for so many steps on end: a few seconds are too kind."""
_LOWER = 0.9
_RATE_MAX = 1_000_000.0

Step = Callable[[float, int], float]
"""Runs a rate for so many steps on end; gives the share that was achieved."""


def find_maximum(step: Step, start: float, say: Callable[[str], object]) -> float:
    """The highest rate that was kept up with; 0 when not even the first one was."""

    def is_followed(rate: float, steps: int = 1) -> bool:
        """It is tried again once: another process may have had the machine for a moment."""
        for _ in range(2):
            share = step(rate, steps)
            say(f"{rate:10,.0f} a second: {share:.3f} of it achieved")
            if share >= FOLLOWED:
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
