"""Recovery: the same state from the log (F-H1 … F-H4).

Records are applied in the order in which they were written. What a DELIVERED record had out and
nothing settled is put back at the end, flagged as redelivered: its consumer is gone (LOST). What
a transaction had not committed is not in the log at all. The log's beginning may have been retired:
a record can speak of messages that left before, and a message may be told of twice, by its SENT
record and by a later MOVED one, of which the later counts.
"""

from collections.abc import Callable, Mapping, Sequence

from hms.engine.admin.counters import Counters
from hms.engine.cluster.move_recovery import OffersFound
from hms.engine.log.live_index import hold, offsets_of
from hms.engine.log.paging import page_out
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage, make_messages
from hms.engine.queue.delays import due_times
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.pending_list import told_counts
from hms.engine.schedule.schedule_records import recover_schedules
from hms.engine.session.deduplication import Taken
from hms.engine.state import State
from hms.engine.topic.retention import recover_retained
from hms.engine.xa.branch_records import RecoveredBranches
from hms.records import (
    Definition,
    Kept,
    RecordType,
    Sent,
    Stay,
    bits,
    decode_arrived,
    decode_definition,
    decode_dictionary,
    decode_entries,
    decode_group,
    decode_identity,
    decode_memory,
    decode_moved,
    decode_node_event,
    decode_number,
    decode_offer_ended,
    decode_offered,
    decode_peers,
    decode_ranges,
    decode_sent,
)
from hms.records.audit import decode_audit
from hms.wire.packed_messages import KIND_FILE, ROW

Payload = bytes | memoryview


class _Found:
    """What a place holds so far."""

    __slots__ = ("delayed", "here", "history", "out")

    def __init__(self) -> None:
        self.here: dict[int, StoredMessage] = {}
        self.out: dict[int, StoredMessage] = {}
        self.history: dict[int, tuple[int, int]] = {}
        self.delayed: dict[int, int] = {}

    def pop(self, message_id: int) -> StoredMessage | None:
        """A message that is not there any more."""
        message = self.out.pop(message_id, None) or self.here.pop(message_id, None)
        if message is not None:
            self.history.pop(message_id, None)
            self.delayed.pop(message_id, None)
        return message


class Recovery:
    """Feed it every record of the log in order, then finish()."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._paging_bytes = state.settings.paging_share * state.settings.memory_bytes_max
        self._found: dict[int, _Found] = {}
        self._branches = RecoveredBranches(state)
        self._offers = OffersFound(state)
        self._apply: dict[int, Callable[[Payload, int], None]] = {
            RecordType.DEFINED: self._defined,
            RecordType.UNDEFINED: self._undefined,
            RecordType.SENT: self._sent,
            RecordType.DELIVERED: self._delivered,
            RecordType.ACKNOWLEDGED: self._left,
            RecordType.DISCARDED: self._left,
            RecordType.FAILED: self._failed,
            RecordType.RELEASED: self._released,
            RecordType.GROUP: self._group,
            RecordType.RESERVED: self._reserved,
            RecordType.DICTIONARY: self._dictionary,
            RecordType.NODE: self._node_event,
            RecordType.IDENTITY: self._identity,
            RecordType.AUDIT: self._audit,
            RecordType.MOVED: self._moved,
            RecordType.MEMORY: self._memory,
            **self._branches.handlers,
            RecordType.OFFERED: self._offered,
            RecordType.ENTRIES: self._entries,
            RecordType.ARRIVED: self._arrived,
            RecordType.OFFER_ENDED: self._offer_ended,
            RecordType.PEERS: lambda payload, _: state.moves.restore(decode_peers(payload)),
        }

    def apply(self, kind: int, payload: Payload, position: int = 0) -> None:
        """One record, whose payload lies at that position; a type that this version does not know
        raises KeyError."""
        self._apply[kind](payload, position)

    def _audit(self, payload: Payload, _: int) -> None:
        entry = decode_audit(payload)
        self._state.audit.restore(entry.number, entry.hash)

    def finish(self) -> None:
        """What was out waits again, unless a prepared branch has it; indexes and counters are those
        of a fresh node."""
        self._branches.read()
        for number, found in self._found.items():
            place = self._state.places.get(number)
            if place is not None:
                self._fill(place, found)
        self._found.clear()
        self._state.memories.restored()
        self._branches.finish()
        recover_retained(self._state)
        recover_schedules(self._state)

    def _fill(self, place: Queue | Subscription, found: _Found) -> None:
        line = place.line
        for message_id in found.out:
            if self._branches.holds(place.number, message_id):
                continue
            if not self._offers.has(place.number, message_id):
                deliveries, attempts = found.history.get(message_id, (0, 0))
                found.history[message_id] = (deliveries + 1, attempts)
        messages = [*found.here.values(), *found.out.values()]
        messages.sort(key=lambda m: m.seq)
        line.add(messages)
        line.history.update(found.history)
        line.counters = Counters()
        if line.tracks is not None:
            self._state.order_clock = max(self._state.order_clock, line.tracks.clock)
        self._state.waiting_bytes += line.size_bytes
        self._offers.fill(place, found.out)
        for message_id, due_ms in found.delayed.items():
            line.delay(found.here[message_id], due_ms)
            self._state.wake_at(due_ms, place)
        self._branches.take(place, found.out)

    # one method per record type

    def _defined(self, payload: Payload, _position: int) -> None:
        self._define(decode_definition(payload))

    def _dictionary(self, payload: Payload, _position: int) -> None:
        content = decode_dictionary(payload)
        for definition in content.definitions:
            self._define(definition)
        state = self._state
        state.ids.recovered(content.ids_below)
        state.next_number = max(state.next_number, content.next_number)
        state.next_seq = max(state.next_seq, content.next_seq)
        state.now_ms = max(state.now_ms, content.now_ms)
        if content.identity.store:
            state.identity = content.identity
        state.audit.restore(content.audit_number, content.audit_head)

    def _node_event(self, payload: Payload, _position: int) -> None:
        self._state.now_ms = max(self._state.now_ms, decode_node_event(payload).at_ms)

    def _identity(self, payload: Payload, _position: int) -> None:
        self._state.identity = decode_identity(payload)

    def _define(self, definition: Definition) -> None:
        """Only what is not known yet: a segment's dictionary tells again what was defined before
        it, and may be taken just before the record that it tells of."""
        state = self._state
        known = state.places.get(definition.number)
        if isinstance(known, Subscription):
            state.redefine(known, definition)
        elif known is None and not state.space.defines(definition.number):
            state.define(definition)
        elif definition.kind in ("queue", "topic"):
            target = known if isinstance(known, Queue) else state.space.numbered(definition.number)
            if target is not state.space.base:
                state.reconfigure(target, definition)

    def _undefined(self, payload: Payload, _position: int) -> None:
        number, state = decode_number(payload), self._state
        place = state.places.get(number)
        if isinstance(place, Subscription):
            state.undefine(place)
        elif place is not None:
            state.undefine_destination(place)
        elif state.space.defines(number):
            state.undefine_destination(state.space.numbered(number))
        found = self._found.pop(number, _Found())
        for message in (*found.here.values(), *found.out.values()):
            _let_go(message, number)

    def _sent(self, payload: Payload, position: int) -> None:
        record = decode_sent(payload)
        rows = record.rows()
        state = self._state
        messages = make_messages(
            rows,
            record.payloads(rows),
            record.first_message_id,
            record.first_seq,
            record.timestamp_ms,
            is_persistent=True,
        )
        if KIND_FILE in [row.kind for row in rows]:
            messages = state.files.watched(messages)
        state.next_seq = max(state.next_seq, record.first_seq + record.message_count)
        if not record.is_forwarded:  # another node's clock may have said when that was sent
            state.now_ms = max(state.now_ms, record.timestamp_ms)
        state.ids.recovered(record.first_message_id + record.message_count)
        due = due_times(rows, record.first_message_id, record.timestamp_ms)
        for number, marks in record.placements:
            if number in state.places:
                flags = bits(marks, record.message_count)
                chosen = [m for m, is_here in zip(messages, flags, strict=True) if is_here]
                self._hold(chosen, number)
                self._delay(chosen, due, number)
        self._land(messages, ROW.size * record.message_count, position + record.pack_offset)
        self._remember(record)

    def _hold(self, messages: Sequence[StoredMessage], number: int) -> None:
        found = self._found.setdefault(number, _Found())
        hold(messages, number)
        found.here.update([(m.id, m) for m in messages])

    def _delay(
        self, messages: Sequence[StoredMessage], due: Mapping[int, int], number: int
    ) -> None:
        if due:
            found = self._found[number]
            found.delayed.update((m.id, due[m.id]) for m in messages if m.id in due)

    def _land(self, messages: Sequence[StoredMessage], start: int, position: int) -> None:
        """Note where those lie that a place holds; the first one's bytes at position + start."""
        offsets = offsets_of(messages, start)
        held = [(m, at) for m, at in zip(messages, offsets, strict=True) if m.holders]
        landing = self._state.blocks.add([m for m, _ in held], [at for _, at in held])
        if landing is not None:
            landing.landed(position)
            blocks = self._state.blocks
            paged_bytes = blocks.paged_bytes - OVERHEAD_BYTES * blocks.paged_count
            if blocks.live_bytes - paged_bytes > self._paging_bytes:
                page_out(self._state, [m for m, _ in held])

    def _remember(self, record: Sent) -> None:
        if record.first_sequence:
            memory = self._state.memories.producer(record.client_uid, record.producer)
            taken = Taken(record.first_message_id, record.timestamp_ms, record.message_count)
            batches_max = self._state.settings.frames_in_flight_max
            memory.remember(record.first_sequence, taken, batches_max)

    def _moved(self, payload: Payload, position: int) -> None:
        kept, start = decode_moved(payload)
        view, at = memoryview(payload), start
        messages = []
        for one in kept:
            length = one.head_bytes + one.body_bytes
            message = _message(one, bytes(view[at : at + length]))
            if one.kind == KIND_FILE:
                message = self._state.files.watch(message)
            at += length
            messages.append(message)
            for stay in one.stays:
                self._stay(message, stay)
            self._state.next_seq = max(self._state.next_seq, one.seq + 1)
        self._land(messages, 0, position + start)

    def _stay(self, message: StoredMessage, stay: Stay) -> None:
        """The message is at this place, whatever was known of it there before."""
        if stay.number not in self._state.places:
            return
        found = self._found.setdefault(stay.number, _Found())
        before = found.pop(message.id)
        if before is not None:
            _let_go(before, stay.number)
        hold([message], stay.number)
        self._offers.stays(stay, message.id)
        (found.out if stay.is_out else found.here)[message.id] = message
        if stay.deliveries or stay.attempts:
            found.history[message.id] = told_counts(stay.deliveries, stay.attempts)
        if stay.due_ms:
            found.delayed[message.id] = stay.due_ms

    def _memory(self, payload: Payload, _position: int) -> None:
        content = decode_memory(payload)
        self._state.memories.restore(content)
        for xid in content.branches:
            self._state.branches.remember(xid)

    def _delivered(self, payload: Payload, _position: int) -> None:
        _, found, ids = self._of(payload)
        for message_id in ids:
            message = found.here.pop(message_id, None)
            if message is not None:
                found.out[message_id] = message
                found.delayed.pop(message_id, None)
            elif message_id in found.out:  # its consumer was lost in between
                deliveries, attempts = found.history.get(message_id, (0, 0))
                found.history[message_id] = (deliveries + 1, attempts)

    def _left(self, payload: Payload, _position: int) -> None:
        number, found, ids = self._of(payload)
        for message_id in ids:
            message = found.pop(message_id)
            if message is not None:
                _let_go(message, number)

    def _failed(self, payload: Payload, _position: int) -> None:
        self._back(payload, 1, 1)

    def _released(self, payload: Payload, _position: int) -> None:
        self._back(payload, 0, 0)

    def _back(self, payload: Payload, deliveries: int, attempts: int) -> None:
        _, found, ids = self._of(payload)
        for message_id in ids:
            message = found.out.pop(message_id, None)
            if message is None:
                continue
            found.here[message_id] = message
            before = found.history.get(message_id, (0, 0))
            after = (before[0] + deliveries, before[1] + attempts)
            if after[0]:
                found.history[message_id] = after

    def _group(self, payload: Payload, position: int) -> None:
        group = decode_group(payload)
        for record, offset in zip(group.records, group.offsets, strict=True):
            self._apply[record.type](record.parts[0], position + offset)
        if group.commit:
            self._state.memories.committed(group.client_uid, group.session, group.commit)

    def _entries(self, payload: Payload, _position: int) -> None:
        found = decode_entries(payload)
        self._state.moves.directory.update(((one.kind, one.name), one) for one in found)

    def _offered(self, payload: Payload, _position: int) -> None:
        told = decode_offered(payload)
        self._offers.numbered(told)
        found = self._found.get(told.place, _Found())
        for first, last in told.spans:
            for message_id in range(first, last + 1):
                message = found.here.pop(message_id, None)
                if message is not None:
                    found.out[message_id] = message
                    found.delayed.pop(message_id, None)
                    self._offers.offered(told, message_id)

    def _offer_ended(self, payload: Payload, _position: int) -> None:
        told = decode_offer_ended(payload)
        for number, message_id in self._offers.ended(told):
            found = self._found.get(number, _Found())
            message = found.out.pop(message_id, None)
            if message is None:
                continue  # it was accepted, and has left
            found.here[message_id] = message
            if told.is_redelivered:
                deliveries, attempts = found.history.get(message_id, (0, 0))
                found.history[message_id] = (deliveries + 1, attempts)

    def _arrived(self, payload: Payload, _position: int) -> None:
        told = decode_arrived(payload)
        self._state.now_ms = max(self._state.now_ms, told.at_ms)
        accepted = told.is_accepted
        self._state.moves.answered(told.source, told.store, told.offer, is_accepted=accepted)
        found = self._found.get(told.place)
        if found is not None:
            returned = told.returned
            found.history.update({id_: told_counts(n, failed) for id_, n, failed in returned})

    def _reserved(self, payload: Payload, _position: int) -> None:
        self._state.ids.recovered(decode_number(payload))

    def _of(self, payload: Payload) -> tuple[int, _Found, list[int]]:
        """The place that a record of ranges speaks of, and the message ids."""
        record = decode_ranges(payload)
        self._state.now_ms = max(self._state.now_ms, record.at_ms)
        found = self._found.get(record.number)
        if found is None:
            return record.number, _Found(), []
        return (
            record.number,
            found,
            [message_id for first, last in record.ranges for message_id in range(first, last + 1)],
        )


def _message(kept: Kept, payload: bytes) -> StoredMessage:
    return StoredMessage.of(
        kept.id,
        kept.seq,
        kept.timestamp_ms,
        kept.expires_at_ms,
        kept.priority,
        kept.kind,
        kept.head_bytes,
        payload,
        is_persistent=True,
    )


def _let_go(message: StoredMessage, number: int) -> None:
    """A place holds the message no more."""
    if message.block is not None:
        message.block.left(message, number)
