"""What happened to a message at one place, folded into one change of its row.

A row is OUT or it waits. The database knows which, the fold does not, so a run of steps is worked
out for both cases and the database takes the one that holds.
"""

import enum
from functools import lru_cache
from typing import NamedTuple

from hms.records import RecordType
from hms.records.message_states import STEPS

__all__ = ["DELAYED", "LETTERS", "Due", "Outcome", "outcome"]

LETTERS = {RecordType.DELIVERED: "D", RecordType.FAILED: "F", RecordType.RELEASED: "R"}
"""A run of steps is a short text, which is a key of the cache."""
DELAYED = {"F": "f", "R": "r"}
"""The letters of returns that say when the message is due."""
_STEPS = {letter: STEPS[kind] for kind, letter in LETTERS.items()}
_STEPS |= {told: _STEPS[letter] for letter, told in DELAYED.items()}


class Due(enum.Enum):
    """When a message is due after a run of steps: as before, at no time, or as the last return of
    the run told."""

    KEPT = enum.auto()
    NEVER = enum.auto()
    TOLD = enum.auto()


class Outcome(NamedTuple):
    """What becomes of a row; deliveries and attempts are added to what stands there."""

    is_out: bool
    deliveries: int
    attempts: int
    due: Due


@lru_cache(maxsize=4096)
def outcome(steps: str, is_out: bool) -> Outcome:
    """The steps in their order, applied to a row that is out, or waits."""
    deliveries = attempts = 0
    due = Due.KEPT
    for letter in steps:
        step = _STEPS[letter][is_out]
        if is_out and letter in DELAYED.values():
            due = Due.TOLD
        elif not step.keeps_due:
            due = Due.NEVER
        is_out = step.is_out
        deliveries += step.deliveries
        attempts += step.attempts
    return Outcome(is_out, deliveries, attempts, due)
