"""Queue send: a batch is checked, numbered, placed in its queue or subscriptions, and recorded."""

import msgspec
from msgspec import structs

from hms.engine.effects import Confirm, Effects, Refusal
from hms.engine.flow.limits import check_batch, check_rows, memory_obstacle, obstacle_to
from hms.engine.flow.open_transactions import check_open_work
from hms.engine.flow.overflow_policy import make_room
from hms.engine.flow.room_wait import Obstacle, Waiting
from hms.engine.groups.global_order import stamp_bytes, stamped_with_clock
from hms.engine.groups.group_checks import check_ordering
from hms.engine.log.live_index import offsets_of
from hms.engine.log.paging import check_memory, page_out_new
from hms.engine.messages import OVERHEAD_BYTES, make_messages
from hms.engine.queue.delays import NOT_DELAYED, due_times, stamped_with_time, time_stamp_bytes
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.file_rules import check_files
from hms.engine.queue.incoming import (
    DELAYED,
    FILES,
    HEADS,
    ORDERED,
    Incoming,
    accepted,
    check_values,
)
from hms.engine.queue.sender_identity import with_sender
from hms.engine.session.deduplication import WITHDRAWN, Taken
from hms.engine.session.session_objects import Connection, PendingBatch, Producer, Work
from hms.engine.state import State
from hms.engine.topic.answers import Answers
from hms.engine.topic.asking import ask_waiting
from hms.engine.topic.audience import check_publication, record_bytes, retained_at
from hms.engine.topic.publication import (
    Stored,
    awake,
    messages_of,
    store_publication,
)
from hms.engine.topic.spreading import delay
from hms.errors.catalogue import (
    HandleUnknown,
    NodeFull,
    NodeQuota,
    SendInDoubt,
    SendWithdrawn,
    TooManyRequests,
    TransactionRolledBack,
    TransactionTooLarge,
    TransactionTooLong,
)
from hms.records import MESSAGES_PER_BATCH_MAX, group, sent_to_queue
from hms.wire.packed_messages import ROW, slice_payloads, unpack_rows

ACKNOWLEDGED_BYTES = 64
"""What an acknowledgement costs in a transaction's size."""
BATCH_BYTES = 128
"""What a batch costs in a record beside its pack; more than its head and place."""
MESSAGE_BYTES = 256
"""A message counts at least so much in a transaction's size: a commit puts all of them into their
places under one hold of the lock, and a million empty ones fitted into 32 MiB."""
MESSAGE_STEPS, BATCH_STEPS, PUBLISHED_STEPS, LATE_STEPS = 2, 3, 5, 80
PUBLICATION_STEPS, QUEUED_STEPS, RETAINED_STEPS, BRANCH_STEPS = 270, 30, 60, 200
STEPS_MAX = 270_000
"""What one commit may send: a step takes 0.17 µs under its one hold of the lock. What is delayed to
a queue, is ordered or names a file is looked at by itself, as is a batch to a topic of which a
subscription delivers into a queue or stands for another node, or asks for the order's clock; and it
is put into each such queue. What is retained takes the place of what was."""
_LATE = DELAYED | ORDERED | FILES
"""What becomes of these is known at the commit only."""


def send(
    state: State,
    connection: Connection,
    correlation: int,
    producer_handle: int,
    first_sequence: int,
    count: int,
    is_persistent: bool,
    pack: memoryview,
    fx: Effects,
) -> None:
    """A SEND frame; taken whole or refused whole."""
    producer = connection.producers.get(producer_handle)
    if producer is None:
        taken = _known_of(state, connection, producer_handle, first_sequence)
        fx.must_wait = True
        fx.out.append(_confirm(connection, correlation, taken))
        return
    session, target, memory = producer.session, producer.destination, producer.memory
    is_transacted = session.is_transacted
    if not is_transacted and first_sequence <= memory.forgotten:
        raise SendInDoubt(destination=target.name, count=count, reason=FORGOTTEN)
    is_new = is_transacted or first_sequence > memory.last_sequence
    known = None if is_new else memory.recent.get(first_sequence)
    if known is not None:
        fx.must_wait = True  # what it repeats may not be synced yet
        if known.first_message_id == WITHDRAWN:
            raise SendWithdrawn(destination=target.name, count=count)
        fx.out.append(_confirm(connection, correlation, known))
        return
    if count > MESSAGES_PER_BATCH_MAX:
        raise TooManyRequests(what="messages in a frame", count=count, limit=MESSAGES_PER_BATCH_MAX)
    batch = check_values(pack, unpack_rows(pack, count), state.settings.message_bytes_max)
    batch = with_sender(batch, connection.sender) if connection.sender else batch
    if batch.uses or target.control.limits.message_bytes_max:
        _check_features(state, producer, batch, is_persistent)
    answers = producer.answers and _answers_to(producer, first_sequence, pack, count)
    one = _Send(state, producer, correlation, first_sequence, is_persistent, batch, answers)
    if is_transacted:
        one.check()
        check_batch(producer, session.work, batch.rows)
        steps = steps_of(state, producer, batch)
        in_all = steps + MESSAGE_STEPS * count
        _check_transaction(state, session.work, _least_bytes(len(batch.pack), count), in_all)
        one.join(fx, steps)
    elif connection.rate is None and not (state.is_guarded and _looks(state, producer)):
        one.check()
        one.take(fx)
    else:
        waiting = _WaitingSend(one)
        if not state.blocked.must_wait(waiting, state.now_ms):
            (one if connection.rate is None else waiting).take(fx)
        else:
            waiting.forget_answers()


def _known_of(state: State, connection: Connection, handle: int, first_sequence: int) -> Taken:
    """A batch that was taken of a producer that is not open: its client came back, and may not open
    it any more. HandleUnknown when it is not known."""
    memory = state.memories.known(connection.uid, handle)
    known = None if memory is None else memory.recent.get(first_sequence)
    if known is None or known.first_message_id == WITHDRAWN:
        raise HandleUnknown(what="producer", handle=handle)
    return known


def _answers_to(
    producer: Producer, first_sequence: int, pack: memoryview, count: int
) -> Answers | None:
    """What selectors say of this very batch, once."""
    answers, producer.answers = producer.answers, None
    is_its = answers is not None and answers.are_of(first_sequence, pack, count)
    return answers if is_its else None


def _looks(state: State, producer: Producer) -> bool:
    """Whether a send has to look for limits, pauses and those that wait before it, where some have
    such: what other queues have costs a queue nothing."""
    target = producer.destination
    if not isinstance(target, Queue):
        return True
    if target.control.is_guarded or state.has_own_limits:
        return True
    return bool(state.blocked.lines) and producer.key in state.blocked.lines


def _check_features(state: State, producer: Producer, batch: Incoming, is_persistent: bool) -> None:
    """Refuse what its destination cannot keep."""
    if batch.uses & FILES:
        check_files(state, producer, batch.rows, batch.pack, is_persistent)
    check_rows(producer, batch.rows)
    if batch.uses & (HEADS | ORDERED):
        check_ordering(producer.destination, batch.rows, batch.pack)


def _confirm(connection: Connection, correlation: int, taken: Taken) -> Confirm:
    return Confirm(
        connection.number,
        correlation,
        taken.first_message_id,
        taken.timestamp_ms,
        taken.message_count,
    )


class _Send(msgspec.Struct, frozen=True):
    """A batch that is to be stored."""

    state: State
    producer: Producer
    correlation: int
    first_sequence: int
    is_persistent: bool
    batch: Incoming
    answers: Answers | None
    """What selectors say of it, where they were asked before."""

    def check(self) -> None:
        """Refuse what would not fit into memory, or would not reach whom it has to reach."""
        state, batch, target = self.state, self.batch, self.producer.destination
        if isinstance(target, Queue):
            is_logged = self.is_persistent and target.number > 0
            check_memory(state, batch.head_bytes, batch.payload_bytes, len(batch.rows), is_logged)
        else:
            check_publication(state, self.producer, batch.rows, batch.pack, self.is_persistent)

    def take(self, fx: Effects) -> None:
        """Store it, and confirm it."""
        state, producer, now_ms = self.state, self.producer, self.state.now_ms
        count, answers = len(self.batch.rows), self.answers
        if answers is None:
            first_id = state.take_ids(count, fx)
        else:
            first_id, now_ms = answers.first_id, answers.timestamp_ms
        pending = PendingBatch(
            producer, first_id, count, now_ms, self.is_persistent, self.batch.pack
        )
        pending.answers = answers
        stored = store_batch(state, pending, self.batch, self.first_sequence, fx)
        if len(stored.records) > 1:
            fx.records.append(group(0, 0, 0, state.now_ms, stored.records))
        else:
            fx.records += stored.records
        taken = Taken(first_id, now_ms, count)
        producer.memory.remember(self.first_sequence, taken, state.settings.frames_in_flight_max)
        for place in stored.touched:
            if place.consumers or place.feed is not None:
                dispatch(state, place, fx)
        if state.is_guarded:
            make_room(state, stored.touched, fx)
        if self.is_persistent and state.is_crowded:
            page_out_new(state, stored.messages, stored.touched)
        number = producer.session.connection.number
        fx.out.append(Confirm(number, self.correlation, first_id, now_ms, count))

    def join(self, fx: Effects, steps: int) -> None:
        """Put it into the session's transaction, and confirm that; steps: as steps_of() says."""
        state, session = self.state, self.producer.session
        count, work = len(self.batch.rows), session.work
        first_id, pack = state.take_ids(count, fx), self.batch.pack
        pending = PendingBatch(
            self.producer, first_id, count, state.now_ms, self.is_persistent, pack
        )
        work.sends.append(pending)
        work.size_bytes += _record_bytes(state, pending)
        work.steps += steps + MESSAGE_STEPS * count
        pending.steps = steps
        work.worked_at_ms = state.now_ms
        taken = Taken(first_id, state.now_ms, count)
        fx.out.append(_confirm(session.connection, self.correlation, taken))


class _WaitingSend(Waiting):
    """A send that looks for room, and may have to wait for some (F-C11)."""

    __slots__ = ("_answers", "_send")

    def __init__(self, send: _Send) -> None:
        producer, size = send.producer, len(send.batch.pack)
        rate = producer.session.connection.rate
        keys = (producer.key if rate is None else rate.key,)
        super().__init__(producer.session, producer, send.correlation, keys, size)
        self._send = send
        self._answers: Answers | None = None
        """What selectors have said of it since there is room."""

    def forget_answers(self) -> None:
        """It has its ids and its time when it is stored, as it waits for that now."""
        self._send = structs.replace(self._send, answers=None)

    def ready_some(self, fx: Effects) -> bool:
        """A slice of what selectors say of it; whether there is more."""
        one = self._send
        if not isinstance(one.producer.destination, Topic):
            return False
        self._answers, is_more = ask_waiting(
            one.state,
            one.producer,
            one.batch,
            self._answers,
            fx,
            is_persistent=one.is_persistent,
        )
        if not is_more:
            self._send = structs.replace(one, answers=self._answers)
        return is_more

    def unready(self) -> None:
        """It is asked again when there is room."""
        self._answers = None
        self.forget_answers()

    def obstacle(self) -> Obstacle | None:
        """Its user's rate, a limit, a pause or the node's memory."""
        one, rate = self._send, self.session.connection.rate
        if rate is not None:
            slowed = one.state.blocked.slowed_by(rate, one.state.now_ms)
            if slowed is not None:
                return slowed
        found = obstacle_to(one.state, one.producer, one.batch.rows)
        if found is None:
            try:
                one.check()
            except (NodeFull, NodeQuota) as fault:
                found = memory_obstacle(one.state, fault)
                if found is None:
                    raise
        return found

    def packs(self) -> list[tuple[memoryview, int]]:
        """The batch."""
        return [(self._send.batch.pack, len(self._send.batch.rows))]

    def take(self, fx: Effects) -> None:
        """Store it, and confirm it; not what was withdrawn while it waited."""
        one = self._send
        if one.first_sequence in one.producer.memory.recent:
            count, name = len(one.batch.rows), one.producer.destination.name
            error = SendWithdrawn(destination=name, count=count)
            fx.out.append(Refusal(one.producer.session.connection.number, one.correlation, error))
            return
        one.take(fx)
        if self.session.connection.rate is not None:
            self.charge(self._send.state.now_ms)


FORGOTTEN = "they come again in a batch that is too old to be remembered"
"""Why a node does not say whether it has them."""


def is_repeated(connection: Connection, producer_handle: int, first_sequence: int) -> bool:
    """Whether a SEND comes again that was taken before, or may have been: it is confirmed, or said
    to be in doubt, but never said not to be stored. Of a producer that is not open nothing new is
    stored anyway."""
    producer = connection.producers.get(producer_handle)
    if producer is None:
        return True
    if producer.session.is_transacted:
        return False
    memory = producer.memory
    return first_sequence <= memory.forgotten or memory.recent.get(first_sequence) is not None


def ready_batch(batch: PendingBatch) -> None:
    """Before a commit: what may be done of store_batch() already, of what a transaction holds."""
    rows = unpack_rows(batch.pack, batch.count)
    incoming = accepted(batch.pack, rows)
    if isinstance(batch.producer.destination, Queue) and not incoming.uses & _LATE:
        batch.made = make_messages(
            rows,
            slice_payloads(batch.pack, rows),
            batch.first_id,
            0,
            batch.timestamp_ms,
            batch.is_persistent,
        )
        incoming = structs.replace(incoming, rows=())
    batch.incoming = incoming


def read_batch(batch: PendingBatch) -> Incoming:
    """A batch that a transaction holds."""
    return batch.incoming or accepted(batch.pack, unpack_rows(batch.pack, batch.count))


def store_batch(
    state: State, pending: PendingBatch, batch: Incoming, first_sequence: int, fx: Effects
) -> Stored:
    """Put the messages where they wait; the records, if they are persistent, and the places."""
    target = pending.producer.destination
    if isinstance(target, Topic):
        return store_publication(state, pending, batch, first_sequence, fx)
    due = NOT_DELAYED
    if batch.uses & (DELAYED | ORDERED):
        due = due_times(batch.rows, pending.first_id, pending.timestamp_ms)
        batch = _stamped(state, pending, target, batch)
    is_logged = pending.is_persistent and target.number > 0
    messages = messages_of(state, pending, batch, target.number if is_logged else 0)
    size_bytes = batch.payload_bytes + OVERHEAD_BYTES * pending.count
    target.line.add(messages, size_bytes, batch.uses)
    state.waiting_bytes += size_bytes
    if due:
        delay(state, target, messages, due)
    if target.candidates:
        target.offer(awake(messages, due))
    if not is_logged:
        return Stored([], [target], messages)
    first, start = messages[0], ROW.size * pending.count
    offsets = (start,) if pending.count == 1 else offsets_of(messages, start)
    log_position = state.blocks.add(messages, offsets)
    record = sent_to_queue(
        target.number,
        (first.id, first.seq, pending.timestamp_ms),
        (pending.producer.session.connection.uid, pending.producer.handle, first_sequence),
        pending.count,
        batch.pack,
        log_position,
    )
    return Stored([record], [target], messages)


def _stamped(state: State, pending: PendingBatch, queue: Queue, batch: Incoming) -> Incoming:
    """The batch with heads that say when their messages are due, and in which order they came."""
    rows, pack = batch.rows, batch.pack
    if batch.uses & DELAYED:
        rows, pack = stamped_with_time(rows, pack, pending.timestamp_ms)
    if batch.uses & ORDERED:
        rows, pack = stamped_with_clock(state, rows, pack, queue.line.groups)
    return accepted(pack, rows)


def _record_bytes(state: State, batch: PendingBatch) -> int:
    """What a batch of a transaction takes in its record."""
    if isinstance(batch.producer.destination, Queue):
        if not batch.record_bytes:
            stamps = stamp_bytes(batch.pack, batch.count) + time_stamp_bytes(
                batch.pack, batch.count
            )
            batch.record_bytes = _least_bytes(len(batch.pack), batch.count) + stamps
        return batch.record_bytes
    return record_bytes(state, batch.producer, batch.count, len(batch.pack))


def _least_bytes(size: int, count: int) -> int:
    """What a pack takes in a transaction at least, whatever may be added to it."""
    return max(size + BATCH_BYTES, MESSAGE_BYTES * count)


def transaction_bytes(state: State, work: Work) -> int:
    """What a transaction would take in its record now."""
    sends = sum([_record_bytes(state, b) for b in work.sends if b.published is None])
    published = sum([run.record_bytes for run in work.published])
    return sends + published + ACKNOWLEDGED_BYTES * len(work.acknowledged)


def steps_of(state: State, producer: Producer, batch: Incoming) -> int:
    """What a commit of it takes, beside its messages."""
    if not isinstance(producer.destination, Topic):
        return BATCH_STEPS + LATE_STEPS * bool(batch.uses & _LATE)
    audience = state.space.audience(producer.topic, state.now_ms)
    steps = PUBLISHED_STEPS + RETAINED_STEPS * (retained_at(batch.rows) is not None)
    if audience.is_late or batch.uses & (ORDERED | FILES):
        steps += PUBLICATION_STEPS + QUEUED_STEPS * len(audience.queued)
    return steps


def check_commit(state: State, *works: Work) -> None:
    """Refuse what cannot be committed at once, as more subscribe than did when it was sent, or as
    there are so many branches."""
    limit, size = state.settings.transaction_bytes_max, 0
    for work in works:
        size += transaction_bytes(state, work)
    if size > limit:
        raise TransactionTooLarge(size=size, limit=limit)
    check_effect(state, *works)


def check_effect(state: State, *works: Work) -> None:
    """The same of what it takes beside its record: time, and memory for all who get it."""
    limit = state.settings.memory_bytes_max
    used = sum([run.waiting_bytes for work in works for run in work.published])
    if used > limit:
        raise NodeFull(used=used, limit=limit, key="max_memory_bytes")
    if len(works) == 1 and works[0].late_steps <= 0:
        return  # it was counted when it came
    steps = sum([work.steps + work.late_steps for work in works])
    steps += BRANCH_STEPS * (len(works) - 1)
    count = sum([len(work.sends) for work in works])
    if steps > STEPS_MAX and count > 1:
        raise TransactionTooLong(count=count, steps=steps, limit=STEPS_MAX)


def _check_transaction(state: State, work: Work, size: int, steps: int) -> None:
    if work.is_over:
        raise TransactionRolledBack(reason="its branch was rolled back before this was sent")
    if work.rolled_back:
        raise TransactionRolledBack(reason=work.rolled_back)
    in_all = size + work.size_bytes
    limit = state.settings.transaction_bytes_max
    if in_all > limit:
        raise TransactionTooLarge(size=in_all, limit=limit)
    if work.steps + steps > STEPS_MAX and work.sends:
        count = len(work.sends) + 1
        raise TransactionTooLong(count=count, steps=work.steps + steps, limit=STEPS_MAX)
    check_open_work(state, work, size)
