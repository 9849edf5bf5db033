"""SENT: a batch of messages as the client packed it, and the places where each one waits."""

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from hms.records.kinds import LogPosition, Record, RecordType
from hms.wire.packed_messages import Row, slice_payloads, unpack_rows

SENT_HEAD = struct.Struct("<IQQQIQIBBHQ")
"""destination, first_message_id, timestamp_ms, client_uid, producer, first_sequence, count, flags,
placements // 65,536 (0 in older logs), placements % 65,536, first_seq."""
PLACEMENTS_MAX = (1 << 24) - 1
"""Maximum number of durable subscriptions that one message can go to."""
MESSAGES_PER_BATCH_MAX = 1024
PLACEMENT_BYTES_MAX = 8 + MESSAGES_PER_BATCH_MAX // 8
"""Maximum size of one durable subscription in a SENT record."""
SENT_FORWARDED = 1
"""The node itself moved the messages here, keeping id and history; for example to the DLQ."""
_PLACEMENT = struct.Struct("<II")
_TO_QUEUE = struct.Struct(SENT_HEAD.format + _PLACEMENT.format.lstrip("<"))
"""A head with a single placement that has no bitmap."""


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
    pack_offset: int = 0
    """Offset of the pack in the record's payload; set in a decoded one."""

    def rows(self) -> list[Row]:
        """The row of each message."""
        return unpack_rows(self.pack, self.message_count)

    def payloads(self, rows: Sequence[Row]) -> list[bytes]:
        """Head and body of each message as one bytes."""
        return slice_payloads(self.pack, rows)


def sent(
    head: Sent, log_position: LogPosition | None = None, further: Sequence[tuple[int, bytes]] = ()
) -> Record:
    """A SENT record around the pack of a batch; log_position: notified of where that is written;
    further: more placements, so many and encoded."""
    flags = SENT_FORWARDED if head.is_forwarded else 0
    placements = len(head.placements) + sum([count for count, _ in further])
    high, low = divmod(placements, 1 << 16)
    start = SENT_HEAD.pack(*head[:7], flags, high, low, head.first_seq)
    before = b"".join([start, _encoded(head.placements), *[encoded for _, encoded in further]])
    log_positions = () if log_position is None else ((log_position, len(before)),)
    return Record(RecordType.SENT, head.message_count, (before, head.pack), log_positions)


def encoded_placements(numbers: Sequence[int], mask: bytes) -> bytes:
    """Placements as a record holds them: places that all have the same messages."""
    if mask:
        return b"".join([_PLACEMENT.pack(number, len(mask)) + mask for number in numbers])
    pairs = [0] * (2 * len(numbers))
    pairs[::2] = numbers
    return struct.pack(f"<{len(pairs)}I", *pairs)


def _encoded(placements: Sequence[Placement]) -> bytes:
    """Most of up to 25,000 placements have no bitmap: those take one call."""
    each = [(place.number, len(place.bitmap)) for place in placements]
    if any(size for _, size in each):
        packed = [_PLACEMENT.pack(*one) + p.bitmap for one, p in zip(each, placements, strict=True)]
        return b"".join(packed)
    numbers = list(chain.from_iterable(each))
    return struct.pack(f"<{len(numbers)}I", *numbers)


def sent_to_queue(
    number: int,
    first: tuple[int, int, int],
    sender: tuple[int, int, int],
    count: int,
    pack: memoryview,
    log_position: LogPosition | None,
) -> Record:
    """The same for a batch that waits in one queue and nowhere else. first: id, place in the order
    of arrival and time of its first message; sender: client, producer and first sequence."""
    first_id, first_seq, at_ms = first
    uid, producer, sequence = sender
    before = _TO_QUEUE.pack(
        *(number, first_id, at_ms, uid, producer, sequence, count, 0, 0, 1, first_seq, number, 0)
    )
    log_positions = () if log_position is None else ((log_position, _TO_QUEUE.size),)
    return Record(RecordType.SENT, count, (before, pack), log_positions)


def decode_sent(payload: bytes | memoryview) -> Sent:
    """A SENT record's payload."""
    values: tuple[int, ...] = SENT_HEAD.unpack_from(payload)
    flags, high, low, first_seq = values[-4:]
    at = SENT_HEAD.size
    placements = []
    for _ in range((high << 16) + low):
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
        at,
    )


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
