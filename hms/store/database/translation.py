"""Translation: from records, in their order, to changes of rows.

The rules are those of the engine's recovery (hms/engine/log/recovery.py), so that what is read back
is what recovery would have made of the records themselves."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from hms.records import (
    Definition,
    Kept,
    RecordType,
    Sent,
    Stay,
    bits,
    decode_definition,
    decode_dictionary,
    decode_group,
    decode_memory,
    decode_moved,
    decode_node_event,
    decode_number,
    decode_ranges,
    decode_sent,
    defined,
)
from hms.store.database.deduplication_rows import Remembered
from hms.store.database.message_steps import DELIVERED, FAILED, RELEASED
from hms.store.database.pending import PendingRows
from hms.store.database.row_changes import Changes
from hms.store.database.rows import DefinitionRow, Entry, MessageRow, Meta
from hms.wire.packed_messages import ROW

NODE_INDEX_SHIFT = 40
"""A message id's upper bits are the index of the node that gave it (docs/decisions/0004)."""

Payload = bytes | memoryview


class Translation:
    """Feed it the records of one transaction; `changes` and `meta_after` are what to write."""

    def __init__(self, meta: Meta, remembered: Remembered, pending: PendingRows) -> None:
        self.changes = Changes()
        self._meta, self._remembered, self.pending = meta, remembered, pending
        self._next_number, self._next_seq = meta.next_number, meta.next_seq
        self._now_ms = meta.now_ms
        self._event = (meta.event, meta.event_ms)
        self._lsn = 0
        self._apply: dict[int, Callable[[Payload, int], None]] = {
            RecordType.DEFINED: self._defined,
            RecordType.UNDEFINED: self._undefined,
            RecordType.SENT: self._sent,
            RecordType.DELIVERED: lambda payload, _: self._step(payload, DELIVERED),
            RecordType.ACKNOWLEDGED: self._left,
            RecordType.DISCARDED: self._left,
            RecordType.FAILED: lambda payload, _: self._step(payload, FAILED),
            RecordType.RELEASED: lambda payload, _: self._step(payload, RELEASED),
            RecordType.GROUP: self._group,
            RecordType.RESERVED: self._reserved,
            RecordType.DICTIONARY: self._dictionary,
            RecordType.NODE: self._node,
            RecordType.IDENTITY: pending.identity,
            RecordType.MOVED: self._moved,
            RecordType.MEMORY: self._memory,
            RecordType.PREPARED: pending.prepared,
            RecordType.HEURISTIC: pending.heuristic,
            RecordType.ENDED: pending.ended,
            RecordType.DECIDED: pending.decided,
            RecordType.FORGOTTEN: pending.forgotten,
        }

    @property
    def types(self) -> frozenset[int]:
        """The types of records that the tables can keep."""
        return frozenset(self._apply)

    def apply(self, lsn: int, kind: int, payload: Payload, position: int) -> None:
        """One record; a type that this version does not know raises KeyError."""
        self._lsn = self.pending.lsn = lsn
        self._apply[kind](payload, position)

    def apply_all(self, entries: Sequence[Entry]) -> bytes:
        """Records that lie one behind the other; their payloads as one."""
        blob = b"".join([part for entry in entries for part in entry.parts])
        view, base = memoryview(blob), entries[0].position
        for entry in entries:
            start = entry.position - base
            payload = view[start : start + entry.length]
            self.apply(entry.lsn, entry.kind, payload, entry.position)
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

    # one method per record type

    def _defined(self, payload: Payload, _position: int) -> None:
        self._define(decode_definition(payload), bytes(payload))

    def _define(self, definition: Definition, encoded: bytes) -> None:
        self.changes.definitions[definition.number] = DefinitionRow(
            definition.number,
            definition.kind,
            _readable(definition.name),
            definition.topic,
            _readable(definition.client_id),
            _readable(definition.selector),
            encoded,
        )
        self._next_number = max(self._next_number, definition.number + 1)

    def _undefined(self, payload: Payload, _position: int) -> None:
        self.changes.end_place(decode_number(payload))

    def _dictionary(self, payload: Payload, _position: int) -> None:
        content = decode_dictionary(payload)
        for definition in content.definitions:
            self._define(definition, bytes(defined(definition).parts[0]))
        self._below(content.ids_below)
        self._next_number = max(self._next_number, content.next_number)
        self._next_seq = max(self._next_seq, content.next_seq)
        self._now_ms = max(self._now_ms, content.now_ms)

    def _sent(self, payload: Payload, position: int) -> None:
        record = decode_sent(payload)
        start = position + record.pack_offset + ROW.size * record.message_count
        positions = self._new_messages(record, start)
        hold, first_id, is_new = self.changes.hold, record.first_message_id, not record.is_forwarded
        due = _due_times(record)
        for holder, marks in record.placements:
            for i, is_here in enumerate(bits(marks, record.message_count)):
                if is_here:
                    stay = Stay(holder, due_ms=due[i]) if due else Stay(holder)
                    hold(first_id + i, positions[i], stay, is_new=is_new)
        self._next_seq = max(self._next_seq, record.first_seq + record.message_count)
        self._now_ms = max(self._now_ms, record.timestamp_ms)
        if record.first_sequence:
            self._remembered.sent(record, self._lsn)

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

    def _step(self, payload: Payload, step: str) -> None:
        holder, ids = self._of(payload)
        self.changes.step(holder, ids, step)

    def _left(self, payload: Payload, _position: int) -> None:
        holder, ids = self._of(payload)
        self.changes.leave(holder, ids)

    def _group(self, payload: Payload, position: int) -> None:
        group = decode_group(payload)
        for record, offset in zip(group.records, group.offsets, strict=True):
            self._apply[record.type](record.parts[0], position + offset)
        if group.commit:
            who = (group.client_uid, group.session, group.commit)
            self._remembered.committed(*who, self._lsn)

    def _reserved(self, payload: Payload, _position: int) -> None:
        self._below(decode_number(payload))

    def _node(self, payload: Payload, _position: int) -> None:
        event = decode_node_event(payload)
        self._event = (_readable(event.what), event.at_ms)

    def _moved(self, payload: Payload, position: int) -> None:
        kept, start = decode_moved(payload)
        at = position + start
        for one in kept:
            destination = one.stays[0].number if one.stays else 0
            self.changes.add(MessageRow(at, one.id, one.seq, destination, *_rest(one)))
            for stay in one.stays:
                self.changes.hold(one.id, at, stay, is_new=False)
            at += one.head_bytes + one.body_bytes
            self._next_seq = max(self._next_seq, one.seq + 1)

    def _memory(self, payload: Payload, _position: int) -> None:
        content = decode_memory(payload)
        self._remembered.restated(content, self._lsn)
        self.pending.restated(content)

    def _of(self, payload: Payload) -> tuple[int, Iterable[int]]:
        """The place that a record of ranges speaks of, and the message ids."""
        record = decode_ranges(payload)
        self._now_ms = max(self._now_ms, record.at_ms)
        return record.number, _ids(record.ranges)

    def _below(self, below: int) -> None:
        if below:
            index, known = below >> NODE_INDEX_SHIFT, self.changes.ids_below
            known[index] = max(known.get(index, 0), below)


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
