"""Holds: how long the engine's lock is held at a time, so that a hold that is too long is seen.

A hold is measured by the clock on the wall, so a thread that waits for the interpreter or for a
processor counts too. Two readings of the clock cost 0.1 µs.
"""

from time import perf_counter
from typing import Any

__all__ = ["LONG_S", "Holds"]

LONG_S = 0.05
"""Nobody should hold the lock longer."""


class Holds:
    """The holds since boot; told and asked under the lock."""

    __slots__ = ("_begun", "_count", "_long_count", "_longest_s")

    def __init__(self) -> None:
        self._begun = 0.0
        self._count = self._long_count = 0
        self._longest_s = 0.0

    def begin(self) -> None:
        """The lock was taken."""
        self._begun = perf_counter()

    def end(self) -> None:
        """It is given back now."""
        held_s = perf_counter() - self._begun
        self._count += 1
        self._longest_s = max(self._longest_s, held_s)
        if held_s > LONG_S:
            self._long_count += 1

    def describe(self) -> dict[str, Any]:
        """For `status`: how often, how long at most, and how often too long."""
        return {
            "lock_holds": self._count,
            "lock_held_max_ms": round(self._longest_s * 1000, 1),
            "lock_holds_over_50_ms": self._long_count,
        }
