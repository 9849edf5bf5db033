"""Pushed filters: what Spark's own filters say about time, destination, event, id and offset.

Spark still applies every filter itself; what is taken over here only keeps files, segments and
records from being read. A filter that is not understood costs reading, never a row.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import datasource as ds

from hms.history.scope import Scope, as_time_ms

__all__ = ["narrowed"]

Column = tuple[str, ...]


def narrowed(scope: Scope, filters: "Iterable[ds.Filter]") -> Scope:
    """The scope within all of these filters."""
    for one in filters:
        narrow = _NARROWING.get(type(one), {}).get(".".join(getattr(one, "attribute", ())))
        if narrow is not None:
            scope = narrow(scope, one.value)
    return scope


def _from_offset(scope: Scope, value: Any) -> Scope:
    """Unlike startingOffsets, a filter may begin before what is left."""
    is_going_on = scope.fails_on_loss and scope.first_offset > 0
    first = max(scope.first_offset, int(value))
    return replace(scope, first_offset=first, fails_on_loss=is_going_on)


def _until_offset(scope: Scope, value: Any) -> Scope:
    known = scope.until_offset
    return replace(scope, until_offset=int(value) if known is None else min(known, int(value)))


def _from_time(scope: Scope, value: datetime) -> Scope:
    known, at = scope.from_ms, as_time_ms(value)
    return replace(scope, from_ms=at if known is None else max(known, at))


def _until_time(scope: Scope, value: datetime) -> Scope:
    """A time within a millisecond is rounded up: the end is excluded."""
    known, at = scope.until_ms, as_time_ms(value) + 1
    return replace(scope, until_ms=at if known is None else min(known, at))


def _at_time(scope: Scope, value: datetime) -> Scope:
    return _until_time(_from_time(scope, value), value)


def _events(scope: Scope, values: Iterable[str]) -> Scope:
    wanted = frozenset(values)
    return replace(scope, events=(scope.events & wanted if scope.events else wanted) or _NOTHING)


def _destinations(scope: Scope, values: Iterable[str]) -> Scope:
    wanted = frozenset((None, name) for name in values)
    if scope.patterns:
        return scope
    if not scope.destinations:
        return replace(scope, destinations=wanted or frozenset([(None, "")]))
    both = frozenset(one for one in scope.destinations if (None, one[1]) in wanted)
    return replace(scope, destinations=both or frozenset([(None, "")]))


def _ids(scope: Scope, values: Iterable[str]) -> Scope:
    """Text that is no id is of no message."""
    wanted = frozenset(map(_as_id, values))
    return replace(scope, message_ids=scope.message_ids & wanted if scope.message_ids else wanted)


def _as_id(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1


_NOTHING = frozenset([""])
Narrow = Callable[[Scope, Any], Scope]
_ONE_OF: dict[str, Narrow] = {
    "event": _events,
    "destination": _destinations,
    "message_id": _ids,
}
_EQUAL: dict[str, Narrow] = {
    "event": lambda scope, value: _events(scope, [value]),
    "destination": lambda scope, value: _destinations(scope, [value]),
    "message_id": lambda scope, value: _ids(scope, [value]),
    "time": _at_time,
    "offset": lambda scope, value: _until_offset(_from_offset(scope, value), value + 1),
}
_NARROWING: dict[type, dict[str, Narrow]] = {
    ds.EqualTo: _EQUAL,
    ds.EqualNullSafe: {},
    ds.In: _ONE_OF,
    ds.GreaterThan: {"time": _from_time, "offset": lambda s, v: _from_offset(s, v + 1)},
    ds.GreaterThanOrEqual: {"time": _from_time, "offset": _from_offset},
    ds.LessThan: {"time": _until_time, "offset": _until_offset},
    ds.LessThanOrEqual: {"time": _until_time, "offset": lambda s, v: _until_offset(s, v + 1)},
}
