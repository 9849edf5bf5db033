"""Dispatch: waiting messages go to consumers that have credit.

A queue's messages are shared out in turn, in chunks when many wait, so that one frame and one
record serve many messages; a consumer of a lower priority gets what those of higher ones have no
room for. A delivery of persistent messages is a record: after a crash the message
is known to have been out, so it comes again with the right count (docs/decisions/0006).
"""

import contextlib
import heapq
from collections.abc import Iterator
from functools import partial

from hms.constants import AckMode
from hms.engine.effects import Deliver, Effects
from hms.engine.groups.group_dispatch import HandOut
from hms.engine.messages import (
    OF_COMMIT,
    OVERHEAD_BYTES,
    StoredMessage,
    id_of,
    length_of,
    sizes_of,
)
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.queue.dead_letters import DeadReason, Death, keep, target_of
from hms.engine.queue.destinations import SCHEDULED, Queue, Subscription
from hms.engine.queue.pending_list import RANGES_PER_RECORD
from hms.engine.state import State
from hms.records import Cause, RecordType, group, ranges
from hms.wire.frames import as_ranges
from hms.wire.packed_messages import FLAG_LAST, KIND_FILE

CHUNK_MESSAGES = 256
CHUNK_BYTES = 1 << 20
RELEASED_AT_ONCE = 4096
DELIVERED_AT_ONCE = 2048
"""About 10 ms when they came back before. What more a command could deliver is left to ticks."""


def dispatch(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Deliver what waits at a place as far as its consumers' credit goes."""
    if state.outgoing.at_end is not None:
        state.outgoing.at_end[id(place)] = place
        return
    line = place.line
    state.outgoing.rest.pop(id(place), None)
    is_paused = place.control.is_receiving_paused or place.holds or state.outgoing.is_paused
    if not line.waiting_count or not place.consumers or is_paused:
        if place.feed is not None:
            place.feed(fx)
        return
    if state.outgoing.effort >= DELIVERED_AT_ONCE:  # a publication may have 25,000 such places
        state.outgoing.rest[id(place)] = place
        return
    before = state.outgoing.effort
    if line.groups is not None and line.groups.waiting_count:
        _dispatch_grouped(state, place, fx)
    else:
        _dispatch_plain(state, place, fx)
    if state.outgoing.effort == before:
        state.outgoing.effort += 1  # to look at one where nobody has room costs as much
    if not line.waiting_count:
        if place.feed is not None:
            place.feed(fx)
    elif state.outgoing.effort < DELIVERED_AT_ONCE:
        _after(state, place, fx)
    else:
        state.outgoing.rest[id(place)] = place


def _dispatch_plain(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Where a consumer may take any message."""
    line = place.line
    for priority in place.priorities:
        if isinstance(place, Queue) and place.candidates:
            _dispatch_selected(state, place, priority, fx)
        ready = [
            c for c in place.consumers if c.selector is None and c.credit > 0 and c.room_bytes > 0
        ]  # of thousands; a call for each would be most of it
        if len(place.priorities) > 1 or state.outgoing.is_limited:
            ready = _with_room(state, place, [c for c in ready if c.priority == priority])
        expired: list[StoredMessage] = []
        while line.waiting_count and ready and state.outgoing.effort < DELIVERED_AT_ONCE:
            share = min(CHUNK_MESSAGES, -(-line.waiting_count // len(ready)))
            place.turn += 1
            start = place.turn % len(ready)
            for consumer in ready[start:] + ready[:start] if start else ready:
                if not line.waiting_count or state.outgoing.effort >= DELIVERED_AT_ONCE:
                    break
                count = min(consumer.credit, share)
                is_limited = state.outgoing.is_limited  # else a call more for each frame
                room = _room_bytes(state, place, consumer) if is_limited else consumer.room_bytes
                room = min(CHUNK_BYTES, room)
                gone = len(expired)
                count *= room > 0  # another consumer of its user may have taken all there was
                messages = line.take(count, room, state.now_ms, expired, DELIVERED_AT_ONCE)
                state.outgoing.effort += len(expired) - gone
                if messages:
                    _deliver(state, place, consumer, messages, fx)
            if line.waiting_count:
                ready = _with_room(state, place, ready)
        if expired:
            discard(state, place, expired, Cause.EXPIRED, fx)


def dispatch_rest(state: State, fx: Effects) -> None:
    """Deliver what commands have left, as far as one may; each place in its turn."""
    outgoing = state.outgoing
    rest = outgoing.rest
    for _ in range(len(rest)):
        if outgoing.effort >= DELIVERED_AT_ONCE:
            break
        dispatch(state, next(iter(rest.values())), fx)
    for limit, places in list(outgoing.held.items()):
        while places and limit.room_bytes > 0 and outgoing.effort < DELIVERED_AT_ONCE:
            dispatch(state, places.pop(next(iter(places))), fx)  # held again, it is the last one
        if not places:
            del outgoing.held[limit]


@contextlib.contextmanager
def dispatching_once(state: State, fx: Effects) -> Iterator[None]:
    """What is to be dispatched in the block is dispatched at its end, each place once: a command of
    many parts, each of which lets messages go out again, would cost as much as all of them."""
    if state.outgoing.at_end is not None:
        yield
        return
    state.outgoing.at_end = {}
    try:
        yield
    finally:
        places, state.outgoing.at_end = state.outgoing.at_end, None
        for place in places.values():
            dispatch(state, place, fx)


@contextlib.contextmanager
def dispatching_later(state: State, places: dict[int, Queue | Subscription]) -> Iterator[None]:
    """What is to be dispatched in the block is only noted."""
    state.outgoing.at_end = places
    try:
        yield
    finally:
        state.outgoing.at_end = None


def _after(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """What could not be delivered may be too much, or be for other nodes."""
    if place.line.waiting_count and not place.is_durable and isinstance(place, Subscription):
        _limit_passing(state, place, fx)
    if place.feed is not None:
        place.feed(fx)


def _limit_passing(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A subscriber that is not durable and does not keep up loses its oldest messages, counted; the
    topic and its other subscribers go on (F-E8)."""
    line = place.line
    out = sum(c.out_bytes + OVERHEAD_BYTES * len(c.out) for c in place.holders)
    dropped: list[StoredMessage] = []
    expired: list[StoredMessage] = []
    while line.waiting_count and line.size_bytes - out > state.settings.passing_bytes_max:
        if state.outgoing.effort >= DELIVERED_AT_ONCE:  # one large message outweighs 60,000
            state.outgoing.rest[id(place)] = place
            break
        state.outgoing.effort += 1
        if line.waiting_count == line.held_count:
            dropped.append(line.remove_held())
            continue
        for message in line.take(1, 1, state.now_ms, expired):
            line.settle(message)
            dropped.append(message)
    discard(state, place, dropped, Cause.LIMIT, fx)
    discard(state, place, expired, Cause.EXPIRED, fx)


def dispatch_due(state: State, fx: Effects) -> None:
    """Deliver delayed messages whose time has come: so many of all places together. What 2,000
    subscriptions had delayed together was released in 2 s."""
    places: dict[int, Queue | Subscription] = {}
    left = RELEASED_AT_ONCE
    while left > 0 and state.due and state.due[0][0] <= state.now_ms:
        place = heapq.heappop(state.due)[2]
        if place.kind == SCHEDULED or id(place) in places:
            continue  # what waits in the former is never delivered itself
        places[id(place)] = place
        again = place.line.release_due(state.now_ms, left)
        left -= 1 + len(again)
        next_ms = place.line.delayed.next_ms()
        if next_ms is not None:
            state.wake_at(next_ms, place)
        if isinstance(place, Queue):
            place.offer_again(again)
    for place in places.values():
        dispatch(state, place, fx)
    if left <= 0 and not state.outgoing.is_due:
        state.outgoing.is_due = True
        state.unfinished.append(lambda _: _more_is_due(state))


def _more_is_due(state: State) -> bool:
    """Whether the next tick has to release more, behind what waits now."""
    state.outgoing.is_due = bool(state.due) and state.due[0][0] <= state.now_ms
    return state.outgoing.is_due


def _dispatch_grouped(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """The same where groups or global orders decide who gets what, and when."""
    groups = place.line.groups
    assert groups is not None, f"{place.name} has no groups"
    if groups.is_handing_out:
        return  # it is called by what it does itself; it goes on until nothing more goes out
    groups.is_handing_out = is_any = True
    while is_any and state.outgoing.effort < DELIVERED_AT_ONCE:
        left = DELIVERED_AT_ONCE - state.outgoing.effort
        hand_out = HandOut(place, state.now_ms, left, partial(_room_bytes, state, place))
        hand_out.run()
        for consumer, messages in hand_out.batches.items():
            for chunk in _chunks(messages):
                _deliver(state, place, consumer, chunk, fx)
        discard(state, place, hand_out.expired, Cause.EXPIRED, fx)
        state.outgoing.effort += len(hand_out.expired)
        is_any = bool(hand_out.batches or hand_out.expired)
    groups.is_handing_out = groups.is_woken = False


def wake(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Deliver what may go out now because something was settled or has left (F-C16, F-C17)."""
    groups = place.line.groups
    if groups is not None and groups.is_woken:
        dispatch(state, place, fx)
        groups.is_woken = groups.is_handing_out


def _with_room(
    state: State, place: Queue | Subscription, consumers: list[ConsumerView]
) -> list[ConsumerView]:
    """Those of them that may be sent something."""
    ready = [c for c in consumers if c.credit > 0 and c.room_bytes > 0]
    if state.outgoing.is_limited:
        ready = [c for c in ready if _room_bytes(state, place, c) > 0]
    return ready


def _room_bytes(state: State, place: Queue | Subscription, consumer: ConsumerView) -> int:
    """How much it may be sent. Where only its user's limit is in the way, the place is noted: it is
    looked at again when something of the user's was settled."""
    limit = consumer.session.connection.in_flight
    if limit is None:
        return consumer.room_bytes
    if limit.room_bytes <= 0:
        state.outgoing.held.setdefault(limit, {})[id(place)] = place
    return min(consumer.room_bytes, limit.room_bytes)


def _dispatch_selected(state: State, queue: Queue, priority: int, fx: Effects) -> None:
    """Consumers of that priority with selectors take from what matches them."""
    expired: list[StoredMessage] = []
    for consumer, found in queue.candidates.items():
        if consumer.priority != priority:
            continue
        if state.outgoing.effort >= DELIVERED_AT_ONCE:
            break
        chosen: list[StoredMessage] = []
        room = _room_bytes(state, queue, consumer)
        while len(chosen) < consumer.credit and room > 0 and (entry := found.first()) is not None:
            message = entry[-1]
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
    consumer: ConsumerView,
    messages: list[StoredMessage],
    fx: Effects,
) -> None:
    line = place.line
    state.outgoing.effort += len(messages)
    counts = None
    if line.history:
        counts = [line.deliveries(m) + 1 for m in messages]
        line.count("redelivered", sum(1 for n in counts if n > 1))
    line.counters.delivered += len(messages)
    line.totals.delivered += len(messages)
    line.delivered_ms = now_ms = state.now_ms
    sample = line.sample
    if sample is not None and sample.is_armed and counts is None:
        sample.delivered(messages[0], now_ms)
    first = messages[0]  # mostly they are all of one kind
    is_recorded = False
    if first.is_persistent or any(m.is_persistent or m.slot == OF_COMMIT for m in messages):
        fx.must_wait, is_recorded = True, place.is_durable
        write_ranges(state, place, RecordType.DELIVERED, messages, fx)
    parts = None
    if line.groups is not None and line.groups.gathering is not None:
        parts = [line.groups.part_of(m) for m in messages]
    consumer.credit -= len(messages) if parts is None else _lists_and_others(parts)
    size_bytes = sum(map(length_of, messages))
    consumer.room_bytes -= size_bytes
    kept = messages
    if consumer.session.ack_mode == AckMode.NONE:  # but a file is there until it was saved (F-B4)
        kept = [m for m in messages if m.kind == KIND_FILE]
        acknowledge(state, place, [m for m in messages if m.kind != KIND_FILE], fx)
        size_bytes = sum([m.length for m in kept])
    consumer.out.update(zip(map(id_of, kept), kept, strict=True))
    consumer.out_bytes += size_bytes
    if (limit := consumer.session.connection.in_flight) is not None:
        limit.size_bytes += size_bytes
    fx.out.append(
        Deliver(
            consumer.session.connection.number,
            consumer.handle,
            consumer.epoch,
            messages,
            counts,
            consumer.listener,
            consumer.session.handle,
            "queue" if isinstance(place, Queue) else "topic",
            place.name if isinstance(place, Queue) else place.said_topic,
            parts,
            is_recorded,
        )
    )


def _lists_and_others(parts: list[int]) -> int:
    """A list is one message to its consumer."""
    return sum(1 for part in parts if not part or part & FLAG_LAST)


def acknowledge(
    state: State, place: Queue | Subscription, messages: list[StoredMessage], fx: Effects
) -> None:
    """Messages that were out are done with."""
    line, count = place.line, len(messages)
    sample = line.sample
    if sample is not None and messages and messages[0].id <= sample.message_id <= messages[-1].id:
        sample.settled(messages, state.now_ms)
    state.waiting_bytes -= line.settle_all(messages)
    line.counters.acknowledged += count
    line.totals.acknowledged += count
    write_ranges(state, place, RecordType.ACKNOWLEDGED, messages, fx)
    if line.groups is not None and line.groups.is_woken:
        wake(state, place, fx)


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
    line = place.line
    state.waiting_bytes -= sizes_of(messages)
    if cause is Cause.LIMIT:
        line.count("removed", len(messages))
    elif cause is not Cause.EXPIRED:
        line.count("purged", len(messages))
    else:
        line.count("expired", len(messages))
        target = target_of(state, place, DeadReason.EXPIRED)
        if target is not None:
            dead = [(m, 0) for m in messages]
            keep(state, place, target, dead, Death(DeadReason.EXPIRED), fx)
            dispatch(state, target, fx)
            messages = [m for m in messages if not (m.is_persistent and place.is_durable)]
    write_ranges(state, place, RecordType.DISCARDED, messages, fx, cause)
    wake(state, place, fx)


def write_ranges(
    state: State,
    place: Queue | Subscription,
    kind: RecordType,
    messages: list[StoredMessage],
    fx: Effects,
    cause: Cause = Cause.NONE,
    due_ms: int = 0,
) -> None:
    """Record what happened to those of the messages that the log knows. due_ms: they wait again,
    but not before."""
    if not place.is_durable:
        return
    if len(messages) == 1:
        only = messages[0]
        spans = [(only.id, only.id)] if only.is_persistent else []
    else:
        spans = as_ranges([m.id for m in messages if m.is_persistent])
    if not spans:
        return
    if len(spans) <= RANGES_PER_RECORD:
        fx.records.append(ranges(kind, place.number, state.now_ms, spans, cause, due_ms))
        return
    records = []
    for start in range(0, len(spans), RANGES_PER_RECORD):
        chunk = spans[start : start + RANGES_PER_RECORD]
        records.append(ranges(kind, place.number, state.now_ms, chunk, cause, due_ms))
    groups = place.line.groups
    if len(records) > 1 and groups is not None and groups.gathering is not None:
        records = [group(0, 0, 0, state.now_ms, records)]  # no list is settled by halves
    fx.records += records
