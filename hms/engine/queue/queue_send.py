"""Sending: a batch is checked, numbered, placed in its queue or subscriptions, and recorded."""

from hms.engine.effects import Confirm, Effects
from hms.engine.flow.limits import check_batch, check_rows, memory_obstacle, obstacle_to
from hms.engine.flow.open_transactions import check_open_work
from hms.engine.flow.overflow_policy import make_room
from hms.engine.flow.room_wait import Obstacle, Waiting
from hms.engine.groups.global_order import is_ordered, stamp_bytes, stamped_with_clock
from hms.engine.groups.group_checks import check_ordering
from hms.engine.log.live_index import hold, offsets_of
from hms.engine.log.paging import check_memory, page_out_new
from hms.engine.queue.delays import check_delay, due_times, stamped_with_time, time_stamp_bytes
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.file_rules import check_files
from hms.engine.session.deduplication import Taken
from hms.engine.session.session_objects import Connection, PendingBatch, Producer, Work
from hms.engine.state import State
from hms.engine.topic.audience import check_publication, record_bytes
from hms.engine.topic.publication import (
    Stored,
    add_to,
    awake,
    messages_of,
    record_of_batch,
    store_publication,
)
from hms.errors.catalogue import (
    InvalidArgument,
    MessageTooLarge,
    NodeFull,
    NodeQuota,
    SendInDoubt,
    TooManyRequests,
    TransactionRolledBack,
    TransactionTooLarge,
)
from hms.records import MESSAGES_PER_BATCH_MAX, Placement, group
from hms.wire.packed_messages import (
    HEAD_BYTES_MAX,
    KIND_COMPRESSED,
    KIND_FILE,
    KIND_NONE,
    ROW,
    Row,
    unpack_rows,
)

PRIORITY_MAX = 9
ACKNOWLEDGED_BYTES = 64
"""What an acknowledgement costs in a transaction's size."""
BATCH_BYTES = 128
"""What a batch costs in a record beside its pack; more than its head and place."""
TTL_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years; more would not fit where the time of expiry is kept."""


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
    producer = state.producer(connection, producer_handle)
    session = producer.session
    repeated = _repeated(producer, first_sequence, count)
    if repeated is not None:
        fx.must_wait = True  # what it repeats may not be synced yet
        fx.out.append(_confirm(connection, correlation, repeated))
        return
    if count > MESSAGES_PER_BATCH_MAX:
        raise TooManyRequests(what="messages in a frame", count=count, limit=MESSAGES_PER_BATCH_MAX)
    rows = unpack_rows(pack, count)
    if check_values(state, rows):
        check_files(state, producer, rows, pack, is_persistent)
    check_rows(producer, rows)
    check_ordering(producer.destination, rows, pack)
    one = _Send(state, producer, correlation, first_sequence, rows, is_persistent, pack)
    if session.is_transacted:
        one.check()
        check_batch(producer, session.work, rows)
        _check_transaction(state, session.work, len(pack) + BATCH_BYTES)
        one.join(fx)
    elif not state.is_guarded:
        one.check()
        one.take(fx)
    elif not state.blocked.must_wait(one, state.now_ms):
        one.take(fx)


def _confirm(connection: Connection, correlation: int, taken: Taken) -> Confirm:
    return Confirm(
        connection.number,
        correlation,
        taken.first_message_id,
        taken.timestamp_ms,
        taken.message_count,
    )


class _Send(Waiting):
    """A batch that is to be stored, now or when there is room (F-C11)."""

    __slots__ = ("_first_sequence", "_is_persistent", "_pack", "_rows", "_sender", "_state")

    def __init__(
        self,
        state: State,
        producer: Producer,
        correlation: int,
        first_sequence: int,
        rows: list[Row],
        is_persistent: bool,
        pack: memoryview,
    ) -> None:
        super().__init__(producer.session, producer, correlation, (producer.key,), len(pack))
        self._state = state
        self._sender = producer
        self._first_sequence = first_sequence
        self._rows = rows
        self._is_persistent = is_persistent
        self._pack = pack

    def obstacle(self) -> Obstacle | None:
        """A limit, a pause or the node's memory."""
        state = self._state
        found = obstacle_to(state, self._sender, self._rows)
        if found is None:
            try:
                self.check()
            except (NodeFull, NodeQuota) as fault:
                found = memory_obstacle(state, fault)
                if found is None:
                    raise
        return found

    def check(self) -> None:
        """Refuse what would not fit into memory, or would not reach whom it has to reach."""
        state = self._state
        rows, is_persistent = self._rows, self._is_persistent
        if isinstance(self._sender.destination, Queue):
            can_page = is_persistent and self._sender.destination.is_durable
            check_memory(state, rows, can_page)
        else:
            check_publication(state, self._sender, rows, self._pack, is_persistent)

    def packs(self) -> list[tuple[memoryview, int]]:
        """The batch."""
        return [(self._pack, len(self._rows))]

    def take(self, fx: Effects) -> None:
        """Store it, and confirm it."""
        state, producer, batch = self._state, self._sender, self._batch(fx)
        taken = Taken(batch.first_id, state.now_ms, batch.count)
        sequence = self._first_sequence
        records, touched, messages = store_batch(state, batch, self._rows, sequence, fx)
        if len(records) > 1:
            records = [group(0, 0, 0, state.now_ms, records)]
        fx.records += records
        producer.memory.remember(sequence, taken, state.settings.frames_in_flight_max)
        for place in touched:
            dispatch(state, place, fx)
        if state.is_guarded:
            make_room(state, touched, fx)
        if self._is_persistent:
            page_out_new(state, messages, touched)
        fx.out.append(_confirm(self.session.connection, self.correlation, taken))

    def join(self, fx: Effects) -> None:
        """Put it into the session's transaction, and confirm that."""
        state, batch, work = self._state, self._batch(fx), self.session.work
        work.sends.append(batch)
        work.size_bytes += _record_bytes(state, batch)
        taken = Taken(batch.first_id, state.now_ms, batch.count)
        fx.out.append(_confirm(self.session.connection, self.correlation, taken))

    def _batch(self, fx: Effects) -> PendingBatch:
        state = self._state
        count = len(self._rows)
        first_id = state.take_ids(count, fx)
        return PendingBatch(
            self._sender, first_id, count, state.now_ms, self._is_persistent, self._pack
        )


FORGOTTEN = "they come again in a batch that is too old to be remembered"
"""Why a node does not say whether it has them."""


def _repeated(producer: Producer, first_sequence: int, count: int) -> Taken | None:
    """How a SEND that comes again was confirmed; None for a new one. SendInDoubt."""
    if producer.session.is_transacted:
        return None
    if first_sequence <= producer.memory.forgotten:
        raise SendInDoubt(destination=producer.destination.name, count=count, reason=FORGOTTEN)
    return producer.memory.recent.get(first_sequence)


def is_repeated(connection: Connection, producer_handle: int, first_sequence: int) -> bool:
    """Whether a SEND comes again that was taken before, or may have been: it is confirmed, or said
    to be in doubt, but never said not to be stored."""
    producer = connection.producers.get(producer_handle)
    if producer is None or producer.session.is_transacted:
        return False
    memory = producer.memory
    return first_sequence in memory.recent or first_sequence <= memory.forgotten


def store_batch(
    state: State,
    batch: PendingBatch,
    rows: list[Row],
    first_sequence: int,
    fx: Effects,
) -> Stored:
    """Put the messages where they wait; the records, if they are persistent, and the places."""
    if isinstance(batch.producer.destination, Topic):
        return store_publication(state, batch, rows, first_sequence, fx)
    return _store_in_queue(state, batch, batch.producer.destination, rows, first_sequence)


def _store_in_queue(
    state: State, batch: PendingBatch, queue: Queue, rows: list[Row], first_sequence: int
) -> Stored:
    pack, due = batch.pack, due_times(rows, batch.first_id, batch.timestamp_ms)
    if due:
        rows, pack = stamped_with_time(rows, pack, batch.timestamp_ms)
    if is_ordered(pack, batch.count):
        rows, pack = stamped_with_clock(state, rows, pack, queue.line.tracks)
    messages = messages_of(state, batch, rows, pack)
    add_to(state, queue, messages, due)
    queue.offer(awake(messages, due))
    if not (batch.is_persistent and queue.is_durable):
        return Stored([], [queue], messages)
    hold(messages, queue.number)
    landing = state.blocks.add(messages, offsets_of(messages, ROW.size * batch.count))
    where, first = [Placement(queue.number, b"")], messages[0].seq
    record = record_of_batch(batch, where, pack, first_sequence, first, landing)
    return Stored([record], [queue], messages)


def check_values(state: State, rows: list[Row]) -> bool:
    """Bad values are refused before anything is changed; whether there are files among them."""
    limit, has_files = state.settings.message_bytes_max, False
    for row in rows:
        if row[0] + row[1] > limit:
            raise MessageTooLarge(size=row[0] + row[1], limit=limit)
        if row[0] > HEAD_BYTES_MAX:
            raise MessageTooLarge(size=row[0], limit=HEAD_BYTES_MAX)
        if row[3]:
            check_delay(row)
        if row[4] > PRIORITY_MAX:
            raise InvalidArgument(what="priority", detail=f"{row[4]} is not between 0 and 9")
        if row[2] > TTL_MS_MAX:
            raise InvalidArgument(what="ttl", detail=f"{row[2]} ms are more than a hundred years")
        if row[5] >= KIND_FILE:
            has_files = _check_kind(row[5]) or has_files
    return has_files


def _check_kind(kind: int) -> bool:
    """Whether it is a file's."""
    if kind & ~KIND_COMPRESSED > KIND_NONE or kind == KIND_FILE | KIND_COMPRESSED:
        raise InvalidArgument(what="kind of body", detail=f"{kind} is not known")
    return kind == KIND_FILE


def _record_bytes(state: State, batch: PendingBatch) -> int:
    """What a batch of a transaction takes in its record."""
    if isinstance(batch.producer.destination, Queue):
        stamps = stamp_bytes(batch.pack, batch.count) + time_stamp_bytes(batch.pack, batch.count)
        return len(batch.pack) + BATCH_BYTES + stamps
    return record_bytes(state, batch.producer, batch.count, len(batch.pack))


def transaction_bytes(state: State, work: Work) -> int:
    """What a transaction would take in its record now."""
    sends = sum(_record_bytes(state, batch) for batch in work.sends)
    return sends + ACKNOWLEDGED_BYTES * len(work.acknowledged)


def _check_transaction(state: State, work: Work, size: int) -> None:
    if work.is_over:
        raise TransactionRolledBack(reason="its branch was rolled back before this was sent")
    in_all = size + work.size_bytes
    limit = state.settings.transaction_bytes_max
    if in_all > limit:
        raise TransactionTooLarge(size=in_all, limit=limit)
    check_open_work(state, work, size)
