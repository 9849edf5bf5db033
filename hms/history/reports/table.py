"""What a report is, how it is asked for, and what reports share."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hms.history.reading import narrow
from hms.history.replay import source_name
from hms.history.scan import PathName, plan
from hms.history.scope import as_time_ms, parse_destination, parse_scope
from hms.history.wanted import When, time_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "ARRIVALS",
    "ENDS",
    "Asked",
    "Curve",
    "Point",
    "Report",
    "bucket_ms",
    "place",
    "steps",
    "time_of",
    "wanted_places",
]

ARRIVALS = ("sent", "forwarded")
"""Events by which a message comes to a place."""
ENDS = ("acknowledged", "expired", "dead_lettered", "purged", "moved", "discarded")
"""Events by which it leaves one."""

POINTS_MAX = 240
_STEPS_S = (1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)

Point = tuple[int, float]
"""Milliseconds since 1970 UTC, and a value."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over time."""

    title: str
    unit: str
    lines: dict[str, list[Point]]


@dataclass(frozen=True, slots=True)
class Report:
    """A table, curves, and remarks. is_good: nothing in it is wrong."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    curves: list[Curve] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_good: bool = True

    def as_dicts(self) -> list[dict[str, Any]]:
        """The rows with their names, for programs."""
        names = [name.replace(" ", "_").replace("-", "_") for name in self.head]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about. destination: as of the source; address: of a node to compare with."""

    spark: "SparkSession"
    path: PathName
    destination: str = ""
    from_: When = None
    to: When = None
    address: str | None = None

    def events(self, *columns: str, is_whole: bool = False, **options: str) -> "DataFrame":
        """Columns of the events in question; is_whole: of all places, from the beginning on."""
        given = {
            "destination": "" if is_whole else self.destination,
            "from": "" if is_whole else time_text(self.from_),
            "to": time_text(self.to),
            **options,
        }
        source, wanted = source_name(self.path), {k: v for k, v in given.items() if v}
        plan(source, parse_scope(wanted))  # our own errors, before Spark wraps them
        return narrow(self.spark, source, columns, wanted)

    @property
    def from_ms(self) -> int | None:
        """The beginning."""
        if isinstance(self.from_, datetime):
            return as_time_ms(self.from_)
        return parse_scope({"from": str(self.from_)}).from_ms if self.from_ is not None else None


def wanted_places(destination: str) -> str:
    """A regular expression for the places (queue:NAME, subscription:NAME) that are asked for; a
    topic stands for every subscription."""
    found = []
    for kind, name in map(parse_destination, filter(None, destination.split(","))):
        pattern = ".*".join(map(re.escape, name.strip().split("*")))
        found += [f"queue:{pattern}"] if kind != "topic" else ["subscription:.*"]
        found += [f"subscription:{pattern}"] if kind is None else []
    return f"^({'|'.join(found)})$" if found else ""


def place() -> "Column":
    """The place of a row: queue:NAME, topic:NAME, or topic:NAME/SUBSCRIPTION."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    name = F.concat_ws(":", "destination_kind", "destination")
    return F.concat_ws("/", name, "subscription")


def bucket_ms(span_ms: int) -> int:
    """The width of a step in time, so that a curve has no more points than can be seen."""
    for step_s in _STEPS_S:
        if span_ms <= step_s * 1000 * POINTS_MAX:
            return step_s * 1000
    return _STEPS_S[-1] * 1000


def time_of(ms: int | None) -> str:
    """A time as people read it."""
    if ms is None:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def steps(first_ms: int, last_ms: int, step_ms: int) -> Sequence[int]:
    """The beginning of every step from first to last."""
    return range(first_ms - first_ms % step_ms, last_ms + 1, step_ms)
