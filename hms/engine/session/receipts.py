"""Receipts: what a transaction acknowledged, made ready for its commit's one record.

To sort 500,000 messages by place and to find the ranges of their ids takes 0.2 s. So before the
commit, or the vote of a branch, slices of it do that; the command itself, whose record has to be
whole, does the rest and puts the ranges in.
"""

from dataclasses import dataclass, field
from itertools import islice

from hms.engine.messages import StoredMessage, sizes_of
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.pending_list import RANGES_PER_RECORD, ids_of
from hms.records import Record, RecordType, ranges

__all__ = ["READIED_AT_ONCE", "Receipts", "Received"]

READIED_AT_ONCE = 8192
"""Messages: 3 ms."""

_Acknowledged = list[tuple[Queue | Subscription, StoredMessage]]


@dataclass(slots=True)
class Received:
    """At one place. spans: the ranges of ids that the log has to know of."""

    place: Queue | Subscription
    messages: list[StoredMessage] = field(default_factory=list)
    size_bytes: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)

    def take(self, messages: list[StoredMessage]) -> None:
        """These too."""
        self.messages += messages
        self.size_bytes += sizes_of(messages)
        if not self.place.is_durable:
            return
        for first, last in ids_of([m for m in messages if m.is_persistent]):
            if self.spans and self.spans[-1][1] + 1 == first:
                self.spans[-1] = self.spans[-1][0], last
                continue
            self.spans.append((first, last))

    def records(self, at_ms: int) -> list[Record]:
        """What says that all of it has left."""
        kind, number, spans = RecordType.ACKNOWLEDGED, self.place.number, self.spans
        each = range(0, len(spans), RANGES_PER_RECORD)
        return [ranges(kind, number, at_ms, spans[n : n + RANGES_PER_RECORD]) for n in each]


class Receipts:
    """Of one list of acknowledged messages, which only grows at its end meanwhile."""

    __slots__ = ("_acknowledged", "_count", "_places")

    def __init__(self, acknowledged: _Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._count = 0
        self._places: dict[int, Received] = {}

    def is_of(self, acknowledged: _Acknowledged) -> bool:
        """Whether it was made for this list."""
        return acknowledged is self._acknowledged

    def ready_some(self) -> bool:
        """A slice, when much is left; whether there was one."""
        if len(self._acknowledged) - self._count <= READIED_AT_ONCE:
            return False
        self._ready(READIED_AT_ONCE)
        return True

    def all(self) -> list[Received]:
        """By place, in the order in which they first come."""
        self._ready(len(self._acknowledged) - self._count)
        return list(self._places.values())

    def _ready(self, count: int) -> None:
        found: dict[int, list[StoredMessage]] = {}
        for place, message in islice(self._acknowledged, self._count, self._count + count):
            messages = found.get(id(place))
            if messages is None:
                messages = found[id(place)] = []
                if id(place) not in self._places:
                    self._places[id(place)] = Received(place)
            messages.append(message)
        self._count += count
        for key, messages in found.items():
            self._places[key].take(messages)
