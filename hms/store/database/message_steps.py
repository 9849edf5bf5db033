"""What happened to a message at one place, folded into one change of its row.

A row is OUT or it waits. The database knows which, the fold does not, so a run of steps is worked
out for both cases and the database takes the one that holds.
"""

from functools import lru_cache

from hms.records import RecordType
from hms.records.message_states import STEPS, Step

__all__ = ["LETTERS", "outcome"]

LETTERS = {RecordType.DELIVERED: "D", RecordType.FAILED: "F", RecordType.RELEASED: "R"}
"""A run of steps is a short text, which is a key of the cache."""
_STEPS = {letter: STEPS[kind] for kind, letter in LETTERS.items()}


@lru_cache(maxsize=4096)
def outcome(steps: str, is_out: bool) -> Step:
    """The steps in their order, applied to a row that is out, or waits."""
    deliveries = attempts = 0
    keeps_due = True
    for letter in steps:
        step = _STEPS[letter][is_out]
        is_out = step.is_out
        deliveries += step.deliveries
        attempts += step.attempts
        keeps_due = keeps_due and step.keeps_due
    return Step(is_out, deliveries, attempts, keeps_due)
