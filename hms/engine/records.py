"""Records: what the engine writes into the log, and how it is read back.

A record is (type, events, parts): the log stores the parts behind one another and gives the record
`events` consecutive log sequence numbers, one per event of a message, so that every event in the
history has a number of its own. Hot records are packed structures, rare ones msgpack.

    DEFINED     a queue, topic or durable subscription and the number it has in the log
    UNDEFINED   the same is gone
    SENT        a batch of messages as the client packed it, with where each one waits
    DELIVERED   ranges of messages were handed to a consumer
    ACKNOWLEDGED, FAILED, RELEASED   what became of them; FAILED counts as an attempt
    DISCARDED   messages left for another cause: see Cause
    GROUP       records that hold together or not at all: a commit, a dead-lettering
    RESERVED    message ids below this number may have been given away
    DICTIONARY  first record of every segment: all definitions so far
    NODE        the node booted or stopped
"""

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from field_buffer.packing import Row, slice_payloads, unpack_rows


class RecordType(enum.IntEnum):
    """The types; a number is never used for a second meaning."""

    DEFINED = 1
    UNDEFINED = 2
    SENT = 3
    DELIVERED = 4
    ACKNOWLEDGED = 5
    FAILED = 6
    RELEASED = 7
    DISCARDED = 8
    GROUP = 9
    RESERVED = 10
    DICTIONARY = 11
    NODE = 12


class Cause(enum.IntEnum):
    """Why messages left without being acknowledged (P9)."""

    NONE = 0
    EXPIRED = 1
    DEAD_LETTERED = 2
    PURGED = 3
    COLD = 4
    LIMIT = 5
    UNSUBSCRIBED = 6
    MOVED = 7


class Record(NamedTuple):
    """One record; parts are stored one after the other, so that a pack is not copied."""

    type: RecordType
    events: int
    parts: Sequence[bytes | memoryview]


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place that the log speaks of by its number.

    kind: "queue", "topic" or "subscription" (a durable one; topic is then the topic's number).
    """

    number: int
    kind: str
    name: str
    topic: int = 0
    selector: str = ""
    is_no_local: bool = False
    client_id: str = ""
    is_shared: bool = False
    is_configured: bool = False

    @property
    def size_bytes(self) -> int:
        """About what it takes in a dictionary."""
        return 160 + 4 * (len(self.name) + len(self.selector))


class NodeEvent(msgspec.Struct, frozen=True):
    """what: "booted" or "stopped"; boot: "WARM" or "COLD"."""

    what: str
    at_ms: int
    boot: str = ""
    version: str = ""


class Placement(NamedTuple):
    """Where messages of a batch wait: the number of a queue or durable subscription, and one bit
    per message (bit i of byte i // 8), or no bitmap when all of them do."""

    number: int
    bitmap: bytes


class Sent(NamedTuple):
    """A decoded SENT record. Message i has the id first_message_id + i."""

    destination: int
    first_message_id: int
    timestamp_ms: int
    client_uid: int
    producer: int
    first_sequence: int
    message_count: int
    is_forwarded: bool
    placements: list[Placement]
    pack: memoryview
    first_seq: int = 0
    """The first message's place in the order of arrival; the others follow."""

    def rows(self) -> list[Row]:
        """What the sender said of each message."""
        return unpack_rows(self.pack, self.message_count)

    def payloads(self, rows: Sequence[Row]) -> list[bytes]:
        """Head and body of each message as one bytes."""
        return slice_payloads(self.pack, rows)


class Ranges(NamedTuple):
    """A decoded DELIVERED, ACKNOWLEDGED, FAILED, RELEASED or DISCARDED record.

    number: of the queue or durable subscription; ranges: first and last message id, both included.
    """

    number: int
    at_ms: int
    cause: Cause
    ranges: list[tuple[int, int]]


class Group(NamedTuple):
    """A decoded GROUP record. client_uid, session and commit name the transaction; commit 0 is a
    group that the node made itself."""

    client_uid: int
    session: int
    commit: int
    at_ms: int
    records: list[Record]


SENT_HEAD = struct.Struct("<IQQQIQIBxHQ")
"""destination, first_message_id, timestamp_ms, client_uid, producer, first_sequence, count, flags,
placements, first_seq."""
MESSAGES_PER_BATCH_MAX = 1024
PLACEMENT_BYTES_MAX = 8 + MESSAGES_PER_BATCH_MAX // 8
"""What one durable subscription can take in a SENT record."""
SENT_FORWARDED = 1
"""The node itself moved the messages here, keeping id and history; for example to the DLQ."""
_PLACEMENT = struct.Struct("<II")
RANGES_HEAD = struct.Struct("<IQII")
"""number, at_ms, cause, ranges."""
_RANGE = struct.Struct("<QQ")
_GROUP_HEAD = struct.Struct("<QIIQI")
_GROUP_PART = struct.Struct("<B3xII")
_RESERVED = struct.Struct("<Q")
_encode = msgspec.msgpack.Encoder().encode


def sent(head: Sent) -> Record:
    """A SENT record around the pack of a batch."""
    flags = SENT_FORWARDED if head.is_forwarded else 0
    start = SENT_HEAD.pack(*head[:7], flags, len(head.placements), head.first_seq)
    places = [
        _PLACEMENT.pack(place.number, len(place.bitmap)) + place.bitmap for place in head.placements
    ]
    return Record(RecordType.SENT, head.message_count, (start + b"".join(places), head.pack))


def decode_sent(payload: bytes | memoryview) -> Sent:
    """A SENT record's payload."""
    values: tuple[int, ...] = SENT_HEAD.unpack_from(payload)
    flags, n, first_seq = values[-3:]
    at = SENT_HEAD.size
    placements = []
    for _ in range(n):
        number, size = _PLACEMENT.unpack_from(payload, at)
        at += _PLACEMENT.size
        placements.append(Placement(number, bytes(payload[at : at + size])))
        at += size
    destination, first_id, timestamp_ms, client_uid, producer, first_sequence, count = values[:7]
    return Sent(
        destination,
        first_id,
        timestamp_ms,
        client_uid,
        producer,
        first_sequence,
        count,
        bool(flags & SENT_FORWARDED),
        placements,
        memoryview(payload)[at:],
        first_seq,
    )


def ranges(
    kind: RecordType,
    number: int,
    at_ms: int,
    spans: Sequence[tuple[int, int]],
    cause: Cause = Cause.NONE,
) -> Record:
    """A record of what happened to ranges of messages."""
    count = sum(last - first + 1 for first, last in spans)
    head = RANGES_HEAD.pack(number, at_ms, cause, len(spans))
    return Record(kind, count, (head + b"".join([_RANGE.pack(*span) for span in spans]),))


def decode_ranges(payload: bytes | memoryview) -> Ranges:
    """The payload of a record that `ranges` made."""
    number, at_ms, cause, n = RANGES_HEAD.unpack_from(payload)
    view = memoryview(payload)[RANGES_HEAD.size : RANGES_HEAD.size + n * _RANGE.size]
    return Ranges(number, at_ms, Cause(cause), list(_RANGE.iter_unpack(view)))


def group(
    client_uid: int, session: int, commit: int, at_ms: int, parts: Iterable[Record]
) -> Record:
    """Records that become effective together."""
    records = list(parts)
    out: list[bytes | memoryview] = [
        _GROUP_HEAD.pack(client_uid, session, commit, at_ms, len(records))
    ]
    for record in records:
        length = sum(len(part) for part in record.parts)
        out.append(_GROUP_PART.pack(record.type, record.events, length))
        out += record.parts
    return Record(RecordType.GROUP, max(1, sum(r.events for r in records)), out)


def decode_group(payload: bytes | memoryview) -> Group:
    """A GROUP record's payload."""
    client_uid, session, commit, at_ms, n = _GROUP_HEAD.unpack_from(payload)
    view, at = memoryview(payload), _GROUP_HEAD.size
    records = []
    for _ in range(n):
        kind, count, length = _GROUP_PART.unpack_from(view, at)
        at += _GROUP_PART.size
        records.append(Record(RecordType(kind), count, (view[at : at + length],)))
        at += length
    return Group(client_uid, session, commit, at_ms, records)


def defined(definition: Definition) -> Record:
    """A place came to be."""
    return Record(RecordType.DEFINED, 1, (_encode(definition),))


def undefined(number: int) -> Record:
    """A place is gone."""
    return Record(RecordType.UNDEFINED, 1, (_RESERVED.pack(number),))


def decode_definition(payload: bytes | memoryview) -> Definition:
    """A DEFINED record's payload."""
    return msgspec.msgpack.decode(payload, type=Definition)


def decode_number(payload: bytes | memoryview) -> int:
    """The payload of UNDEFINED (a place's number) or RESERVED (a message id)."""
    number: int = _RESERVED.unpack(payload)[0]
    return number


def reserved(below: int) -> Record:
    """No message id below this one is given again, whatever happens."""
    return Record(RecordType.RESERVED, 1, (_RESERVED.pack(below),))


def dictionary(definitions: Sequence[Definition]) -> Record:
    """The first record of a segment: every definition so far, so that a segment reads alone."""
    return Record(RecordType.DICTIONARY, 1, (_encode(list(definitions)),))


def decode_dictionary(payload: bytes | memoryview) -> list[Definition]:
    """A DICTIONARY record's payload."""
    return msgspec.msgpack.decode(payload, type=list[Definition])


def node_event(event: NodeEvent) -> Record:
    """The node booted or stopped."""
    return Record(RecordType.NODE, 1, (_encode(event),))


def decode_node_event(payload: bytes | memoryview) -> NodeEvent:
    """A NODE record's payload."""
    return msgspec.msgpack.decode(payload, type=NodeEvent)


def bitmap(flags: Sequence[bool]) -> bytes:
    """One bit per flag, lowest first."""
    value = sum(1 << i for i, is_set in enumerate(flags) if is_set)
    return value.to_bytes((len(flags) + 7) // 8, "little")


def bits(data: bytes, count: int) -> Iterator[bool]:
    """The flags of a bitmap; an empty one means that every flag is set."""
    if not data:
        yield from (True for _ in range(count))
        return
    value = int.from_bytes(data, "little")
    for i in range(count):
        yield bool(value >> i & 1)
