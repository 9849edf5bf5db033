"""Figures of destinations for metrics: sums over all of them, and a row for each that is asked for.

The sums are kept (counters.py). A pass for the rows looks at so many places under one hold of the
lock (operation_slices.py).
"""

from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from operator import attrgetter
from typing import Any

from hms.engine.admin.counters import COUNTED, Totals
from hms.engine.queue.dead_letters import DeadReason
from hms.engine.queue.destinations import SCHEDULED, Queue, Retained, Subscription, Topic
from hms.engine.state import State

__all__ = ["COLUMNS", "FiguresPass", "row_of"]

FIGURED_AT_ONCE = 500
"""Places that may get a row: 2 ms."""
COLUMNS = (
    *("destination", "kind", "messages", "in_flight", "delayed", "bytes", "oldest_ms"),
    *("consumers", "producers", "blocked_sends", "paused", "delivered_ms", *COUNTED),
)
PATTERNS_MAX = 100
TEMPORARY = "HMS.TEMP."
TEMPORARIES = f"{TEMPORARY}*"
"""What all temporary destinations of a kind are called together: each has a name that is never
seen again."""


class FiguresPass:
    """Totals, and a walk over the durable places if rows are asked for. names: patterns of the
    destinations that get a row of their own, with blanks between; limit: so many rows."""

    def __init__(self, state: State, names: str = "", limit: int = 0) -> None:
        self._state = state
        self._patterns = [pattern.split("*") for pattern in names.split()[:PATTERNS_MAX]]
        self._limit = limit
        self._rest = iter(_places(state) if self._patterns else ())
        self._rows: list[list[Any]] = []
        self._together = {kind: _none_of(state, kind) for kind in state.temporaries_gone}
        self._left_out = 0

    def go_on(self) -> bool:
        """A slice; whether there is more."""
        some = list(islice(self._rest, FIGURED_AT_ONCE))
        self._list([place for place in some if place.kind not in _UNSEEN])
        return len(some) == FIGURED_AT_ONCE

    def answer(self) -> dict[str, Any]:
        """What was found, when there is no more."""
        return {
            "durable": _plain(self._state.space.totals[True]),
            "passing": _plain(self._state.space.totals[False]),
            "columns": list(COLUMNS),
            "rows": self._rows + self._topics() + self._temporaries(),
            "left_out": self._left_out,
        }

    def _list(self, places: list[Queue | Subscription]) -> None:
        """Rows of those that are wanted."""
        for place in places:
            if place.name.startswith(TEMPORARY):
                _add(self._together["queue"], row_of(self._state, place))
            elif self._is_wanted(place.name):
                if len(self._rows) < self._limit:
                    self._rows.append(row_of(self._state, place))
                else:
                    self._left_out += 1

    def _topics(self) -> list[list[Any]]:
        """Topics have no messages of their own, but producers and what was sent."""
        if not self._patterns:
            return []
        wanted = []
        for topic in self._state.topics.values():
            if topic.name.startswith(TEMPORARY):
                _add(self._together["topic"], _topic_row(topic))
            elif self._is_wanted(topic.name):
                wanted.append(topic)
        room = max(0, self._limit - len(self._rows))
        self._left_out += max(0, len(wanted) - room)
        return [_topic_row(topic) for topic in wanted[:room]]

    def _temporaries(self) -> list[list[Any]]:
        """A row for those of each kind, where there are or were some; behind all others."""
        if not self._is_wanted(TEMPORARIES):
            return []
        return [row for row in self._together.values() if any(row[_NUMBERS:])]

    def _is_wanted(self, name: str) -> bool:
        return any(matches(pieces, name) for pieces in self._patterns)


def _places(state: State) -> list[Queue | Subscription]:
    """Those that get rows; a temporary queue may be in the log and among the others."""
    temporaries = [queue for queue in state.temporaries.values() if not queue.number]
    return [*state.places.values(), *temporaries]


_NUMBERS = COLUMNS.index("messages")
_FIRST, _LAST = COLUMNS.index("oldest_ms"), COLUMNS.index("delivered_ms")
_PAUSED = COLUMNS.index("paused")


def _none_of(state: State, kind: str) -> list[Any]:
    """A row of temporary destinations, of which those that are gone have counters alone."""
    gone = state.temporaries_gone[kind]
    row = dict.fromkeys(COLUMNS, 0) | {"destination": TEMPORARIES, "kind": kind, "paused": False}
    return list((row | {what: getattr(gone, what) for what in COUNTED}).values())


def _add(row: list[Any], other: list[Any]) -> None:
    """One more of them: the oldest message, the last delivery, and sums; whether one is paused is
    not told."""
    times = [one[_FIRST] for one in (row, other) if one[_FIRST]]
    last_ms = max(row[_LAST], other[_LAST])
    for at in range(_NUMBERS, len(row)):
        row[at] += other[at] if at != _PAUSED else 0
    row[_FIRST], row[_LAST] = min(times, default=0), last_ms


def _plain(totals: Totals) -> dict[str, Any]:
    said = asdict(totals)
    said["letters"] = dict.fromkeys([reason.value for reason in DeadReason], 0) | totals.letters
    return said | {"counters": {name: said.pop(name) for name in COUNTED}}


def fits_one_of(patterns: str) -> Callable[[str], bool]:
    """Whether a name fits one of the patterns, with blanks between; without one every name does."""
    wanted = [pattern.split("*") for pattern in patterns.split()[:PATTERNS_MAX]]
    return lambda name: not wanted or any(matches(pieces, name) for pieces in wanted)


def matches(pieces: list[str], name: str) -> bool:
    """Whether a name is made of the pieces of a pattern with anything between them. Each is taken
    where it is found first, so that no pattern costs more than the name is long."""
    if len(pieces) == 1:
        return name == pieces[0]
    first, *between, last = pieces
    if not name.startswith(first):
        return False
    at = len(first)
    for piece in between:
        found = name.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(name) - at >= len(last) and name.endswith(last)


_counts = attrgetter(*COUNTED)
_UNSEEN = (SCHEDULED, Retained.kind)


def row_of(state: State, place: Queue | Subscription) -> list[Any]:
    """The figures of one place, in the order of COLUMNS."""
    line = place.line
    producers, blocked = 0, 0
    if isinstance(place, Queue):
        producers, blocked = place.producers, state.blocked.count(("queue", place.name))
    return [
        place.name,
        place.kind,
        line.waiting_count,
        line.out_count,
        line.delayed_count,
        line.size_bytes,
        oldest_ms(place),
        len(place.consumers),
        producers,
        blocked,
        place.control.paused,
        line.delivered_ms,
        *_counts(line.counters),
    ]


def _topic_row(topic: Topic) -> list[Any]:
    row = dict.fromkeys(COLUMNS, 0) | {"destination": topic.name, "kind": "topic"}
    row |= {"producers": topic.producers, "sent": topic.sent, "paused": topic.control.paused}
    return list(row.values())


def oldest_ms(place: Queue | Subscription) -> int:
    """When the oldest message that waits was sent; 0 when none does."""
    line = place.line
    if not line.waiting_count:
        return 0
    return min((message.timestamp_ms for message in line.firsts()), default=0)
