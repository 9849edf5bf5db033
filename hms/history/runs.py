"""Runs: what a record of the log tells, as stretches of events that have all but their ids alike.

A record tells of a whole batch or of ranges of messages. The offset of an event is the log sequence
number of its record plus its place in it, so every event has a number of its own, and one that is
read again has the number it had before. Place, name and time of what happened are the same for all
messages of a record, so a record that nobody asked for is dropped before it is unpacked (`wants`).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hms.records import (
    Cause,
    Definition,
    Record,
    RecordType,
    Sent,
    bits,
    decode_definition,
    decode_dictionary,
    decode_ended,
    decode_group,
    decode_heuristic,
    decode_ranges,
    decode_sent,
)
from hms.wire.xid import Xid

__all__ = ["EVENT_NAMES", "Place", "Run", "RunDecoder"]

_PLAIN_EVENTS = {
    RecordType.DELIVERED: "delivered",
    RecordType.ACKNOWLEDGED: "acknowledged",
    RecordType.FAILED: "failed",
    RecordType.RELEASED: "released",
}
_DISCARDS = dict.fromkeys(Cause, "discarded") | {
    Cause.EXPIRED: "expired",
    Cause.DEAD_LETTERED: "dead_lettered",
    Cause.PURGED: "purged",
    Cause.CLEARED: "purged",
    Cause.MOVED: "moved",
}
_OF_RANGES = {*_PLAIN_EVENTS, RecordType.DISCARDED}
_DEFINING = {RecordType.DICTIONARY, RecordType.DEFINED}
EVENT_NAMES = ("sent", "forwarded", *_PLAIN_EVENTS.values(), *dict.fromkeys(_DISCARDS.values()))


class Place(NamedTuple):
    """Where a message was: a queue, a topic, or a durable subscription on a topic."""

    destination: str | None
    kind: str | None
    subscription: str | None = None


class Run(NamedTuple):
    """Events with consecutive offsets and consecutive message ids, from first_id on.

    sent: the record, of a run of sent or forwarded messages; skipped: how many of its messages
    stand before the run's first one; taken: of a topic's, (name, bitmap) of each durable
    subscription in which they were put; operation: the number of the order in the audit.
    """

    offset: int
    size: int
    event: str
    time: int
    place: Place
    first_id: int
    transaction: str | None = None
    cause: str | None = None
    sent: Sent | None = None
    skipped: int = 0
    taken: tuple[tuple[str, bytes], ...] = ()
    operation: int | None = None

    def subscriptions(self) -> list[list[str] | None]:
        """The names of the subscriptions that took each of its messages; None outside of topics."""
        if self.sent is None or self.place.kind != "topic":
            return [None] * self.size
        columns = [list(bits(bitmap, self.sent.message_count)) for _, bitmap in self.taken]
        wanted = range(self.skipped, self.skipped + self.size)
        names = [name for name, _ in self.taken]
        return [
            [name for name, flags in zip(names, columns, strict=True) if flags[i]] for i in wanted
        ]

    def between(self, first: int, until: int | None) -> "Run | None":
        """What of it has offsets from first to until, excluded."""
        left = max(0, first - self.offset)
        right = 0 if until is None else max(0, self.offset + self.size - until)
        if left + right >= self.size:
            return None
        return self._replace(
            offset=self.offset + left,
            size=self.size - left - right,
            first_id=self.first_id + left,
            skipped=self.skipped + left,
        )


Wants = Callable[[str, Place, int], bool]
"""Whether events of that name, at that place and time (ms), are asked for."""


class _Commit(NamedTuple):
    """The group that a record stands in; transaction is None for one of the node's own; cause says
    why its messages came; operation: who ordered it."""

    transaction: str | None
    at_ms: int
    cause: str | None = None
    operation: int | None = None


class RunDecoder:
    """Turns records into runs; remembers the definitions that records refer to by number."""

    def __init__(self, wants: Wants | None = None) -> None:
        self._wants = wants
        self._places: dict[int, Place] = {}
        self._definitions: dict[int, Definition] = {}

    def runs(
        self, lsn: int, record_type: int, payload: bytes | memoryview, commit: _Commit | None = None
    ) -> Iterator[Run]:
        """The runs of one record; none for a record that is not about messages."""
        if record_type == RecordType.SENT:
            yield from self._sent(lsn, decode_sent(payload), commit)
        elif record_type == RecordType.GROUP:
            yield from self._group(lsn, payload)
        elif record_type in _OF_RANGES:
            yield from self._ranges(lsn, RecordType(record_type), payload, commit)
        elif record_type in _DEFINING:
            self.define(record_type, payload)

    def define(self, record_type: int, payload: bytes | memoryview) -> None:
        """Remember what a record defines, if it does."""
        if record_type not in _DEFINING:
            return
        if record_type == RecordType.DICTIONARY:
            told = decode_dictionary(payload).definitions
        else:
            told = [decode_definition(payload)]
        self._definitions.update((definition.number, definition) for definition in told)
        self._places.clear()

    def _group(self, lsn: int, payload: bytes | memoryview) -> Iterator[Run]:
        group = decode_group(payload)
        name = f"{group.client_uid:016x}-{group.session:x}-{group.commit:x}"
        # What another node offered was sent there: here it came by the move.
        is_moved = any(record.type == RecordType.ARRIVED for record in group.records)
        told = name if group.commit else None, group.at_ms, "moved" if is_moved else None
        commit = _Commit(*told, group.operation)
        for record in group.records:
            commit = _named(record, commit)
            yield from self.runs(lsn, record.type, record.parts[0], commit)
            lsn += record.events

    def _ranges(
        self,
        lsn: int,
        record_type: RecordType,
        payload: bytes | memoryview,
        commit: _Commit | None,
    ) -> Iterator[Run]:
        record = decode_ranges(payload)
        event = _PLAIN_EVENTS.get(record_type) or _DISCARDS[record.cause]
        place = self._place(record.number)
        if self._wants is not None and not self._wants(event, place, record.at_ms):
            return
        cause = record.cause.name.lower() if record.cause else None
        transaction = commit.transaction if commit else None
        operation = commit.operation if commit else None
        for first, last in record.ranges:
            count = last - first + 1
            told = lsn, count, event, record.at_ms, place, first, transaction, cause
            yield Run(*told, operation=operation)
            lsn += count

    def _sent(self, lsn: int, record: Sent, commit: _Commit | None) -> Iterator[Run]:
        event = "forwarded" if record.is_forwarded else "sent"
        # What happens in a group happens at its commit, however long ago it was said: times never
        # fall from one record to the next, and segments can be passed over by their time.
        at_ms = commit.at_ms if commit else record.timestamp_ms
        place = self._place(record.destination)
        if self._wants is not None and not self._wants(event, place, at_ms):
            return
        transaction = commit.transaction if commit else None
        taken = self._taken(record) if place.kind == "topic" else ()
        cause = commit.cause if commit else None
        operation = commit.operation if commit else None
        told = (record.first_message_id, transaction, cause, record, 0, taken, operation)
        yield Run(lsn, record.message_count, event, at_ms, place, *told)

    def _taken(self, record: Sent) -> tuple[tuple[str, bytes], ...]:
        both = [(_subscriber(self._place(put.number)), put.bitmap) for put in record.placements]
        return tuple((name, bitmap) for name, bitmap in both if name is not None)

    def _place(self, number: int) -> Place:
        found = self._places.get(number)
        if found is None:
            found = self._places[number] = self._look_up(number)
        return found

    def _look_up(self, number: int) -> Place:
        found = self._definitions.get(number)
        if found is None:
            return Place(None, None)
        if found.kind != "subscription":
            return Place(found.name, found.kind)
        topic = self._definitions.get(found.topic)
        return Place(topic.name if topic else None, "topic", found.name)


def _named(record: Record, commit: _Commit) -> _Commit:
    """What follows the end of a branch in its group took effect by that branch."""
    if record.type == RecordType.ENDED:
        xid = decode_ended(record.parts[0]).xid
    elif record.type == RecordType.HEURISTIC:
        xid = decode_heuristic(record.parts[0]).xid
    else:
        return commit
    return commit._replace(transaction=str(Xid.unpack(xid)))


def _subscriber(place: Place) -> str | None:
    """Who took a publication: a durable subscription, or a queue that one delivers into."""
    if place.subscription is None and place.kind == "queue":
        return f"queue:{place.destination}"
    return place.subscription
