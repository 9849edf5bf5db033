"""Records of distributed transactions: branches that wait for their outcome, and decisions.

PREPARED tells all that a branch did: what it sent and what it received. It holds until an ENDED
of the same xid, or until a HEURISTIC: an operator has completed the branch. A COMMITTED branch's
messages are in the group of its ENDED, as those of any commit. DECIDED holds until FORGOTTEN.
"""

import struct
from collections.abc import Sequence

import msgspec

from hms.records.kinds import Record, RecordType

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class PreparedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch that a branch sends: to which place, for whom, and how large its pack is."""

    destination: int
    topic: str
    client_uid: int
    producer: int
    first_message_id: int
    count: int
    timestamp_ms: int
    pack_bytes: int


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """A branch that has voted yes. serial: its place among all that ever did; receipts: the number
    of a place, and first and last id of messages that it holds there."""

    xid: bytes
    serial: int
    at_ms: int
    batches: Sequence[PreparedBatch] = ()
    receipts: Sequence[tuple[int, int, int]] = ()


class Heuristic(msgspec.Struct, frozen=True, array_like=True):
    """A branch that was completed by an operator, not by its transaction manager."""

    xid: bytes
    serial: int
    at_ms: int
    is_committed: bool


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A branch, or the memory of its heuristic end, is gone. outcome: see Outcome of the engine's
    branches; 1 committed, 2 rolled back, 3 forgotten, 4 deleted by a COLD boot."""

    xid: bytes
    outcome: int
    at_ms: int


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """A global transaction is to be committed by all of its participants."""

    gtrid: bytes
    serial: int
    at_ms: int
    participants: bytes


def prepared(content: Prepared, packs: Sequence[bytes | memoryview]) -> Record:
    """A branch is prepared; the packs of its batches in their order."""
    table = _encode(content)
    head = _LENGTH.pack(len(table)) + table
    return Record(RecordType.PREPARED, 1, (head, *packs))


def decode_prepared(payload: bytes | memoryview) -> tuple[Prepared, list[memoryview]]:
    """A PREPARED record's payload."""
    view = memoryview(payload)
    (size,) = _LENGTH.unpack_from(view)
    at = _LENGTH.size + size
    content = msgspec.msgpack.decode(view[_LENGTH.size : at], type=Prepared)
    packs = []
    for batch in content.batches:
        packs.append(view[at : at + batch.pack_bytes])
        at += batch.pack_bytes
    return content, packs


def heuristic(content: Heuristic, events: int = 1) -> Record:
    """A branch was completed by an operator; events 0: as part of a group."""
    return Record(RecordType.HEURISTIC, events, (_encode(content),))


def decode_heuristic(payload: bytes | memoryview) -> Heuristic:
    """A HEURISTIC record's payload."""
    return msgspec.msgpack.decode(payload, type=Heuristic)


def ended(content: Ended, events: int = 1) -> Record:
    """A branch has ended; events 0: as part of a group."""
    return Record(RecordType.ENDED, events, (_encode(content),))


def decode_ended(payload: bytes | memoryview) -> Ended:
    """An ENDED record's payload."""
    return msgspec.msgpack.decode(payload, type=Ended)


def decided(content: Decided, events: int = 1) -> Record:
    """A decision, or its participants anew; events 0: as part of a group."""
    return Record(RecordType.DECIDED, events, (_encode(content),))


def decode_decided(payload: bytes | memoryview) -> Decided:
    """A DECIDED record's payload."""
    return msgspec.msgpack.decode(payload, type=Decided)


def forgotten(gtrid: bytes) -> Record:
    """A decision is no longer needed."""
    return Record(RecordType.FORGOTTEN, 1, (gtrid,))
