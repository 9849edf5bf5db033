"""Relocation: operators move, copy and alter messages that wait (F-M3).

A chunk is one record, which says both where its messages left and where they came, so after a crash
each is in exactly one place. A moved message keeps its id, time, expiry, head and body, and how
often it was delivered; it stands behind all that waits at its new place. An altered one too: it
leaves its place and comes again. Whose body is in the log only is out until that was read.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from hms.engine.effects import Effects
from hms.engine.log.live_index import offsets_of
from hms.engine.log.paging import page_out_new
from hms.engine.messages import OF_COMMIT, StoredMessage, message_id_text
from hms.engine.queue.dead_letters import is_there, may_have, revived
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import dispatch, wake
from hms.engine.queue.file_references import watched_as
from hms.engine.queue.imported_ids import due_of, former, without_former
from hms.engine.queue.message_copies import record_of
from hms.engine.queue.pending_list import ids_of
from hms.engine.state import AwaitingPageIn, Relocation, State
from hms.records import Cause, Kept, Record, RecordType, Stay, by_order, group, moved, ranges
from hms.wire.packed_messages import NODE_DELIVERY_TIME, decode_head, encode_head

__all__ = ["came_in", "relocate"]

Place = Queue | Subscription


def relocate(
    state: State, place: Place, messages: Sequence[StoredMessage], how: Relocation, fx: Effects
) -> int:
    """Messages that wait or are delayed at a place go elsewhere; how many of them do so only when
    their bodies were read. The caller has checked that there is room."""
    resident = [m for m in messages if not m.is_paged]
    how = how._replace(operation=state.operation)
    for message in messages:
        if message.is_paged:
            line = place.line
            attempts = line.attempts(message)
            line.take_one(message)
            state.awaiting_page_in.append(
                AwaitingPageIn(place, message, attempts, "", relocation=how)
            )
    _relocate(state, place, [_Going(m, m.payload) for m in resident], how, fx)
    if len(resident) < len(messages):
        fx.must_wait = True
    return len(messages) - len(resident)


def came_in(state: State, waiting: AwaitingPageIn, payload: bytes, fx: Effects) -> None:
    """The body of a message that waited for it is there."""
    how, place, message = waiting.relocation, waiting.place, waiting.message
    assert how is not None, "it becomes a dead letter"
    line = place.line
    line.put_back(message, *line.history.get(message.id, (0, 0)))
    if how.to in state.places:
        _relocate(state, place, [_Going(message, payload)], how, fx)
    if isinstance(place, Queue) and (how.is_copy or how.to not in state.places):
        place.offer_again([message])
    dispatch(state, place, fx)


class _Going(msgspec.Struct, frozen=True):
    """A message with its head and body."""

    message: StoredMessage
    payload: bytes


class _Came(msgspec.Struct, frozen=True):
    """A message as it is now, how often it was delivered and failed, and when it is due."""

    message: StoredMessage
    deliveries: int
    attempts: int
    due_ms: int


def _relocate(
    state: State, place: Place, going: Sequence[_Going], how: Relocation, fx: Effects
) -> None:
    if not going:
        return
    target = place if how.to == place.number else state.places[how.to]
    line = place.line
    came = [_remade(state, place, target, one, how, fx) for one in going]
    left = [one.message for one in going]
    if not how.is_copy:
        for message in left:
            line.remove(message)
        state.waiting_bytes -= sum(m.size_bytes for m in left)
    _arrive(state, target, came)
    records = _records(state, place, target, left if not how.is_copy else [], came)
    if records:  # in a group what was sent long ago takes effect now
        records = [group(0, 0, 0, state.now_ms, records)]
        if how.operation:
            records = [by_order(one, how.operation, state.now_ms) for one in records]
    fx.records += records
    fx.must_wait = True
    if target is not place and not how.is_copy:
        line.count("moved_out", len(left))
    if target is not place:
        target.line.count("moved_in", len(left))
    if how.is_return:
        target.line.count("returned", len(left))
    page_out_new(state, [one.message for one in came], [target])
    wake(state, place, fx)
    dispatch(state, target, fx)


def _arrive(state: State, target: Place, came: Sequence[_Came]) -> None:
    line = target.line
    before = line.size_bytes
    line.add([one.message for one in came])
    line.count("sent", -len(came))
    state.waiting_bytes += line.size_bytes - before
    awake = []
    for one in came:
        if one.deliveries or one.attempts:
            line.history[one.message.id] = (one.deliveries, one.attempts)
        if one.due_ms > state.now_ms:
            line.delay(one.message, one.due_ms)
            state.wake_at(one.due_ms, target)
        else:
            awake.append(one.message)
    if isinstance(target, Queue):
        target.offer(awake)


def _remade(
    state: State, place: Place, target: Place, one: _Going, how: Relocation, fx: Effects
) -> _Came:
    message, line = one.message, place.line
    head, id_ = one.payload[: message.head_bytes], message.id
    is_elsewhere = target is not place
    if how.is_copy or (is_elsewhere and _may_have(state, target, id_, how)):
        found = message.head()
        node = dict(found.node) | {"$OriginalMessageID": message_id_text(id_)}
        head = encode_head(msgspec.structs.replace(found, node=node))
        id_ = state.take_ids(1, fx)
    timestamp_ms, due_ms = message.timestamp_ms, how.due_ms
    expires_at_ms = message.expires_at_ms if how.expires_at_ms is None else how.expires_at_ms
    if how.takes_id:
        found = decode_head(head)
        taken, sent_ms = former(found)
        id_, timestamp_ms = (taken, sent_ms) if taken else (id_, timestamp_ms)
        due_ms = due_of(found)
        head = encode_head(without_former(found))
    elif how.is_return:
        head = encode_head(revived(decode_head(head)))
    if how.due_ms is not None and not how.takes_id:
        found = decode_head(head)
        node = dict(found.node) | {NODE_DELIVERY_TIME: how.due_ms or state.now_ms}
        head = encode_head(msgspec.structs.replace(found, node=node))
    due_ms = line.due_ms(message) if due_ms is None else due_ms
    made = StoredMessage.of(
        id_,
        state.take_seqs(1),
        _sent_before(timestamp_ms, (expires_at_ms, due_ms), state.now_ms),
        expires_at_ms,
        message.priority if how.priority is None else how.priority,
        message.kind,
        len(head),
        head + one.payload[message.head_bytes :],
        is_persistent=message.is_persistent,
    )
    if message.slot == OF_COMMIT:
        made.slot = OF_COMMIT
    counts = line.history.get(message.id, (0, 0))
    if how.is_copy or how.is_count_reset:
        counts = (0, 0)
    return _Came(watched_as(message, made), *counts, due_ms)


def _sent_before(timestamp_ms: int, times_ms: Sequence[int], now_ms: int) -> int:
    """When a message was sent that ends or is due at these times, 0 for never: before them, also if
    the clock by which it was sent is ahead. Its record tells them by the time of sending."""
    for time_ms in times_ms:
        if 0 < time_ms <= timestamp_ms:
            timestamp_ms = max(0, min(now_ms, time_ms - 1))
    return timestamp_ms


def _may_have(state: State, target: Place, id_: int, how: Relocation) -> bool:
    """What is out of a forward is offered, and known."""
    if not isinstance(target, Queue):
        return False
    if not how.is_forward:
        return may_have(target, id_)
    is_offered = (target.number, id_) in state.moves.undecided
    return is_offered or is_there(target, id_)


def _records(
    state: State,
    place: Place,
    target: Place,
    left: Sequence[StoredMessage],
    came: Sequence[_Came],
) -> list[Record]:
    records = []
    spans = ids_of([m for m in left if m.is_persistent]) if place.is_durable else []
    if spans:
        at_ms = state.now_ms
        records.append(ranges(RecordType.DISCARDED, place.number, at_ms, spans, Cause.MOVED))
    kept = [one for one in came if one.message.is_persistent and target.is_durable]
    for run in _runs(kept):
        due = {one.message.id: one.due_ms for one in run if one.due_ms}
        records.append(record_of(state, target, [one.message for one in run], due))
    counted = [one for one in kept if one.deliveries or one.attempts]
    if counted:
        records.append(_counted(state, target, counted))
    return records


def _runs(came: Sequence[_Came]) -> Iterator[list[_Came]]:
    """Those that one SENT record can tell: their ids and places in the order follow one another,
    and they were sent at one time."""
    run: list[_Came] = list(came[:1])
    for before, after in pairwise(came):
        a, b = before.message, after.message
        follows = (a.id + 1, a.seq + 1, a.timestamp_ms) == (b.id, b.seq, b.timestamp_ms)
        if not follows:
            yield run
            run = []
        run.append(after)
    if run:
        yield run


def _counted(state: State, target: Place, came: Sequence[_Came]) -> Record:
    """What a SENT record cannot tell: how often they were delivered."""
    messages = [one.message for one in came]
    kept = [
        Kept(
            m.id,
            m.seq,
            m.timestamp_ms,
            m.expires_at_ms,
            m.priority,
            m.kind,
            m.head_bytes,
            m.length - m.head_bytes,
            [Stay(target.number, one.deliveries, one.attempts, one.due_ms)],
        )
        for one, m in zip(came, messages, strict=True)
    ]
    log_position = state.blocks.move(messages, offsets_of(messages, 0))
    return moved(kept, [m.payload for m in messages], log_position)
