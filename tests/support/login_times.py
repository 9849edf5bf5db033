"""How long refused logins take, of two names in an order that a seed gives: Welch's t of both, and
how their times are spread."""

import math
import os
import random
import time
from collections import Counter
from statistics import mean, variance

import pytest

import hms

__all__ = ["ATTACKS_FULL", "compared"]

ATTACKS_FULL = os.environ.get("HMS_ATTACKS") == "full"
EACH = int(os.environ.get("HMS_LOGINS", "5000" if ATTACKS_FULL else "3"))
STEP_MS = 20
"""The width of a class of the histogram: fail_delay_ms of the test's node."""


def compared(address, one, other):
    """The figures; the t of them is judged in the long form alone, as it hangs on the clock."""
    seed = int(os.environ.get("HMS_SEED", "1"))
    chance, times = random.Random(seed), {one: [], other: []}
    for _ in range(EACH):
        for name in chance.sample([one, other], 2):
            began = time.perf_counter()
            with pytest.raises(hms.LoginRefused):
                hms.connect(address, user=name, password="wrong")
            times[name].append((time.perf_counter() - began) * 1000)
    first, second = times.values()
    spread = math.sqrt((variance(first) + variance(second)) / EACH)
    figures = {
        "seed": seed,
        "each": EACH,
        "t": round(abs(mean(first) - mean(second)) / spread, 2),
        "mean_ms": round(mean(first), 1),
    }
    for name, found in times.items():
        classes = Counter(int(one // STEP_MS) * STEP_MS for one in found)
        figures[name] = ",".join(f"{at}ms:{count}" for at, count in sorted(classes.items()))
    return figures
