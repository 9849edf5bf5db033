"""GROUP: records that take effect together or not at all."""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hms.records.kinds import LogPosition, Record, RecordType
from hms.records.sent import SENT_HEAD

_HEAD = struct.Struct("<QIIQI")
_PART = struct.Struct("<B3xII")
_FIRST_SEQ = struct.Struct("<Q")
_FIRST_SEQ_AT = _PART.size + SENT_HEAD.size - _FIRST_SEQ.size


BY_ORDER = 0xFFFFFFFF
"""In the place of a session: an operator ordered it. No session has that handle."""


class Group(NamedTuple):
    """A decoded GROUP record. client_uid, session and commit name the transaction; commit 0 is a
    group that the node made itself: with BY_ORDER as its session, client_uid is the number of the
    order's record in the audit."""

    client_uid: int
    session: int
    commit: int
    at_ms: int
    records: list[Record]
    offsets: list[int]
    """Where each record's own payload begins in that of the group."""

    @property
    def operation(self) -> int | None:
        """The number in the audit of the order that this is of; None: of none."""
        return self.client_uid if self.session == BY_ORDER and not self.commit else None


class Encoded(NamedTuple):
    """Records of a group that were encoded before it, one behind the other. log_positions: with
    where in `data` they begin."""

    records: int
    events: int
    data: bytes | memoryview
    log_positions: Sequence[tuple[LogPosition, int]] = ()


def encode_part(record: Record) -> bytes:
    """A record as it is encoded in a group."""
    payload = b"".join(record.parts)
    return _PART.pack(record.type, record.events, len(payload)) + payload


def put_first_seqs(data: bytearray, begins: Iterable[tuple[int, int]], first_seq: int) -> None:
    """SENT records of a group's data, which were encoded before, have their places in the order of
    arrival from now on. begins: of each where it stands, and how many messages are before it."""
    put = _FIRST_SEQ.pack_into
    for at, before in begins:
        put(data, at + _FIRST_SEQ_AT, first_seq + before)


def group(
    client_uid: int, session: int, commit: int, at_ms: int, parts: Iterable[Record | Encoded]
) -> Record:
    """A record of records that take effect together."""
    records = list(parts)
    count = sum(r.records if isinstance(r, Encoded) else 1 for r in records)
    out: list[bytes | memoryview] = [_HEAD.pack(client_uid, session, commit, at_ms, count)]
    log_positions: list[tuple[LogPosition, int]] = []
    at = _HEAD.size
    for record in records:
        if isinstance(record, Encoded):
            out.append(record.data)
            log_positions += [(one, at + offset) for one, offset in record.log_positions]
            at += len(record.data)
            continue
        length = sum(len(part) for part in record.parts)
        out.append(_PART.pack(record.type, record.events, length))
        out += record.parts
        at += _PART.size
        log_positions += [(one, at + offset) for one, offset in record.log_positions]
        at += length
    return Record(RecordType.GROUP, max(1, sum(r.events for r in records)), out, log_positions)


def by_order(record: Record, audit_number: int, at_ms: int) -> Record:
    """A record about messages, with the number of the order that it is of; others as they are."""
    if record.type in (RecordType.SENT, RecordType.DISCARDED):
        return group(audit_number, BY_ORDER, 0, at_ms, [record])
    if record.type != RecordType.GROUP:
        return record
    first, *rest = record.parts
    uid, _, commit, told_ms, count = _HEAD.unpack_from(first)
    if uid or commit:
        return record
    head = _HEAD.pack(audit_number, BY_ORDER, 0, told_ms, count)
    return Record(record.type, record.events, [head, *_behind(first), *rest], record.log_positions)


def _behind(first: bytes | memoryview) -> list[memoryview]:
    """What stands in the first part behind the group's own head."""
    return [memoryview(first)[_HEAD.size :]] if len(first) > _HEAD.size else []


def decode_group(payload: bytes | memoryview) -> Group:
    """A GROUP record's payload."""
    client_uid, session, commit, at_ms, n = _HEAD.unpack_from(payload)
    view, at = memoryview(payload), _HEAD.size
    records, offsets = [], []
    for _ in range(n):
        kind, count, length = _PART.unpack_from(view, at)
        at += _PART.size
        records.append(Record(RecordType(kind), count, (view[at : at + length],)))
        offsets.append(at)
        at += length
    return Group(client_uid, session, commit, at_ms, records, offsets)
