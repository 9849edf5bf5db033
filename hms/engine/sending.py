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
from field_buffer.packing import HEAD_BYTES_MAX, KIND_NONE, ROW, Row, slice_payloads, unpack_rows
from hms.engine.blocks import hold, offsets_of
from hms.engine.dispatch import dispatch
from hms.engine.effects import Confirm, Effects
from hms.engine.messages import OF_COMMIT, StoredMessage, make_messages
from hms.engine.numbering import Taken
from hms.engine.paging import memory_bytes, page_out_new
from hms.engine.places import Queue, Subscription, Topic
from hms.engine.sessions import Connection, PendingBatch, Producer, Session
from hms.engine.state import State
from hms.records import MESSAGES_PER_BATCH_MAX, Landing, Placement, Record, Sent, bitmap, sent

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
    _check_room(state, producer.destination, rows, is_persistent)
    if session.is_transacted:
        _check_transaction(state, session, len(pack) + BATCH_BYTES)
    first_id = state.take_ids(count, fx)
    taken = Taken(first_id, state.now_ms, count)
    batch = PendingBatch(producer, first_id, count, state.now_ms, is_persistent, pack)
    if session.is_transacted:
        session.pending_sends.append(batch)
        session.pending_bytes += _record_bytes(batch)
    else:
        record, touched, messages = store_batch(state, batch, rows, first_sequence)
        if record is not None:
            fx.records.append(record)
        producer.memory.remember(first_sequence, taken, state.settings.frames_in_flight_max)
        for place in touched:
            dispatch(state, place, fx)
        if record is not None:
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
    state: State, batch: PendingBatch, rows: list[Row] | None = None, first_sequence: int = 0
) -> tuple[Record | None, list[Queue | Subscription], list[StoredMessage]]:
    """Put the messages where they wait; the record, if they are persistent, the places, and the
    messages."""
    rows = unpack_rows(batch.pack, batch.count) if rows is None else rows
    first_seq = state.take_seqs(batch.count)
    messages = make_messages(
        rows,
        slice_payloads(batch.pack, rows),
        batch.first_id,
        first_seq,
        batch.timestamp_ms,
        batch.is_persistent,
    )
    destination = batch.producer.destination
    uid = batch.producer.session.connection.uid
    placements, touched = place_messages(state, destination, messages, uid)
    if not batch.is_persistent:
        if batch.producer.session.is_transacted:
            for message in messages:
                message.slot = OF_COMMIT
        return None, touched, messages
    landing = keep_in_log(state, destination, messages, ROW.size * batch.count)
    head = Sent(
        destination.number,
        batch.first_id,
        batch.timestamp_ms,
        uid,
        batch.producer.handle,
        first_sequence,
        batch.count,
        is_forwarded=False,
        placements=placements,
        pack=batch.pack,
        first_seq=first_seq,
    )
    return sent(head, landing), touched, messages


def keep_in_log(
    state: State, destination: Queue | Topic, messages: list[StoredMessage], start: int
) -> Landing | None:
    """Note that the log has to keep the messages as long as a place holds them; start: where the
    first one's bytes begin in the pack."""
    offsets = offsets_of(messages, start)
    if isinstance(destination, Queue):
        hold(messages, destination.number)
        return state.blocks.add(messages, offsets)
    held = [(m, at) for m, at in zip(messages, offsets, strict=True) if m.holders]
    return state.blocks.add([m for m, _ in held], [at for _, at in held])


def place_messages(
    state: State, destination: Queue | Topic, messages: list[StoredMessage], client_uid: int
) -> tuple[list[Placement], list[Queue | Subscription]]:
    """Add messages to the queue, or to each subscription that chooses them."""
    if isinstance(destination, Queue):
        _add(state, destination, messages)
        destination.offer(messages)
        return [Placement(destination.number, b"")], [destination]
    destination.sent += len(messages)
    placements: list[Placement] = []
    touched: list[Queue | Subscription] = []
    for subscription in destination.subscriptions:
        flags = subscription.chooses(messages, client_uid)
        chosen = (
            messages
            if flags is None
            else [m for m, is_chosen in zip(messages, flags, strict=True) if is_chosen]
        )
        if not chosen:
            continue
        _add(state, subscription, chosen)
        touched.append(subscription)
        if subscription.is_durable:
            if chosen[0].is_persistent:
                hold(chosen, subscription.number)
            placements.append(Placement(subscription.number, bitmap(flags) if flags else b""))
    return placements, touched


def _add(state: State, place: Queue | Subscription, messages: list[StoredMessage]) -> None:
    before = place.line.size_bytes
    place.line.add(messages)
    state.waiting_bytes += place.line.size_bytes - before


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


def _check_room(
    state: State, destination: Queue | Topic, rows: list[Row], is_persistent: bool
) -> None:
    count = len(rows)
    places = [destination] if isinstance(destination, Queue) else destination.subscriptions
    is_paged = is_persistent and all(place.is_durable for place in places)
    state.check_memory(memory_bytes(state, rows, is_paged) * len(places))
    if isinstance(destination, Queue) and destination.messages_max:
        waiting = destination.line.waiting_count + destination.line.out_count
        if waiting + count > destination.messages_max:
            raise QueueFull(
                kind="queue",
                destination=destination.name,
                count=waiting,
                limit=destination.messages_max,
                key="max_messages",
            )


def _record_bytes(batch: PendingBatch) -> int:
    """What a batch of a transaction takes in its record, with a bitmap for each subscription."""
    destination = batch.producer.destination
    subscriptions = destination.subscriptions if isinstance(destination, Topic) else []
    durable = sum(1 for s in subscriptions if s.is_durable)
    return len(batch.pack) + BATCH_BYTES + durable * (16 + batch.count // 8)


def transaction_bytes(session: Session) -> int:
    """What a session's transaction would take in its record now."""
    sends = sum(_record_bytes(batch) for batch in session.pending_sends)
    return sends + ACKNOWLEDGED_BYTES * len(session.acknowledged)


def _check_transaction(state: State, session: Session, size: int) -> None:
    size += session.pending_bytes
    limit = state.settings.transaction_bytes_max
    if size > limit:
        raise TransactionTooLarge(size=size, limit=limit)
