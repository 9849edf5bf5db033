"""The audience of a publication, and whether all that have to can take it (PUBSUB PD-02, PD-04)."""

from collections.abc import Sequence
from itertools import accumulate, takewhile

from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.log.paging import memory_bytes
from hms.engine.messages import OVERHEAD_BYTES
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.session.session_objects import Producer
from hms.engine.state import State
from hms.engine.topic import Missed, check_delivery
from hms.errors.catalogue import MessageFormatError, MessageTooLarge, TransactionTooLarge
from hms.wire.packed_messages import FLAG_RETAIN, HEAD_BYTES_MAX, Row, decode_head, slice_payloads

STAMP_BYTES = 256
"""What the node may add to a head beside the topic."""
RECORD_BYTES = 128


def check_publication(
    state: State, producer: Producer, rows: Sequence[Row], pack: memoryview, is_persistent: bool
) -> None:
    """Refuse a batch that cannot reach whom it has to reach; nothing has changed yet."""
    audience = state.space.audience(producer.topic, state.now_ms)
    count, retained = len(rows), retained_at(rows)
    can_page = is_persistent and audience.is_logged and retained is None
    copies = len(audience.subscriptions) + (retained is not None)
    authority = state.space.authority
    if retained is not None and authority is not None:
        authority.check_retain(producer.session.connection.number, producer.topic)
    state.check_memory(memory_bytes(state, rows, can_page) * copies)
    _check_stamp(producer.topic, rows)
    delivery = state.space.delivery(producer.topic, is_persistent=is_persistent)
    if state.is_guarded and any(control.is_guarded for control in audience.controls):
        sizes = [row.head_bytes + row.body_bytes for row in rows]
        of_all = count, sum(sizes), max(sizes)
        places = [(s, s.queue or s) for s in audience.subscriptions]
        missed = [_missed(s, p, count) for s, p in places if not takes_all(p, *of_all)]
        check_delivery(delivery, producer.topic, missed)
    if audience.copied_count:
        limit = state.settings.transaction_bytes_max
        total = record_bytes(state, producer, count, len(pack))
        if total > limit:
            raise TransactionTooLarge(size=total, limit=limit)
    if retained is not None:
        _check_retained(state, producer.topic, rows, pack, retained)


def record_bytes(state: State, producer: Producer, count: int, size: int) -> int:
    """What a batch takes in its record, with a bitmap for each place and with its copies."""
    audience = state.space.audience(producer.topic, state.now_ms)
    topic = len(producer.topic) * 4 + STAMP_BYTES
    each = size + count * topic + RECORD_BYTES
    return (1 + audience.copied_count) * each + audience.logged_count * (16 + count // 8)


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


def takes_all(place: Queue | Subscription, count: int, size: int, longest: int) -> bool:
    """Whether room_in() says so of so many messages, for which this is told in all and of the
    longest one: there may be 65,000 such places."""
    control = place.control
    limits = control.limits
    if not control.is_guarded or limits.behavior is not LimitBehavior.REJECT_NEWEST:
        return True
    line = place.line
    held = line.waiting_count + line.delayed_count + line.out_count
    if limits.messages_max and held + count > limits.messages_max:
        return False
    if limits.bytes_max and line.size_bytes - OVERHEAD_BYTES * held + size > limits.bytes_max:
        return False
    return not limits.message_bytes_max or longest <= limits.message_bytes_max


def room_in(place: Queue | Subscription, sizes: Sequence[int]) -> int:
    """How many of the messages that come, with these sizes, a place takes. Where a publication
    waits for room, or makes some, it is not refused here."""
    limits, line = place.control.limits, place.line
    if not place.control.is_guarded or limits.behavior is not LimitBehavior.REJECT_NEWEST:
        return len(sizes)
    held = line.waiting_count + line.delayed_count + line.out_count
    room = limits.messages_max - held if limits.messages_max else len(sizes)
    if limits.bytes_max:
        free = limits.bytes_max - (line.size_bytes - OVERHEAD_BYTES * held)
        room = min(room, sum(1 for total in accumulate(sizes) if total <= free))
    if limits.message_bytes_max:
        room = min(room, sum(1 for _ in takewhile(limits.message_bytes_max.__ge__, sizes)))
    return max(0, min(room, len(sizes)))


def _missed(subscription: Subscription, place: Queue | Subscription, count: int) -> Missed:
    limits, line = place.control.limits, place.line
    held = line.waiting_count + line.delayed_count + line.out_count
    most = f"{limits.messages_max} " if limits.messages_max else ""
    detail = f"{place.kind} {place.name} has {held} of {most}messages, {count} come"
    if limits.bytes_max:
        detail += f"; {limits.bytes_max} bytes may wait"
    return Missed(subscription.name, is_durable=subscription.is_durable, detail=detail)
