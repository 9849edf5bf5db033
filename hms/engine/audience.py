"""The audience of a publication, and whether all that have to can take it (PUBSUB PD-02, PD-04)."""

from collections.abc import Sequence

from field_buffer.catalogue import MessageFormatError, MessageTooLarge, TransactionTooLarge
from field_buffer.packing import FLAG_RETAIN, HEAD_BYTES_MAX, Row, decode_head, slice_payloads
from hms.engine.messages import OVERHEAD_BYTES
from hms.engine.paging import memory_bytes
from hms.engine.places import Queue, Subscription
from hms.engine.sessions import Producer
from hms.engine.state import State
from hms.engine.topics import Missed, Wants, check_delivery

STAMP_BYTES = 256
"""What the node may add to a head beside the topic."""
RECORD_BYTES = 128


def audience_of(state: State, topic: str) -> list[Subscription]:
    """Who gets what comes now on a topic, in the order of their subscriptions."""
    now_ms = state.now_ms
    found = state.space.index.match(topic)
    return [s for s in found if s.wants is not Wants.REQUEST and not s.is_over(now_ms)]


def check_publication(
    state: State, producer: Producer, rows: Sequence[Row], pack: memoryview, is_persistent: bool
) -> None:
    """Refuse a batch that cannot reach whom it has to reach; nothing has changed yet."""
    audience = audience_of(state, producer.topic)
    count, retained = len(rows), retained_at(rows)
    is_logged = all(s.is_durable or s.queue is not None for s in audience)
    can_page = is_persistent and is_logged and retained is None
    copies = len(audience) + (retained is not None)
    state.check_memory(memory_bytes(state, rows, can_page) * copies)
    _check_stamp(producer.topic, rows)
    delivery = state.space.delivery(producer.topic, is_persistent=is_persistent)
    missed = [_missed(s, s.queue, count) for s in audience if room_in(s.queue) < count]
    check_delivery(delivery, producer.topic, [m for m in missed if m is not None])
    if _copied(audience):
        limit = state.settings.transaction_bytes_max
        total = record_bytes(state, producer, count, len(pack))
        if total > limit:
            raise TransactionTooLarge(size=total, limit=limit)
    if retained is not None:
        _check_retained(state, producer.topic, rows, pack, retained)


def record_bytes(state: State, producer: Producer, count: int, size: int) -> int:
    """What a batch takes in its record, with a bitmap for each place and with its copies."""
    audience = audience_of(state, producer.topic)
    places = sum(1 for s in audience if s.is_durable or s.queue is not None)
    copied = len(_copied(audience))
    topic = len(producer.topic) * 4 + STAMP_BYTES
    return (1 + copied) * (size + count * topic + RECORD_BYTES) + places * (16 + count // 8)


def _copied(audience: Sequence[Subscription]) -> list[Subscription]:
    """Those that get copies of their own in a queue."""
    seen: set[int] = set()
    copied = []
    for one in audience:
        if one.queue is None:
            continue
        if one.definition.correlation_id or one.queue.number in seen:
            copied.append(one)
        else:
            seen.add(one.queue.number)
    return copied


def retained_at(rows: Sequence[Row]) -> int | None:
    """The last message of a batch that is to be retained: it replaces those before it."""
    return next((i for i in reversed(range(len(rows))) if rows[i].flags & FLAG_RETAIN), None)


def _check_stamp(topic: str, rows: Sequence[Row]) -> None:
    room = HEAD_BYTES_MAX - STAMP_BYTES - 4 * len(topic)
    for row in rows:
        if row.head_bytes > room:
            raise MessageTooLarge(size=row.head_bytes, limit=room)


def _check_retained(
    state: State, topic: str, rows: Sequence[Row], pack: memoryview, at: int
) -> None:
    payload = slice_payloads(pack, rows)[at]
    try:
        decode_head(payload[: rows[at].head_bytes])
    except MessageFormatError as fault:
        detail = f"what is retained has to be readable: {fault}"
        raise MessageFormatError(detail=detail) from fault
    state.space.retained.check(topic, len(payload) + OVERHEAD_BYTES + STAMP_BYTES + 4 * len(topic))


def room_in(queue: Queue | None) -> int:
    """How many more messages a queue takes."""
    if queue is None or not queue.messages_max:
        return 1 << 62
    return max(0, queue.messages_max - queue.line.waiting_count - queue.line.out_count)


def _missed(subscription: Subscription, queue: Queue | None, count: int) -> Missed | None:
    if queue is None:
        return None
    waiting = queue.line.waiting_count + queue.line.out_count
    detail = f"queue {queue.name} has {waiting} of {queue.messages_max} messages, {count} come"
    return Missed(subscription.name, is_durable=subscription.is_durable, detail=detail)
