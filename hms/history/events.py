"""Events: one row for each thing that happened to a message, decoded from the log's records.

A record of the log tells of a whole batch or of ranges of messages; here it becomes one `Event` per
message. The offset of an event is the log sequence number of its record plus its place in it, so
every event has a number of its own, and a row that is read again has the number it had before.

Place, name and time of what happened are the same for all messages of a record. So a record that
nobody asked for is dropped before anything in it is unpacked (`wants`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from field_buffer.packing import Row
from hms.history.heads import HEAD_FIELDS, NO_FIELDS, head_fields
from hms.records import (
    Cause,
    Definition,
    RecordType,
    Sent,
    decode_definition,
    decode_dictionary,
    decode_group,
    decode_ranges,
    decode_sent,
)

__all__ = ["COLUMNS", "EVENT_NAMES", "Event", "EventDecoder", "Place"]

COLUMNS = {
    "offset": "bigint",
    "event": "string",
    "time": "timestamp",
    "message_id": "string",
    "destination": "string",
    "destination_kind": "string",
    "subscription": "string",
    "priority": "int",
    "persistent": "boolean",
    "timestamp": "timestamp",
    "expiration": "timestamp",
    "kind": "string",
    "correlation_id": "string",
    "reply_to": "string",
    "type": "string",
    "properties": "map<string,string>",
    "string_properties": "map<string,string>",
    "long_properties": "map<string,bigint>",
    "double_properties": "map<string,double>",
    "boolean_properties": "map<string,boolean>",
    "head": "binary",
    "body": "binary",
    "transaction": "string",
    "cause": "string",
}
"""Every column and its Spark type, in order."""

KINDS = ("carray", "text", "map", "stream", "object", "file", "none")
"""Names of the body kinds, by their number."""

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
EVENT_NAMES = ("sent", "forwarded", *_PLAIN_EVENTS.values(), *dict.fromkeys(_DISCARDS.values()))

_TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, where timestamps of Python and Spark end."""


class Place(NamedTuple):
    """Where a message was: a queue, a topic, or a durable subscription on a topic."""

    destination: str | None
    kind: str | None
    subscription: str | None = None


class Event(NamedTuple):
    """A row of the history. Times are milliseconds since 1970 UTC, in Spark timestamps.

    timestamp: when the message was sent; for all but forwarded ones the time of its sent event.
    properties and what follows from the head are empty where there is no head: only sent and
    forwarded rows have one. persistent is always true, because the log holds nothing else.
    """

    offset: int
    event: str
    time: int
    message_id: str
    destination: str | None
    destination_kind: str | None
    subscription: str | None
    priority: int | None = None
    persistent: bool = True
    timestamp: int | None = None
    expiration: int | None = None
    kind: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    properties: Mapping[str, str] | None = None
    string_properties: Mapping[str, str] | None = None
    long_properties: Mapping[str, int] | None = None
    double_properties: Mapping[str, float] | None = None
    boolean_properties: Mapping[str, bool] | None = None
    head: bytes | None = None
    body: bytes | None = None
    transaction: str | None = None
    cause: str | None = None


Wants = Callable[[str, Place, int], bool]
"""Whether events of that name, at that place and time (ms), are asked for."""


class _Commit(NamedTuple):
    """The group that a record stands in; transaction is None for one of the node's own."""

    transaction: str | None
    at_ms: int


class EventDecoder:
    """Turns records into events; remembers the definitions that records refer to by number.

    columns: those that must be filled. Of the others HEAD_FIELDS, head and body stay empty.
    """

    def __init__(
        self, wants: Wants | None = None, columns: Collection[str] = Event._fields
    ) -> None:
        self._wants = wants
        self._with_fields = not set(HEAD_FIELDS).isdisjoint(columns)
        self._with_head = "head" in columns
        self._with_body = "body" in columns
        self._definitions: dict[int, Definition] = {}

    def decode(
        self, lsn: int, record_type: int, payload: bytes | memoryview, commit: _Commit | None = None
    ) -> Iterator[Event]:
        """The events of one record; none for a record that is not about messages."""
        if record_type == RecordType.SENT:
            yield from self._sent(lsn, decode_sent(payload), commit)
        elif record_type == RecordType.GROUP:
            yield from self._group(lsn, payload)
        elif record_type == RecordType.DISCARDED or record_type in _PLAIN_EVENTS:
            yield from self._ranges(lsn, RecordType(record_type), payload, commit)
        elif record_type == RecordType.DICTIONARY:
            self._definitions.update((d.number, d) for d in decode_dictionary(payload).definitions)
        elif record_type == RecordType.DEFINED:
            definition = decode_definition(payload)
            self._definitions[definition.number] = definition

    def _group(self, lsn: int, payload: bytes | memoryview) -> Iterator[Event]:
        group = decode_group(payload)
        name = f"{group.client_uid:016x}-{group.session:x}-{group.commit:x}"
        commit = _Commit(name if group.commit else None, group.at_ms)
        for record in group.records:
            yield from self.decode(lsn, record.type, record.parts[0], commit)
            lsn += record.events

    def _ranges(
        self,
        lsn: int,
        record_type: RecordType,
        payload: bytes | memoryview,
        commit: _Commit | None,
    ) -> Iterator[Event]:
        record = decode_ranges(payload)
        event = _PLAIN_EVENTS.get(record_type) or _DISCARDS[record.cause]
        place = self._place(record.number)
        if self._wants is not None and not self._wants(event, place, record.at_ms):
            return
        cause = record.cause.name.lower() if record.cause else None
        transaction = commit.transaction if commit else None
        for first, last in record.ranges:
            for message_id in range(first, last + 1):
                name = f"{message_id:012x}"
                yield Event(
                    lsn, event, record.at_ms, name, *place, transaction=transaction, cause=cause
                )
                lsn += 1

    def _sent(self, lsn: int, record: Sent, commit: _Commit | None) -> Iterator[Event]:
        event = "forwarded" if record.is_forwarded else "sent"
        # A forwarded message keeps the time at which its sender sent it; the event is later.
        at_ms = commit.at_ms if commit and record.is_forwarded else record.timestamp_ms
        place = self._place(record.destination)
        if self._wants is not None and not self._wants(event, place, at_ms):
            return
        shared = (event, at_ms, place, commit.transaction if commit else None)
        rows = record.rows()
        for i, (row, payload) in enumerate(zip(rows, self._payloads(record, rows), strict=True)):
            yield self._sent_row(lsn + i, record, record.first_message_id + i, row, payload, shared)

    def _sent_row(
        self,
        offset: int,
        record: Sent,
        message_id: int,
        row: Row,
        payload: bytes,
        shared: tuple[str, int, Place, str | None],
    ) -> Event:
        event, at_ms, place, transaction = shared
        head = payload[: row.head_bytes]
        is_persistent = True
        return Event._make(
            (
                *(offset, event, at_ms, f"{message_id:012x}", *place, row.priority, is_persistent),
                *(record.timestamp_ms, _expiration(record.timestamp_ms, row.ttl_ms)),
                KINDS[row.kind] if row.kind < len(KINDS) else None,
                *(head_fields(head) if self._with_fields else NO_FIELDS),
                head if self._with_head else None,
                payload[row.head_bytes :] if self._with_body else None,
                *(transaction, None),
            )
        )

    def _payloads(self, record: Sent, rows: list[Row]) -> list[bytes]:
        if self._with_fields or self._with_head or self._with_body:
            return record.payloads(rows)
        return [b""] * len(rows)

    def _place(self, number: int) -> Place:
        found = self._definitions.get(number)
        if found is None:
            return Place(None, None)
        if found.kind != "subscription":
            return Place(found.name, found.kind)
        topic = self._definitions.get(found.topic)
        return Place(topic.name if topic else None, "topic", found.name)


def _expiration(timestamp_ms: int, ttl_ms: int) -> int | None:
    expires_at_ms = timestamp_ms + ttl_ms
    return expires_at_ms if ttl_ms and expires_at_ms <= _TIME_MS_MAX else None
