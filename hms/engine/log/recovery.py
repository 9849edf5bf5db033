"""Recovery: the same state from the log (F-H1 … F-H4).

Records are applied in the order in which they were written, by the transitions that a store in
tables uses too (hms/records/transitions.py). A recovery may follow a log that still grows, and stop
behind any record: the state's tables and `places` then are as the log has them so far. finish()
takes the log over: what a DELIVERED record had out and nothing settled waits again, flagged as
redelivered, because its consumer is gone (LOST). What a transaction had not committed is not in the
log at all. The log's beginning may have been retired: a record can speak of messages that left
before, and a message may be told of twice, by its SENT record and by a later MOVED or PINNED one,
of which the later counts.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from hms.engine.cluster.move_recovery import OffersFound
from hms.engine.log.live_index import SEGMENT_SHIFT, offsets_of
from hms.engine.log.logged_place import LoggedPlace
from hms.engine.log.packed_block import BodyReader, packed, packed_sends
from hms.engine.log.paging import page_out
from hms.engine.log.pinned_recovery import (
    PinnedBatch,
    PinnedReader,
    PinnedStub,
    in_blocks,
    message_of,
    messages_of,
    no_pinned,
    resolve,
    resolve_of,
    take_batches,
    take_batches_of,
)
from hms.engine.log.state_records import STATE_TRANSITIONS, StateTables
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage
from hms.engine.queue.delays import due_times
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.schedule.schedule_records import recover_schedules
from hms.engine.session.deduplication import Taken
from hms.engine.state import State
from hms.engine.topic.retention import recover_retained
from hms.engine.xa.branch_records import RecoveredBranches
from hms.records import (
    Kept,
    NodeEvent,
    Ranges,
    RecordType,
    Sent,
    Stay,
    bits,
    decode_arrived,
    decode_offer_ended,
    decode_offered,
    decode_sent,
)
from hms.records.message_states import LOST, OFFERED, RETURNED, Steps
from hms.records.pinned import PinnedRun, decode_pinned
from hms.records.transitions import Payload, Transition, transitions_of
from hms.wire.packed_messages import KIND_FILE
from hms.wire.record_runs import RUN, SingleSends, records_of_sends, sends_in

__all__ = ["Recovery"]


class Recovery(StateTables):
    """Feed it every record of a log in order; finish() when its own records follow."""

    def __init__(
        self,
        state: State,
        pinned: PinnedReader = no_pinned,
        read: BodyReader | None = None,
    ) -> None:
        super().__init__(state)
        self._read_pinned = pinned
        self._read = read
        self._first_segment: int | None = None
        """Where the log begins; what it tells of an older segment lies behind it."""
        self._lives = 0
        """How often the node was booted so far."""
        self._tellings: dict[int, list[tuple[int, int]]] = {}
        """In which segments the tellings of a pinned one begin, and in which of these lives."""
        self._unread: set[int] = set()
        """Pinned segments that records name since read_pinned() has read them."""
        self._paging_bytes = state.settings.paging_share * state.settings.memory_bytes_max
        self.places: dict[int, LoggedPlace] = {}
        """What the log has of each place so far, by its number."""
        self.branches = RecoveredBranches(state)
        self.offers = OffersFound(state)
        self._transitions: dict[int, Transition] = {
            **{kind: partial(change, self) for kind, change in STATE_TRANSITIONS.items()},
            **transitions_of(self),
            **self.branches.handlers,
            RecordType.OFFERED: self._offered,
            RecordType.OFFER_ENDED: self._offer_ended,
            RecordType.ARRIVED: self._arrived,
            RecordType.PINNED: self._pinned,
            RecordType.SENT | RUN: self._sent_each,
        }

    def apply(self, kind: int, payload: Payload, position: int = 0) -> None:
        """One record, whose payload lies at that position; a type that this version does not know
        raises KeyError."""
        if self._first_segment is None:
            self._first_segment = position >> SEGMENT_SHIFT
        self._transitions[kind](payload, position)

    def finish(self, behind: Collection[int] = (), oldest: int = 0) -> None:
        """What was out waits again, unless a prepared branch has it; indexes and counters are those
        of a fresh node. behind: pinned segments that lie behind the log, which may have moved on
        since this recovery read it; oldest: the segment that it begins with now."""
        state = self.state
        first = self._first_segment or 0
        for number, tellings in self._tellings.items():
            if number < first or number in behind:
                places = [at for at, _ in tellings]
                here = (at for at in places if at >= oldest)
                state.blocks.pinned[number] = next(here, places[-1])
        self.branches.read()
        self._resolve()
        for number, logged in self.places.items():
            place = state.places.get(number)
            if place is not None:
                self._fill(place, logged)
        self.places.clear()
        state.ids.taken_over()
        state.memories.restored()
        self.branches.finish()
        recover_retained(state)
        recover_schedules(state)

    def _fill(self, place: Queue | Subscription, logged: LoggedPlace) -> None:
        line, out = place.line, dict(logged.out)
        logged.step_each(LOST, [i for i in out if not self._is_held(place.number, i)])
        if not place.takes_packed:
            logged.open_all()
        line.recovered([*logged.waiting.values(), *logged.out.values()], logged.packed())
        line.history.update(logged.history)
        line.count_anew()
        if line.groups is not None:
            self.state.order_clock = max(self.state.order_clock, line.groups.clock)
        self.state.waiting_bytes += line.size_bytes
        self.offers.fill(place, out)
        for message_id, due_ms in logged.due.items():
            line.delay(logged.waiting[message_id], due_ms)
            self.state.wake_at(due_ms, place)
        self.branches.take(place, out)

    def _is_held(self, number: int, message_id: int) -> bool:
        """By a branch in doubt, or an offer without an answer."""
        return self.branches.holds(number, message_id) or self.offers.has(number, message_id)

    # what records change beside the tables

    def undefine(self, number: int) -> None:
        """What it holds is gone with it."""
        super().undefine(number)
        logged = self.places.pop(number, None)
        if logged is not None:
            logged.end()

    def sent(self, record: Sent, position: int) -> None:
        """Messages wait where the node knows a place by that number."""
        state = self.state
        state.ids.reserved(record.first_message_id + record.message_count)
        if self._placed_packed(record, position):
            return
        rows = record.rows()
        messages = messages_of(record, rows)
        if KIND_FILE in [row.kind for row in rows]:
            messages = state.files.watched(messages)
        due = due_times(rows, record.first_message_id, record.timestamp_ms)
        for number, marks in record.placements:
            if number in state.places:
                flags = bits(marks, record.message_count)
                chosen = [m for m, is_here in zip(messages, flags, strict=True) if is_here]
                self._place(number).hold(chosen, due)
        self._set_position(messages, position)

    def _place(self, number: int) -> LoggedPlace:
        found = self.places.get(number)
        if found is None:
            found = self.places[number] = LoggedPlace(number)
        return found

    def _placed_packed(self, record: Sent, position: int) -> bool:
        """Whether the batch waits as it lies in the log."""
        number = record.placements[0].number if record.placements else 0
        place, blocks = self.state.places.get(number), self.state.blocks
        if self._read is None or place is None or not place.takes_packed:
            return False
        block = packed(record, blocks, self._read)
        if block is None:
            return False
        blocks.add_whole(block, position)
        self._place(number).hold_packed(block)
        if self._is_memory_full():
            block.opened(is_resident=False)
        return True

    def _sent_each(self, payload: Payload, position: int) -> None:
        """Messages came one by one: those that only wait stay as they lie."""
        payload, last_used = memoryview(payload), dict[tuple[int, int], int]()
        for found in sends_in(payload, position):
            if not isinstance(found, SingleSends) or not self._placed_sends(found):
                for record, at in records_of_sends(found, payload, position):
                    self._transitions[RecordType.SENT](record, at)
                    sent = decode_sent(record)
                    key = sent.client_uid, sent.producer
                    last_used[key] = max(at, last_used.get(key, 0))
                continue
            self.at(max(found.times_ms))
            self.numbered(ids_below=found.ids[-1] + 1, next_seq=found.seqs[-1] + 1)
            batches_max = self.state.settings.frames_in_flight_max
            for key, last in self.state.memories.remember_sends(found, batches_max).items():
                last_used[key] = max(found.positions[last], last_used.get(key, 0))
        self.state.memories.used(sorted(last_used, key=last_used.__getitem__))

    def _placed_sends(self, sends: SingleSends) -> bool:
        """Whether they wait as they lie in the log."""
        place = self.state.places.get(sends.number)
        if self._read is None or place is None or not place.takes_packed:
            return False
        block = packed_sends(sends, self.state.blocks, self._read)
        if block is None:
            return False
        self.state.blocks.add_whole(block, sends.positions[0])
        self._place(sends.number).hold_packed(block)
        if self._is_memory_full():
            block.opened(is_resident=False)
        return True

    def _set_position(self, messages: Sequence[StoredMessage], position: int) -> None:
        """Note where those lie that a place holds; the first one's bytes at that position."""
        self._set_positions(messages, offsets_of(messages, 0), position)

    def _set_positions(
        self, messages: Sequence[StoredMessage], offsets: Sequence[int], position: int
    ) -> None:
        held = [(m, at) for m, at in zip(messages, offsets, strict=True) if m.holders]
        blocks = self.state.blocks
        log_position = blocks.add([m for m, _ in held], [at for _, at in held])
        if log_position is not None:
            log_position.placed(position)
            if self._is_memory_full():
                page_out(self.state, [m for m, _ in held])

    def _is_memory_full(self) -> bool:
        blocks = self.state.blocks
        paged_bytes = blocks.paged_bytes - OVERHEAD_BYTES * blocks.paged_count
        return blocks.live_bytes - paged_bytes > self._paging_bytes

    def taken(self, record: Sent) -> None:
        """One that comes again is recognised."""
        memories, first = self.state.memories, record.first_sequence
        taken = Taken(record.first_message_id, record.timestamp_ms, record.message_count)
        batches_max = self.state.settings.frames_in_flight_max
        memories.remember(record.client_uid, record.producer, first, taken, batches_max)

    def moved(self, kept: Sequence[Kept], payload: Payload, start: int, position: int) -> None:
        """Messages are at these places, and lie here from now on."""
        view, at = memoryview(payload), start
        messages = []
        for one in kept:
            length = one.head_bytes + one.body_bytes
            message = message_of(one, bytes(view[at : at + length]))
            if one.kind == KIND_FILE:
                message = self.state.files.watch(message)
            at += length
            messages.append(message)
            for stay in one.stays:
                if stay.number in self.state.places:
                    self._place(stay.number).stay(message, stay)
                    self.offers.stays(stay, message.id)
        self._set_position(messages, position)

    def _pinned(self, payload: Payload, position: int) -> None:
        """Messages of an older segment are at these places, and stay where they lie. Of one that
        was read as part of this log everything is known already."""
        told = decode_pinned(payload)
        if not told.part:
            self._telling(told.segment, position >> SEGMENT_SHIFT)
        if self._first_segment is None or told.segment >= self._first_segment:
            self._delayed(told.runs)
            return
        self._unread.add(told.segment)
        for run in told.runs:
            batch = PinnedBatch.of(told.segment, run)
            if batch is not None and self._holds_pinned(batch):
                continue
            stubs = [PinnedStub.at(id_, told.segment, offset) for id_, offset in run.each()]
            for stay in run.stays:
                if stay.number in self.state.places:
                    self._stay(stubs, stay)

    def _telling(self, segment: int, at: int) -> None:
        """A telling of a pinned segment begins. A crash may have left it without its end: what only
        the one before it has would be lost with that. One that another follows in the same life is
        whole."""
        begun = self._tellings.setdefault(segment, [])
        if begun and begun[-1][1] == self._lives:
            del begun[:-1]
        begun.append((at, self._lives))

    def node_event(self, event: NodeEvent) -> None:
        """A new life of the node begins."""
        super().node_event(event)
        self._lives += event.what == "booted"

    def _delayed(self, runs: Sequence[PinnedRun]) -> None:
        """For when messages wait that came back: returns of an older release do not say it. Those
        of which it is not said any more have had their time."""
        for run in runs:
            for stay in run.stays:
                logged = self.places.get(stay.number)
                if logged is not None and (stay.due_ms or logged.due):
                    logged.delay([message_id for message_id, _ in run.each()], stay.due_ms)

    def _holds_pinned(self, batch: PinnedBatch) -> bool:
        """Whether the messages wait as a batch, until the segment is read."""
        place = self.state.places.get(batch.number)
        if self._read is None or place is None or self.offers.undecided:
            return False
        logged = self._place(batch.number)
        logged.leave(((batch.first_id, batch.last_id),))
        logged.hold_packed(batch)
        return True

    def _stay(self, stubs: Sequence[PinnedStub], stay: Stay) -> None:
        """Messages are at a place in the same way; most only wait there."""
        place = self._place(stay.number)
        if stay == Stay(stay.number) and not self.offers.undecided:
            place.leave([(stub.id, stub.id) for stub in stubs])
            place.hold(stubs, {})
            return
        for stub in stubs:
            place.stay(stub, stay)
            self.offers.stays(stay, stub.id)

    def _resolve(self) -> None:
        """Pinned messages that are still there are read."""
        files = self.state.files
        placing = self._placed_packed, self._placed_sends
        take_batches(self.places.values(), self._read_pinned, *placing)
        for segment, found in resolve(self.places.values(), self._read_pinned, files.watch):
            for messages, offsets in in_blocks(found):
                self._set_positions(messages, offsets, segment << SEGMENT_SHIFT)

    @property
    def has_unread(self) -> bool:
        """Whether records name pinned segments that nobody has read since."""
        return bool(self._unread)

    def read_pinned(self, read: PinnedReader) -> Iterator[None]:
        """What pinned segments have of the messages that are there now, so that finish() need not
        read them; yields often, and records may come in between."""
        while self._unread:
            segment = self._unread.pop()
            places, watch = self.places.values, self.state.files.watch
            placing = self._placed_packed, self._placed_sends
            yield from take_batches_of(segment, places(), read, *placing)
            for found in resolve_of(segment, [*places()], read, watch):
                for messages, offsets in in_blocks(found or {}):
                    self._set_positions(messages, offsets, segment << SEGMENT_SHIFT)
                yield

    def step(self, _kind: RecordType, steps: Steps, told: Ranges) -> None:
        """Live the pending list does the same (hms/engine/queue/pending_list.py)."""
        logged = self.places.get(told.number)
        if logged is not None:
            logged.step(steps, told.ranges, told.due_ms)

    def leave(self, told: Ranges) -> None:
        """Those of the messages that are there leave."""
        logged = self.places.get(told.number)
        if logged is not None:
            logged.leave(told.ranges)

    # offers of and to other nodes

    def _offered(self, payload: Payload, position: int) -> None:
        STATE_TRANSITIONS[RecordType.OFFERED](self, payload, position)
        told = decode_offered(payload)
        logged = self.places.get(told.place)
        if logged is not None:
            logged.open_in(told.spans)
            waiting = [i for i in _ids(told.spans) if i in logged.waiting]
            logged.step_each(OFFERED, waiting)
            for message_id in waiting:
                self.offers.offered(told, message_id)

    def _offer_ended(self, payload: Payload, _position: int) -> None:
        told = decode_offer_ended(payload)
        for number, message_id in self.offers.ended(told):
            logged = self.places.get(number)
            if logged is not None:  # one that was accepted has left
                logged.step_each(LOST if told.is_redelivered else RETURNED, (message_id,))

    def _arrived(self, payload: Payload, position: int) -> None:
        STATE_TRANSITIONS[RecordType.ARRIVED](self, payload, position)
        told = decode_arrived(payload)
        logged = self.places.get(told.place)
        if logged is not None:
            for message_id, deliveries, attempts in told.returned:
                logged.count(message_id, deliveries, attempts)


def _ids(spans: Iterable[tuple[int, int]]) -> list[int]:
    return [message_id for first, last in spans for message_id in range(first, last + 1)]
