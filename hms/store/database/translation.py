"""From records, in their order, to changes of rows.

What a record means stands in hms/records/transitions.py, once for the engine's recovery and for
this; here is what it does to rows."""

from collections.abc import Iterable, Sequence
from itertools import chain

from hms.records import (
    Definition,
    Identity,
    Kept,
    Memory,
    NodeEvent,
    Ranges,
    RecordType,
    Sent,
    Stay,
    Terms,
    bits,
    defined,
    identity,
)
from hms.records.audit import decode_audit
from hms.records.message_states import Steps
from hms.records.transitions import Payload, Transition, transitions_of
from hms.store.database.deduplication_rows import Remembered
from hms.store.database.message_steps import LETTERS
from hms.store.database.pending import PendingRows
from hms.store.database.row_changes import Changes
from hms.store.database.rows import AuditRow, DefinitionRow, Entry, MessageRow, Meta

NODE_INDEX_SHIFT = 40
"""A message id's upper bits are the index of the node that gave it (docs/decisions/0004)."""


class Translation:
    """Feed it the records of one transaction; `changes` and `meta_after` are what to write."""

    def __init__(self, meta: Meta, remembered: Remembered, pending: PendingRows) -> None:
        self.changes = Changes()
        self.audit: list[AuditRow] = []
        self._meta, self._remembered, self.pending = meta, remembered, pending
        self._next_number, self._next_seq = meta.next_number, meta.next_seq
        self._now_ms = meta.now_ms
        self._event = (meta.event, meta.event_ms)
        self._transitions: dict[int, Transition] = {
            **transitions_of(self),
            RecordType.PREPARED: pending.prepared,
            RecordType.HEURISTIC: pending.heuristic,
            RecordType.ENDED: pending.ended,
            RecordType.DECIDED: pending.decided,
            RecordType.FORGOTTEN: pending.forgotten,
            RecordType.AUDIT: self._audited,
        }

    @property
    def types(self) -> frozenset[int]:
        """The types of records that the tables can keep."""
        return frozenset(self._transitions)

    def apply(self, kind: int, payload: Payload, position: int) -> None:
        """One record; a type that this version does not know raises KeyError."""
        self._transitions[kind](payload, position)

    def apply_all(self, entries: Sequence[Entry]) -> bytes:
        """Records that lie one behind the other; their payloads as one."""
        blob = b"".join([part for entry in entries for part in entry.parts])
        view, base = memoryview(blob), entries[0].position
        for entry in entries:
            start = entry.position - base
            payload = view[start : start + entry.length]
            self.pending.lsn = entry.lsn
            self.apply(entry.kind, payload, entry.position)
        return blob

    def meta_after(self, last: Entry) -> Meta:
        """What the store knows of itself behind the last record."""
        return self._meta._replace(
            last_lsn=last.lsn + last.events - 1,
            next_position=last.position + last.length,
            next_number=self._next_number,
            next_seq=self._next_seq,
            now_ms=max(self._now_ms, self.pending.now_ms),
            event=self._event[0],
            event_ms=self._event[1],
        )

    # what records change

    def at(self, now_ms: int) -> None:
        """The latest time of all."""
        self._now_ms = max(self._now_ms, now_ms)

    def numbered(self, *, ids_below: int = 0, next_number: int = 0, next_seq: int = 0) -> None:
        """The largest numbers of all; ids by the index of the node that gave them."""
        self._next_number = max(self._next_number, next_number)
        self._next_seq = max(self._next_seq, next_seq)
        if ids_below:
            index, known = ids_below >> NODE_INDEX_SHIFT, self.changes.ids_below
            known[index] = max(known.get(index, 0), ids_below)

    def identified(self, identity_: Identity) -> None:
        """Kept as a record."""
        self.pending.identified(identity(identity_).parts[0])

    def audited(self, number: int, head: bytes) -> None:
        """The records are in their own table."""

    def _audited(self, payload: Payload, _position: int) -> None:
        record = bytes(payload)
        entry = decode_audit(record)
        self.audit.append(AuditRow(entry.number, entry.at_ms, record))

    def led(self, terms: Terms) -> None:
        """A database has no copies."""

    def node_event(self, event: NodeEvent) -> None:
        """The last one is in the store's own row."""
        self._event = (_readable(event.what), event.at_ms)

    def define(self, definition: Definition) -> None:
        """A row; its text where operators can read it, beside the definition as it is."""
        self.changes.definitions[definition.number] = DefinitionRow(
            definition.number,
            definition.kind,
            _readable(definition.name),
            definition.topic,
            _readable(definition.client_id),
            _readable(definition.selector),
            bytes(defined(definition).parts[0]),
        )
        self.numbered(next_number=definition.number + 1)

    def undefine(self, number: int) -> None:
        """Its row goes, with those of what it holds."""
        self.changes.end_place(number)

    def sent(self, record: Sent, position: int) -> None:
        """Rows of messages and of the places where they wait."""
        positions = self._new_messages(record, position)
        hold, first_id, is_new = self.changes.hold, record.first_message_id, not record.is_forwarded
        due = _due_times(record)
        for holder, marks in record.placements:
            for i, is_here in enumerate(bits(marks, record.message_count)):
                if is_here:
                    stay = Stay(holder, due_ms=due[i]) if due else Stay(holder)
                    hold(first_id + i, positions[i], stay, is_new=is_new)

    def _new_messages(self, record: Sent, start: int) -> list[int]:
        """The rows of a batch; where each message lies."""
        positions, at = [], start
        sent_ms, destination = record.timestamp_ms, record.destination
        id_, seq = record.first_message_id, record.first_seq
        for head_bytes, body_bytes, ttl_ms, _, priority, kind, _, _ in record.rows():
            expires_ms = sent_ms + ttl_ms if ttl_ms else 0
            times = (sent_ms, expires_ms)
            sizes = (head_bytes, body_bytes)
            self.changes.add(MessageRow(at, id_, seq, destination, *times, priority, kind, *sizes))
            positions.append(at)
            at += head_bytes + body_bytes
            id_, seq = id_ + 1, seq + 1
        return positions

    def moved(self, kept: Sequence[Kept], _payload: Payload, _start: int, position: int) -> None:
        """Rows in place of those that were there."""
        for one in kept:
            destination = one.stays[0].number if one.stays else 0
            self.changes.add(MessageRow(position, one.id, one.seq, destination, *_rest(one)))
            for stay in one.stays:
                self.changes.hold(one.id, position, stay, is_new=False)
            position += one.head_bytes + one.body_bytes

    def step(self, kind: RecordType, _steps: Steps, told: Ranges) -> None:
        """Rows that are there change."""
        self.changes.step(told.number, _ids(told.ranges), LETTERS[kind], told.due_ms)

    def leave(self, told: Ranges) -> None:
        """Rows go."""
        self.changes.leave(told.number, _ids(told.ranges))

    def taken(self, record: Sent) -> None:
        """A row of a batch."""
        self._remembered.sent(record, self.pending.lsn)

    def committed(self, client_uid: int, session: int, number: int) -> None:
        """A row of a commit."""
        self._remembered.committed(client_uid, session, number, self.pending.lsn)

    def remember(self, content: Memory) -> None:
        """Rows as they are told again."""
        self._remembered.restated(content, self.pending.lsn)
        self.pending.restated(content)


def _due_times(record: Sent) -> list[int]:
    """When each message is due, 0 at once; nothing when all of them are."""
    delays = [row.delay_ms for row in record.rows()]
    if not any(delays):
        return []
    return [record.timestamp_ms + delay if delay else 0 for delay in delays]


def _rest(one: Kept) -> tuple[int, int, int, int, int, int]:
    times = (one.timestamp_ms, one.expires_at_ms)
    return (*times, one.priority, one.kind, one.head_bytes, one.body_bytes)


def _ids(ranges: Sequence[tuple[int, int]]) -> Iterable[int]:
    return chain.from_iterable([range(first, last + 1) for first, last in ranges])


def _readable(text: str) -> str:
    """Text as a database takes it; the definition itself stands beside it unchanged."""
    return text.replace("\0", "\\0")
