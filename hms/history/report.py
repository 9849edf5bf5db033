"""Counts of what happened, read straight from the log: no Spark, no Java, no waiting for them."""

from collections import Counter
from dataclasses import dataclass

from hms.history.scan import PathName, plan, read_part
from hms.history.scope import Scope

__all__ = ["EventCount", "count_events"]


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often something happened at a destination."""

    destination: str
    destination_kind: str
    event: str
    count: int


def count_events(path: PathName, scope: Scope | None = None) -> list[EventCount]:
    """The events of a store's history, counted by destination and kind of event, in order of names.

    path: the store's directory. Raises StoreUnavailable, StoreCorrupt or SelectorSyntaxError.
    """
    scope = scope or Scope()
    counts: Counter[tuple[str, str, str]] = Counter()
    for part in plan(path, scope):
        for batch in read_part(part, scope, ()):
            counts.update(
                [(e.destination or "?", e.destination_kind or "?", e.event) for e in batch]
            )
    return [EventCount(*key, count) for key, count in sorted(counts.items())]
