"""Settling: what becomes of messages that are out.

acknowledged   done with
FAILED         the application saw it and gave it back: counts as an attempt; past the limit it
               becomes a dead letter (F-C8, F-C9)
RELEASED       the application never saw it: as if it had not been delivered
LOST           nobody knows, the consumer is gone: redelivered is set, no attempt is counted
"""

import enum
from collections.abc import Iterable

import msgspec

from field_buffer.catalogue import TransactionTooLarge
from field_buffer.packing import ROW, encode_head
from hms.engine.dispatch import acknowledge, dispatch, write_ranges
from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.places import Queue, Subscription
from hms.engine.records import (
    Cause,
    Placement,
    Record,
    RecordType,
    Sent,
    group,
    ranges,
    sent,
)
from hms.engine.sessions import Consumer
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import State

ACKNOWLEDGED_BYTES = 64
"""What an acknowledgement costs in a transaction's size."""


class Return(enum.Enum):
    """How messages come back."""

    FAILED = enum.auto()
    RELEASED = enum.auto()
    LOST = enum.auto()


def take_out(consumer: Consumer, spans: Iterable[tuple[int, int]]) -> list[StoredMessage]:
    """Those of the ids that are out to the consumer; others were settled before."""
    out = consumer.out
    found: list[StoredMessage] = []
    for first, last in spans:
        if last - first < len(out):
            ids: Iterable[int] = [i for i in range(first, last + 1) if i in out]
        else:
            ids = [i for i in out if first <= i <= last]
        found += [out.pop(i) for i in ids]
    consumer.out_bytes -= sum([len(m.payload) for m in found])
    return found


def acknowledge_out(
    state: State, consumer: Consumer, spans: list[tuple[int, int]], fx: Effects
) -> int:
    """Acknowledge ranges of ids; in a transacted session as part of the transaction."""
    session = consumer.session
    if session.is_transacted:
        size = session.pending_bytes + ACKNOWLEDGED_BYTES * len(consumer.out)
        limit = state.settings.transaction_bytes_max
        if size > limit:
            raise TransactionTooLarge(size=size, limit=limit)
        messages = take_out(consumer, spans)
        session.acknowledged += [(consumer.place, m) for m in messages]
        session.pending_bytes += ACKNOWLEDGED_BYTES * len(messages)
        return len(messages)
    messages = take_out(consumer, spans)
    if messages:
        acknowledge(state, consumer.place, messages, fx)
    return len(messages)


def give_back_all(state: State, consumer: Consumer, how: Return, fx: Effects) -> None:
    """Everything that is out to a consumer comes back; the caller dispatches."""
    messages = list(consumer.out.values())
    consumer.out.clear()
    consumer.out_bytes = 0
    give_back(state, consumer.place, messages, how, fx)


def give_back(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    how: Return,
    fx: Effects,
) -> None:
    """Messages that were out wait again, or are dead; the caller dispatches."""
    if isinstance(place, Subscription) and place.is_removed:
        _drop(state, place, messages)
        return
    again = [m for m in messages if _put_back(state, place, m, how, fx)]
    if how is not Return.LOST:
        kind = RecordType.FAILED if how is Return.FAILED else RecordType.RELEASED
        write_ranges(state, place, kind, again, fx)
    if isinstance(place, Queue):
        place.offer_again(again)


def _put_back(
    state: State, place: Queue | Subscription, message: StoredMessage, how: Return, fx: Effects
) -> bool:
    """One message comes back; False when it has become a dead letter."""
    deliveries, attempts = place.line.history.get(message.id, (0, 0))
    if how is not Return.RELEASED:
        deliveries += 1
    if how is Return.FAILED:
        attempts += 1
        if 0 <= place.redelivery_limit <= attempts:
            _dead_letter(state, place, message, attempts, fx)
            return False
    place.line.put_back(message, deliveries, attempts)
    return True


def _drop(state: State, place: Subscription, messages: list[StoredMessage]) -> None:
    """Its subscription has ended meanwhile: nobody waits for them any more."""
    for message in messages:
        place.line.settle(message)
        state.waiting_bytes -= message.size_bytes


def _dead_letter(
    state: State, place: Queue | Subscription, message: StoredMessage, attempts: int, fx: Effects
) -> None:
    """Move a message to its dead letter queue; what was and what is are one record."""
    target = state.queues.get(place.dead_letter) or state.queues[DEAD_LETTER_QUEUE]
    letter = _as_dead_letter(state, place, message, attempts, target, fx)
    place.line.settle(message)
    place.line.counters.dead_lettered += 1
    before = target.line.size_bytes
    target.line.add([letter])
    target.offer([letter])
    state.waiting_bytes += target.line.size_bytes - before - message.size_bytes
    if message.is_persistent and place.is_durable:
        fx.records.append(_dead_letter_record(state, place, message, letter, target))
    dispatch(state, target, fx)


def _as_dead_letter(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    attempts: int,
    target: Queue,
    fx: Effects,
) -> StoredMessage:
    """The message as it lies in the DLQ: same id, and why, when, whence, how often."""
    kind = "queue" if isinstance(place, Queue) else "topic"
    origin = place.name if isinstance(place, Queue) else place.topic.name
    head = message.head()
    node = dict(head.node) | {
        "$DeadReason": "REDELIVERY_LIMIT",
        "$DeadOrigin": f"{kind}:{origin}",
        "$DeadTime": state.now_ms,
        "$DeadCount": attempts,
    }
    if isinstance(place, Subscription):
        node["$DeadSubscription"] = place.name
    id_ = message.id
    if id_ in target.line.open_index() or any(id_ in c.out for c in target.consumers):
        node["$OriginalMessageID"] = message_id_text(id_)
        id_ = state.take_ids(1, fx)  # another subscription's copy is there already
    encoded = encode_head(msgspec.structs.replace(head, node=node))
    is_persistent = message.is_persistent and place.is_durable
    return StoredMessage(
        id_,
        state.take_seqs(1),
        message.timestamp_ms,
        0,
        message.priority,
        message.kind,
        len(encoded),
        encoded + message.payload[message.head_bytes :],
        is_persistent,
    )


def _dead_letter_record(
    state: State,
    place: Queue | Subscription,
    message: StoredMessage,
    letter: StoredMessage,
    target: Queue,
) -> Record:
    body_bytes = len(letter.payload) - letter.head_bytes
    row = ROW.pack(letter.head_bytes, body_bytes, 0, 0, letter.priority, letter.kind, 0, 0)
    head = Sent(
        target.number,
        letter.id,
        letter.timestamp_ms,
        0,
        0,
        0,
        1,
        is_forwarded=True,
        placements=[Placement(target.number, b"")],
        pack=memoryview(row + letter.payload),
    )
    span = [(message.id, message.id)]
    left = ranges(RecordType.DISCARDED, place.number, state.now_ms, span, Cause.DEAD_LETTERED)
    return group(0, 0, 0, state.now_ms, [sent(head), left])
