"""Lock statistics: how long the engine's lock is held at a time, so that a hold that is too long is
seen.

Time on the wall counts what the holder waits for, as the interpreter or a processor, too; time on
the processor is its own. Four readings of the clocks cost a microsecond a hold.
"""

from collections import Counter
from collections.abc import Sequence
from time import perf_counter, thread_time
from typing import Any

from hms.engine.effects import Effects
from hms.server.batch_portions import Command, name_of
from hms.wire.frames import Kind

__all__ = ["LONG_S", "Holder", "LockStatistics"]

Holder = Sequence[Command] | str
"""Who held the lock: the commands of a portion, or a name."""

LONG_S = 0.05
"""Nobody should hold the lock longer."""


class LockStatistics:
    """The holds since boot; told and asked under the lock."""

    __slots__ = (
        "_count",
        "_cpu_s",
        "_long_count",
        "_longest_by",
        "_longest_of",
        "_longest_s",
    )

    def __init__(self) -> None:
        self._count = self._long_count = 0
        self._longest_s = self._cpu_s = 0.0
        self._longest_by = self._longest_of = ""

    @property
    def count(self) -> int:
        """How often it was taken; every thread may ask."""
        return self._count

    def ended(
        self, begun_s: float, cpu_begun_s: float, by: Holder, fx: Effects | None = None
    ) -> None:
        """It is given back now; it was taken when perf_counter() and thread_time() said so. fx:
        what came of it."""
        held_s, cpu_s = perf_counter() - begun_s, thread_time() - cpu_begun_s
        self._count += 1
        self._longest_s = max(self._longest_s, held_s)
        if cpu_s > self._cpu_s:
            self._cpu_s, self._longest_by = cpu_s, by if isinstance(by, str) else name_of(by[-1])
            self._longest_of = _described(by, fx)
        if held_s > LONG_S:
            self._long_count += 1

    def describe(self) -> dict[str, Any]:
        """For `status`: how often, how long at most, on the processor, by whom and with what,
        and how often too long."""
        return {
            "lock_holds": self._count,
            "lock_held_max_ms": round(self._longest_s * 1000, 1),
            "lock_held_max_cpu_ms": round(self._cpu_s * 1000, 1),
            "lock_held_max_by": self._longest_by,
            "lock_held_max_of": self._longest_of,
            "lock_holds_over_50_ms": self._long_count,
        }


def _described(by: Holder, fx: Effects | None) -> str:
    """How much there was to do, and what came of it; asked for the longest hold only."""
    said = []
    if not isinstance(by, str):
        kinds = Counter(map(name_of, by))
        said = [f"{count} {name}" for name, count in kinds.items()]
        sends = [head for envelope, head, _ in by if envelope.kind is Kind.SEND]
        count = sum([head.message_count for head in sends if not isinstance(head, Exception)])
        said += [f"{count} messages", f"{sum([len(payload) for *_, payload in by])} bytes"]
    if fx is not None:
        said += [f"{len(fx.records)} records", f"{len(fx.out)} effects"]
    return ", ".join(said)
