"""MOVED and MEMORY: what is still needed of a segment to be retired, written again.

MOVED restates messages as they are at that moment, so whatever the log told of them before may go;
it is no event in the history. MEMORY restates which sends and commits were taken, so that one that
comes again is recognised.
"""

import struct
from collections.abc import Sequence

import msgspec

from hms.records.kinds import LogPosition, Record, RecordType

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class Stay(msgspec.Struct, frozen=True, array_like=True):
    """A message at one queue or durable subscription.

    deliveries and attempts: that have ended; due_ms: it waits, but not before; is_out: it is
    delivered and not settled, or offered to the node `peer` by that number.
    """

    number: int
    deliveries: int = 0
    attempts: int = 0
    due_ms: int = 0
    is_out: bool = False
    peer: int = 0
    offer: int = 0


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A message and all places that still hold it."""

    id: int
    seq: int
    timestamp_ms: int
    expires_at_ms: int
    priority: int
    kind: int
    head_bytes: int
    body_bytes: int
    stays: Sequence[Stay]


class ProducerTaken(msgspec.Struct, frozen=True, array_like=True):
    """The last batches of a producer: (first sequence, first message id, timestamp, count);
    forgotten: the highest first sequence of those before them."""

    client_uid: int
    handle: int
    last_sequence: int
    recent: Sequence[tuple[int, int, int, int]]
    forgotten: int = 0


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """Producers, (client, session, number) of commits, and packed xids of branches that were
    committed, least recently used first. is_partial: others were forgotten."""

    producers: Sequence[ProducerTaken] = ()
    commits: Sequence[tuple[int, int, int]] = ()
    branches: Sequence[bytes] = ()
    is_partial: bool = False


def moved(
    messages: Sequence[Kept],
    payloads: Sequence[bytes | memoryview],
    log_position: LogPosition | None,
) -> Record:
    """Messages with head and body, in the order given. It is not an event in their history."""
    table = _encode(messages)
    head = _LENGTH.pack(len(table)) + table
    log_positions = () if log_position is None else ((log_position, len(head)),)
    return Record(RecordType.MOVED, 1, (head, *payloads), log_positions)


def decode_moved(payload: bytes | memoryview) -> tuple[list[Kept], int]:
    """The messages of a MOVED record, and where the first one's bytes begin in its payload."""
    (size,) = _LENGTH.unpack_from(payload)
    start = _LENGTH.size + size
    table = memoryview(payload)[_LENGTH.size : start]
    return msgspec.msgpack.decode(table, type=list[Kept]), start


def memory(content: Memory) -> Record:
    """Sends and commits that were taken."""
    return Record(RecordType.MEMORY, 1, (_encode(content),))


def decode_memory(payload: bytes | memoryview) -> Memory:
    """A MEMORY record's payload."""
    return msgspec.msgpack.decode(payload, type=Memory)
