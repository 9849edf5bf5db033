"""Steps: what happened to a message at one place, folded into one change of its row.

A row is OUT or it waits. The database knows which, the fold does not, so a run of steps is worked
out for both cases and the database takes the one that holds. The rules are those of the engine's
recovery: a delivery of what is out already means that its consumer was lost in between.
"""

from functools import lru_cache
from typing import NamedTuple

DELIVERED, FAILED, RELEASED = "D", "F", "R"


class Outcome(NamedTuple):
    """What becomes of a row; the counts are added to what stands there."""

    is_out: bool
    deliveries: int
    attempts: int
    keeps_due: bool


@lru_cache(maxsize=4096)
def outcome(steps: str, is_out: bool) -> Outcome:
    """The steps in their order, applied to a row that is out, or waits."""
    deliveries = attempts = 0
    keeps_due = True
    for step in steps:
        if step == DELIVERED:
            deliveries += is_out
            keeps_due = keeps_due and is_out
            is_out = True
        elif is_out:
            deliveries += step == FAILED
            attempts += step == FAILED
            is_out = False
    return Outcome(is_out, deliveries, attempts, keeps_due)
