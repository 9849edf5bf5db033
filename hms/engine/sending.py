"""Sending: a batch is checked, numbered, placed in its queue or subscriptions, and recorded."""

from field_buffer.catalogue import (
    InvalidArgument,
    MessageTooLarge,
    NotSupported,
    QueueFull,
    SendInDoubt,
    TooManyRequests,
    TransactionTooLarge,
)
from field_buffer.packing import HEAD_BYTES_MAX, KIND_NONE, ROW, Row, unpack_rows
from hms.engine.audience import check_publication, record_bytes
from hms.engine.blocks import hold, offsets_of
from hms.engine.dispatch import dispatch
from hms.engine.effects import Confirm, Effects
from hms.engine.numbering import Taken
from hms.engine.paging import memory_bytes, page_out_new
from hms.engine.places import Queue, Topic
from hms.engine.publishing import (
    Stored,
    add_to,
    messages_of,
    record_of_batch,
    store_publication,
)
from hms.engine.sessions import Connection, PendingBatch, Producer, Session
from hms.engine.state import State
from hms.records import MESSAGES_PER_BATCH_MAX, Placement, group

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
        fx.out.append(Confirm(connection.number, correlation, *repeated))
        return
    if count > MESSAGES_PER_BATCH_MAX:
        raise TooManyRequests(what="messages in a frame", count=count, limit=MESSAGES_PER_BATCH_MAX)
    rows = unpack_rows(pack, count)
    _check_rows(state, rows)
    if isinstance(producer.destination, Queue):
        _check_room(state, producer.destination, rows, is_persistent)
    else:
        check_publication(state, producer, rows, pack, is_persistent)
    if session.is_transacted:
        _check_transaction(state, session, len(pack) + BATCH_BYTES)
    first_id = state.take_ids(count, fx)
    taken = Taken(first_id, state.now_ms, count)
    batch = PendingBatch(producer, first_id, count, state.now_ms, is_persistent, pack)
    if session.is_transacted:
        session.pending_sends.append(batch)
        session.pending_bytes += _record_bytes(state, batch)
    else:
        records, touched, messages = store_batch(state, batch, rows, first_sequence, fx)
        if len(records) > 1:
            records = [group(0, 0, 0, state.now_ms, records)]
        fx.records += records
        producer.memory.remember(first_sequence, taken, state.settings.frames_in_flight_max)
        for place in touched:
            dispatch(state, place, fx)
        if is_persistent:
            page_out_new(state, messages, touched)
    fx.out.append(Confirm(connection.number, correlation, *taken))


def _repeated(producer: Producer, first_sequence: int, count: int) -> Taken | None:
    """How a SEND that comes again was confirmed; None for a new one. SendInDoubt."""
    if producer.session.is_transacted:
        return None
    if first_sequence <= producer.memory.forgotten:
        raise SendInDoubt(destination=producer.destination.name, count=count)
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
    messages = messages_of(state, batch, rows, batch.pack)
    add_to(state, queue, messages)
    queue.offer(messages)
    if not batch.is_persistent:
        return Stored([], [queue], messages)
    hold(messages, queue.number)
    landing = state.blocks.add(messages, offsets_of(messages, ROW.size * batch.count))
    where, first = [Placement(queue.number, b"")], messages[0].seq
    record = record_of_batch(batch, where, batch.pack, first_sequence, first, landing)
    return Stored([record], [queue], messages)


def _check_rows(state: State, rows: list[Row]) -> None:
    """Bad values are refused before anything is changed."""
    limit = state.settings.message_bytes_max
    for row in rows:
        if row[0] + row[1] > limit:
            raise MessageTooLarge(size=row[0] + row[1], limit=limit)
        if row[0] > HEAD_BYTES_MAX:
            raise MessageTooLarge(size=row[0], limit=HEAD_BYTES_MAX)
        if row[3]:
            raise NotSupported(
                feature="a delivery delay", instead="Send the message when it is due."
            )
        if row[4] > PRIORITY_MAX:
            raise InvalidArgument(what="priority", detail=f"{row[4]} is not between 0 and 9")
        if row[2] > TTL_MS_MAX:
            raise InvalidArgument(what="ttl", detail=f"{row[2]} ms are more than a hundred years")
        if row[5] > KIND_NONE:
            raise InvalidArgument(what="kind of body", detail=f"{row[5]} is not between 0 and 6")


def _check_room(state: State, queue: Queue, rows: list[Row], is_persistent: bool) -> None:
    count = len(rows)
    state.check_memory(memory_bytes(state, rows, is_persistent))
    if queue.messages_max:
        waiting = queue.line.waiting_count + queue.line.out_count
        if waiting + count > queue.messages_max:
            raise QueueFull(
                kind="queue",
                destination=queue.name,
                count=waiting,
                limit=queue.messages_max,
                key="max_messages",
            )


def _record_bytes(state: State, batch: PendingBatch) -> int:
    """What a batch of a transaction takes in its record."""
    if isinstance(batch.producer.destination, Queue):
        return len(batch.pack) + BATCH_BYTES
    return record_bytes(state, batch.producer, batch.count, len(batch.pack))


def transaction_bytes(state: State, session: Session) -> int:
    """What a session's transaction would take in its record now."""
    sends = sum(_record_bytes(state, batch) for batch in session.pending_sends)
    return sends + ACKNOWLEDGED_BYTES * len(session.acknowledged)


def _check_transaction(state: State, session: Session, size: int) -> None:
    size += session.pending_bytes
    limit = state.settings.transaction_bytes_max
    if size > limit:
        raise TransactionTooLarge(size=size, limit=limit)
