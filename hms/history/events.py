"""Events: one row for each thing that happened to a message, decoded from the log's records.

A record of the log tells of a whole batch or of ranges of messages; here it becomes one `Event` per
message (see runs).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from hms.history.heads import HEAD_FIELDS, NO_FIELDS, head_fields
from hms.history.runs import EVENT_NAMES, Place, Run, RunDecoder, Wants
from hms.records import Sent
from hms.wire.packed_messages import KIND_COMPRESSED, Row

__all__ = [
    "COLUMNS",
    "EVENT_NAMES",
    "KINDS",
    "TIME_MS_MAX",
    "Event",
    "EventDecoder",
    "Place",
    "expiration_ms",
]

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
    "subscriptions": "array<string>",
    "operation": "bigint",
}
"""Every column and its Spark type, in order."""

_BODIES = ("carray", "text", "map", "stream", "object", "file", "none")
_UNUSED = [f"unknown{number}" for number in range(len(_BODIES), KIND_COMPRESSED)]
KINDS = (*_BODIES, *_UNUSED, *(f"{kind}+compressed" for kind in _BODIES))
"""Names of the body kinds, by their number; the body of a compressed one stays as it was sent, and
hms.client.compression.inflated() makes it what it is."""

TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, where timestamps of Python and Spark end."""


class Event(NamedTuple):
    """A row of the history. Times are milliseconds since 1970 UTC, in Spark timestamps.

    timestamp: when the message was sent; for all but forwarded ones the time of its sent event.
    properties and what follows from the head are empty where there is no head: only sent and
    forwarded rows have one. operation: the number in the audit of the order that did it.
    persistent is always true, because the log holds nothing else.
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
    subscriptions: list[str] | None = None
    operation: int | None = None


class EventDecoder:
    """Turns records into events.

    columns: those that must be filled. Of the others HEAD_FIELDS, head and body stay empty.
    """

    def __init__(
        self, wants: Wants | None = None, columns: Collection[str] = Event._fields
    ) -> None:
        self._runs = RunDecoder(wants)
        self._with_fields = not set(HEAD_FIELDS).isdisjoint(columns)
        self._with_head = "head" in columns
        self._with_body = "body" in columns

    def decode(self, lsn: int, record_type: int, payload: bytes | memoryview) -> Iterator[Event]:
        """The events of one record; none for a record that is not about messages."""
        for run in self._runs.runs(lsn, record_type, payload):
            yield from self.expand(run)

    def expand(self, run: Run) -> Iterator[Event]:
        """The events of a run."""
        if run.sent is not None:
            yield from self._sent(run, run.sent)
            return
        for i in range(run.size):
            yield Event(
                run.offset + i,
                run.event,
                run.time,
                f"{run.first_id + i:012x}",
                *run.place,
                transaction=run.transaction,
                cause=run.cause,
                operation=run.operation,
            )

    def _sent(self, run: Run, record: Sent) -> Iterator[Event]:
        rows = record.rows()
        both = list(zip(rows, self._payloads(record, rows), strict=True))
        names = run.subscriptions()
        for i, (row, payload) in enumerate(both[run.skipped : run.skipped + run.size]):
            yield self._sent_row(run, record, i, row, payload)._replace(subscriptions=names[i])

    def _sent_row(self, run: Run, record: Sent, i: int, row: Row, payload: bytes) -> Event:
        head = payload[: row.head_bytes]
        message_id, is_persistent = f"{run.first_id + i:012x}", True
        return Event._make(
            (
                *(run.offset + i, run.event, run.time, message_id, *run.place),
                *(row.priority, is_persistent),
                *(record.timestamp_ms, expiration_ms(record.timestamp_ms, row.ttl_ms)),
                KINDS[row.kind] if row.kind < len(KINDS) else None,
                *(head_fields(head) if self._with_fields else NO_FIELDS),
                head if self._with_head else None,
                payload[row.head_bytes :] if self._with_body else None,
                *(run.transaction, run.cause, None, run.operation),
            )
        )

    def _payloads(self, record: Sent, rows: list[Row]) -> list[bytes]:
        if self._with_fields or self._with_head or self._with_body:
            return record.payloads(rows)
        return [b""] * len(rows)


def expiration_ms(timestamp_ms: int, ttl_ms: int) -> int | None:
    """When a message expires; None for never, or later than a timestamp can say."""
    expires_at_ms = timestamp_ms + ttl_ms
    return expires_at_ms if ttl_ms and expires_at_ms <= TIME_MS_MAX else None
