"""Dispatch: waiting messages go to consumers that have credit.

A queue's messages are shared out in turn, in chunks when many wait, so that one frame and one
record serve many messages. A delivery of persistent messages is a record: after a crash the message
is known to have been out, so it comes again with the right count (docs/decisions/0006).
"""

import heapq
from collections.abc import Iterator

from hms.engine.deadletters import DeadReason, keep, target_of
from hms.engine.effects import Deliver, Effects
from hms.engine.line import ids_of
from hms.engine.messages import OF_COMMIT, OVERHEAD_BYTES, StoredMessage
from hms.engine.places import Queue, Subscription
from hms.engine.sessions import Consumer
from hms.engine.state import State
from hms.records import Cause, RecordType, ranges

CHUNK_MESSAGES = 256
CHUNK_BYTES = 1 << 20
OUT_BYTES_MAX = 16 << 20
"""So many bytes may be out to one consumer; it gets at least one message all the same."""
ACK_NONE = 3
RANGES_PER_RECORD = 1024
"""16 KiB: a record has to fit into the smallest segment."""


def dispatch(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Deliver what waits at a place as far as its consumers' credit goes."""
    line = place.line
    if not line.waiting_count or not place.consumers:
        return
    if isinstance(place, Queue) and place.candidates:
        _dispatch_selected(state, place, fx)
    ready = [c for c in place.consumers if c.selector is None and _has_room(c)]
    expired: list[StoredMessage] = []
    while line.waiting_count and ready:
        share = min(CHUNK_MESSAGES, -(-line.waiting_count // len(ready)))
        place.turn += 1
        start = place.turn % len(ready)
        for consumer in ready[start:] + ready[:start]:
            count = min(consumer.credit, share)
            room = min(CHUNK_BYTES, OUT_BYTES_MAX - consumer.out_bytes)
            messages = line.take(count, room, state.now_ms, expired)
            if messages:
                _deliver(state, place, consumer, messages, fx)
        ready = [c for c in ready if _has_room(c)]
    discard(state, place, expired, Cause.EXPIRED, fx)
    if line.waiting_count and not place.is_durable:
        _limit_passing(state, place, fx)


def _limit_passing(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A subscriber that is not durable and does not keep up loses its oldest messages, counted; the
    topic and its other subscribers go on (F-E8)."""
    line = place.line
    out = sum(c.out_bytes + OVERHEAD_BYTES * len(c.out) for c in place.consumers)
    dropped: list[StoredMessage] = []
    expired: list[StoredMessage] = []
    while line.waiting_count and line.size_bytes - out > state.settings.passing_bytes_max:
        for message in line.take(1, 1, state.now_ms, expired):
            line.settle(message)
            dropped.append(message)
    discard(state, place, dropped, Cause.LIMIT, fx)
    discard(state, place, expired, Cause.EXPIRED, fx)


def dispatch_due(state: State, fx: Effects) -> None:
    """Deliver delayed messages whose time has come."""
    places: dict[int, Queue | Subscription] = {}
    while state.due and state.due[0][0] <= state.now_ms:
        place = heapq.heappop(state.due)[2]
        places[id(place)] = place
    for place in places.values():
        again = place.line.release_due(state.now_ms)
        if isinstance(place, Queue):
            place.offer_again(again)
        dispatch(state, place, fx)


def _has_room(consumer: Consumer) -> bool:
    return consumer.credit > 0 and consumer.out_bytes < OUT_BYTES_MAX


def _dispatch_selected(state: State, queue: Queue, fx: Effects) -> None:
    """Consumers with selectors take from what matches them."""
    index = queue.line.open_index()
    expired: list[StoredMessage] = []
    for consumer, found in queue.candidates.items():
        chosen: list[StoredMessage] = []
        room = OUT_BYTES_MAX - consumer.out_bytes
        while found and len(chosen) < consumer.credit and room > 0:
            message = found.popleft()
            if index.get(message.id) is not message:
                continue  # somebody else took it
            if 0 < message.expires_at_ms <= state.now_ms:
                queue.line.remove(message)
                expired.append(message)
                continue
            queue.line.take_one(message)
            chosen.append(message)
            room -= message.length
        for chunk in _chunks(chosen):
            _deliver(state, queue, consumer, chunk, fx)
    discard(state, queue, expired, Cause.EXPIRED, fx)


def _chunks(messages: list[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Messages by so many as one frame should carry."""
    chunk: list[StoredMessage] = []
    room = CHUNK_BYTES
    for message in messages:
        room -= message.length
        if len(chunk) == CHUNK_MESSAGES or (chunk and room < 0):
            yield chunk
            chunk, room = [], CHUNK_BYTES - message.length
        chunk.append(message)
    if chunk:
        yield chunk


def _deliver(
    state: State,
    place: Queue | Subscription,
    consumer: Consumer,
    messages: list[StoredMessage],
    fx: Effects,
) -> None:
    line = place.line
    counts = None
    if line.history:
        counts = [line.deliveries(m) + 1 for m in messages]
        line.counters.redelivered += sum(1 for n in counts if n > 1)
    line.counters.delivered += len(messages)
    if any(m.is_persistent or m.slot == OF_COMMIT for m in messages):
        fx.must_wait = True
        write_ranges(state, place, RecordType.DELIVERED, messages, fx)
    consumer.credit -= len(messages)
    if consumer.session.ack_mode == ACK_NONE:
        acknowledge(state, place, messages, fx)
    else:
        consumer.out.update([(m.id, m) for m in messages])
        consumer.out_bytes += sum([m.length for m in messages])
    fx.out.append(
        Deliver(
            consumer.connection.number,
            consumer.handle,
            consumer.epoch,
            messages,
            counts,
            consumer.listener,
            consumer.session.handle,
            "queue" if isinstance(place, Queue) else "topic",
            place.name if isinstance(place, Queue) else place.said_topic,
        )
    )


def acknowledge(
    state: State, place: Queue | Subscription, messages: list[StoredMessage], fx: Effects
) -> None:
    """Messages that were out are done with."""
    for message in messages:
        place.line.settle(message)
        state.waiting_bytes -= message.size_bytes
    place.line.counters.acknowledged += len(messages)
    write_ranges(state, place, RecordType.ACKNOWLEDGED, messages, fx)


def discard(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    cause: Cause,
    fx: Effects,
) -> None:
    """Count and record messages that have left the line for another cause (P9)."""
    if not messages:
        return
    counters = place.line.counters
    state.waiting_bytes -= sum(m.size_bytes for m in messages)
    if cause is not Cause.EXPIRED:
        counters.purged += len(messages)
    else:
        counters.expired += len(messages)
        target = target_of(state, place, DeadReason.EXPIRED)
        if target is not None:
            keep(state, place, target, [(m, 0) for m in messages], DeadReason.EXPIRED, fx)
            dispatch(state, target, fx)
            messages = [m for m in messages if not (m.is_persistent and place.is_durable)]
    write_ranges(state, place, RecordType.DISCARDED, messages, fx, cause)


def write_ranges(
    state: State,
    place: Queue | Subscription,
    kind: RecordType,
    messages: list[StoredMessage],
    fx: Effects,
    cause: Cause = Cause.NONE,
) -> None:
    """Record what happened to those of the messages that the log knows."""
    if not place.is_durable:
        return
    spans = ids_of([m for m in messages if m.is_persistent])
    for start in range(0, len(spans), RANGES_PER_RECORD):
        chunk = spans[start : start + RANGES_PER_RECORD]
        fx.records.append(ranges(kind, place.number, state.now_ms, chunk, cause))
