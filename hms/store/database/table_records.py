"""What the tables hold, as the records that the engine's recovery knows.

One DICTIONARY, the bounds of message ids, then the messages as MOVED records, then MEMORY. Messages
whose bytes lie one behind the other share a record, and its position is such that each of them is
where its row says.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from hms.errors.catalogue import StoreCorrupt
from hms.records import (
    Definition,
    Kept,
    Memory,
    NodeEvent,
    Record,
    RecordType,
    Snapshot,
    Stay,
    decode_definition,
    decode_moved,
    dictionary,
    memory,
    moved,
    node_event,
    reserved,
)
from hms.store.database.backend import Backend
from hms.store.database.pending import PendingRow
from hms.store.database.rows import MessageRow, Meta, StayRow
from hms.store.interface import StoredRecord

RUN_BYTES = 256 << 10
RUN_MESSAGES = 1024

Records = Iterator[StoredRecord]


def dictionary_of(meta: Meta, definitions: list[bytes]) -> StoredRecord:
    """All places and the next numbers."""
    decoded: list[Definition] = [decode_definition(encoded) for encoded in definitions]
    content = Snapshot(decoded, 0, meta.next_number, meta.next_seq, meta.now_ms)
    return _stored(meta, dictionary(content))


def event_of(meta: Meta) -> Records:
    """What the node said of itself last."""
    if meta.event:
        yield _stored(meta, node_event(NodeEvent(meta.event, meta.event_ms)))


def bounds_of(meta: Meta, ids_below: list[int]) -> Iterator[StoredRecord]:
    """Message ids that may have been given away."""
    for below in ids_below:
        yield _stored(meta, reserved(below))


def memory_of(meta: Meta, content: Memory) -> StoredRecord:
    """Sends and commits that were taken."""
    return _stored(meta, memory(content))


def pending_of(meta: Meta, rows: Iterable[PendingRow]) -> Records:
    """Branches in doubt and decisions."""
    for row in rows:
        yield meta.last_lsn, row.kind, 1, memoryview(row.record), 0


def audit_of(meta: Meta, head: bytes | None) -> Records:
    """What the next record of the audit continues."""
    if head is not None:
        yield meta.last_lsn, RecordType.AUDIT, 1, memoryview(head), 0


def messages_of(meta: Meta, backend: Backend, unheld: Callable[[int], None]) -> Records:
    """Every message with the places where it is; told the ids of those that are nowhere."""
    kept: list[Kept] = []
    payloads: list[bytes] = []
    first = end = room = 0
    for row, stays, payload in _joined(backend):
        if not stays:
            unheld(row.id)
            continue
        if kept and (row.position != end or room <= 0 or len(kept) == RUN_MESSAGES):
            yield _run(meta, kept, payloads, first)
            kept, payloads = [], []
        if not kept:
            first, room = row.position, RUN_BYTES
        kept.append(_kept(row, stays))
        payloads.append(payload)
        end = row.position + len(payload)
        room -= len(payload)
    if kept:
        yield _run(meta, kept, payloads, first)


def _run(meta: Meta, kept: list[Kept], payloads: list[bytes], first: int) -> StoredRecord:
    stored = _stored(meta, moved(kept, payloads, None))
    _, start = decode_moved(stored[3])
    return (*stored[:4], first - start)


def _joined(backend: Backend) -> Iterator[tuple[MessageRow, list[StayRow], bytes]]:
    """Messages and their places, both by position."""
    with closing(backend.stays()) as stays, closing(backend.messages()) as messages:
        stay = next(stays, None)
        for row, payload in messages:
            here: list[StayRow] = []
            while stay is not None and stay.position <= row.position:
                if stay.position < row.position:
                    raise _lost(backend, stay)
                here.append(stay)
                stay = next(stays, None)
            yield row, here, payload
        if stay is not None:
            raise _lost(backend, stay)


def _lost(backend: Backend, stay: StayRow) -> StoreCorrupt:
    detail = f"message {stay.message_id:012x} is said to wait, and its row is not there"
    return StoreCorrupt(file=backend.shown, offset=stay.position, lsn=0, detail=detail)


def _kept(row: MessageRow, stays: list[StayRow]) -> Kept:
    places = [
        Stay(one.holder, one.deliveries, one.attempts, one.due_ms, one.is_out) for one in stays
    ]
    return Kept(
        row.id,
        row.seq,
        row.timestamp_ms,
        row.expires_at_ms,
        row.priority,
        row.kind,
        row.head_bytes,
        row.body_bytes,
        places,
    )


def _stored(meta: Meta, record: Record) -> StoredRecord:
    payload = memoryview(b"".join(record.parts))
    return meta.last_lsn, int(record.type), record.events, payload, 0
