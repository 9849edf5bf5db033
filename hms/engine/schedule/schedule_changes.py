"""Schedule changes: schedules are made, replaced and cancelled, and dealt with at boot (F-D4)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from hms.engine.effects import Effects
from hms.engine.flow.limits import check_rows
from hms.engine.log.live_index import hold, offsets_of
from hms.engine.log.paging import memory_bytes
from hms.engine.messages import StoredMessage
from hms.engine.queue.incoming import FILES, check_values
from hms.engine.queue.queue_send import FORGOTTEN
from hms.engine.schedule.schedule_plans import Plan, check_plan
from hms.engine.schedule.schedule_records import describe, left, told_again
from hms.engine.schedule.schedules import NODE_PLAN, Schedule, Schedules, sent_count
from hms.engine.session.deduplication import Taken
from hms.engine.session.opening import number_schedules
from hms.engine.session.session_objects import Producer
from hms.engine.state import State
from hms.errors.catalogue import (
    InvalidArgument,
    InvalidSchedule,
    MessageTooLarge,
    ScheduleExists,
    ScheduleLimit,
    ScheduleNotFound,
    SendInDoubt,
    StoreFull,
)
from hms.errors.tree import HmsError
from hms.records import Cause, Placement, Record, Sent, group, sent
from hms.wire.packed_messages import FLAG_RETAIN, HEAD_BYTES_MAX, ROW, Row, decode_head, encode_head

PLAN_BYTES = 1024
_encode = msgspec.msgpack.Encoder().encode


def begin(state: State, is_warm: Callable[[Plan], bool], fx: Effects) -> None:
    """At boot: what is to be forgotten goes, what was missed is dealt with as the plans say."""
    schedules = state.schedules
    if schedules is None:
        return
    schedules.booted_ms = state.now_ms
    for schedule in list(schedules.by_name.values()):
        if is_warm(schedule.plan):
            _begin_one(state, schedules, schedule, fx)
        else:
            fx.records.append(left(state, schedules, schedule, Cause.COLD))


def _begin_one(state: State, schedules: Schedules, schedule: Schedule, fx: Effects) -> None:
    count, now_ms = sent_count(schedules, schedule), state.now_ms
    calendar = state.settings.calendar
    due_ms: int | None = schedule.due_ms
    try:
        due_ms = schedule.plan.due_after_outage(schedule.due_ms, now_ms, count, calendar)
    except HmsError as error:  # a time zone that is gone from this machine
        schedule.error = str(error)
    if due_ms is None:
        fx.records.append(left(state, schedules, schedule, Cause.ENDED))
        return
    if due_ms != schedule.due_ms:
        fx.records.append(told_again(state, schedules, schedule, due_ms, count))
    schedules.push(schedule)


class Request(NamedTuple):
    """How a client numbers what it asks for, so that what comes again is known (F-D9): by a handle
    and a sequence of its own; handle 0: not at all."""

    handle: int = 0
    sequence: int = 0


def add(
    state: State,
    producer: Producer,
    plan: Plan,
    row: Row,
    payload: bytes,
    request: Request,
    fx: Effects,
    *,
    may_replace: bool,
    refused: str | None = None,
) -> dict[str, Any]:
    """A new schedule; one without end once more changes nothing. What there is of it, described.
    refused: why the log takes no new messages now; one that it has already is no new one.
    InvalidSchedule, NotAuthorized, ScheduleExists, ScheduleLimit, SendInDoubt, StoreFull."""
    if producer.session.is_transacted:
        detail = "a transacted session has none; use another"
        raise InvalidArgument(what="a schedule", detail=detail)
    check_plan(plan)
    plan = _owned(state, producer, plan)
    known = None if state.schedules is None else state.schedules.by_name.get(plan.name)
    sender = producer.session.connection.sender
    template = _template(row, payload, {NODE_PLAN: _encode(plan), **sender})
    if _is_repeated(state, producer, request) or _is_same(known, plan, template):
        fx.must_wait = True
        return describe(state, plan, known)
    if refused is not None:
        raise StoreFull(path="the store", detail=refused)
    if known is not None and not may_replace:
        raise ScheduleExists(name=plan.name)
    check_rows(producer, [row])
    due_ms = _check_new(state, plan, row, len(template))
    schedules = _schedules(state, fx)
    records = [] if known is None else [left(state, schedules, known, Cause.CANCELLED)]
    message = _message(state, row, template, fx)
    records.append(_kept(state, schedules, producer, row, message, due_ms, request))
    fx.records.append(group(0, 0, 0, state.now_ms, records) if known is not None else records[0])
    schedule = schedules.by_name[plan.name] = Schedule(plan, message, due_ms)
    schedules.push(schedule)
    return describe(state, plan, schedule)


def _owned(state: State, producer: Producer, plan: Plan) -> Plan:
    """Where logins are checked it belongs to the user who makes it; NotAuthorized for one that is
    to be retained by a user who may not retain."""
    authority, connection = state.space.authority, producer.session.connection
    if authority is None:
        return plan
    if plan.kind == "topic" and plan.flags & FLAG_RETAIN:
        authority.check_retain(connection.number, producer.topic)
    return msgspec.structs.replace(plan, owner=connection.user)


def _is_repeated(state: State, producer: Producer, request: Request) -> bool:
    """Whether it was taken before; it may have ended since."""
    if not request.handle:
        return False
    number_schedules(state, producer, request.handle, request.sequence)
    memory = state.memories.producer(producer.session.connection.uid, request.handle)
    if request.sequence <= memory.forgotten:
        raise SendInDoubt(destination=producer.destination.name, count=1, reason=FORGOTTEN)
    return memory.recent.get(request.sequence) is not None


def _is_same(known: Schedule | None, plan: Plan, template: bytes) -> bool:
    """Whether there is this very schedule; one that ends by itself may have ended in between."""
    if known is None or plan.count_max or plan.until_ms:
        return False
    return (known.plan, known.message.payload) == (plan, template)


def _check_new(state: State, plan: Plan, row: Row, size: int) -> int:
    """When it is due first; everything that can be refused is refused here."""
    limit = state.settings.message_bytes_max // 2  # it is told again in one record with its message
    if size > limit:
        raise MessageTooLarge(size=size, limit=limit)
    if row.head_bytes > HEAD_BYTES_MAX - PLAN_BYTES:
        raise MessageTooLarge(size=row.head_bytes, limit=HEAD_BYTES_MAX - PLAN_BYTES)
    if row.delay_ms:
        detail = "a schedule says itself when its messages are due"
        raise InvalidArgument(what="delivery delay", detail=detail)
    if check_values(memoryview(b""), [row], state.settings.message_bytes_max).uses & FILES:
        raise InvalidArgument(what="a schedule", detail="a file is sent once; it cannot come again")
    count = 0 if state.schedules is None else len(state.schedules.by_name)
    if count >= state.settings.schedules_max:
        raise ScheduleLimit(count=count, limit=state.settings.schedules_max)
    state.check_memory(memory_bytes(state, [row], can_page=False) + PLAN_BYTES)
    due_ms = plan.next_ms(state.now_ms, 0, state.settings.calendar)
    if due_ms is None:
        raise InvalidSchedule(name=plan.name, detail="it never comes to pass")
    return due_ms


def cancel(state: State, name: str, fx: Effects) -> None:
    """End a schedule; what it has sent stays where it is. ScheduleNotFound."""
    schedules = state.schedules
    found = None if schedules is None else schedules.by_name.get(name)
    if schedules is None or found is None:
        raise ScheduleNotFound(name=name)
    fx.records.append(left(state, schedules, found, Cause.CANCELLED))


def _schedules(state: State, fx: Effects) -> Schedules:
    if state.schedules is None:
        state.schedules = Schedules(state.scheduled_place(fx))
        state.schedules.booted_ms = state.now_ms
    return state.schedules


def _template(row: Row, payload: bytes, told: dict[str, Any]) -> bytes:
    """Head and body of the message that waits; MessageFormatError for a head nobody can read."""
    head = decode_head(payload[: row.head_bytes])
    encoded = encode_head(msgspec.structs.replace(head, node=told))
    return encoded + payload[row.head_bytes :]


def _message(state: State, row: Row, template: bytes, fx: Effects) -> StoredMessage:
    return StoredMessage.of(
        state.take_ids(1, fx),
        state.take_seqs(1),
        state.now_ms,
        0,
        row.priority,
        row.kind,
        len(template) - row.body_bytes,
        template,
        is_persistent=True,
    )


def _kept(
    state: State,
    schedules: Schedules,
    producer: Producer,
    row: Row,
    message: StoredMessage,
    due_ms: int,
    request: Request,
) -> Record:
    """The message waits for its first time from now on."""
    place = schedules.place
    place.line.add([message])
    place.line.delay(message, due_ms)
    state.waiting_bytes += message.size_bytes
    hold([message], place.number)
    log_position = state.blocks.add([message], offsets_of([message], ROW.size))
    kinds = row.priority, row.kind
    kept = ROW.pack(message.head_bytes, row.body_bytes, 0, due_ms - state.now_ms, *kinds, 0, 0)
    uid = producer.session.connection.uid
    if request.handle:
        taken = Taken(message.id, state.now_ms, 1)
        batches_max = state.settings.frames_in_flight_max
        state.memories.remember(uid, request.handle, request.sequence, taken, batches_max)
    head = Sent(
        *(place.number, message.id, state.now_ms, uid, request.handle, request.sequence, 1),
        is_forwarded=True,
        placements=[Placement(place.number, b"")],
        pack=memoryview(kept + message.payload),
        first_seq=message.seq,
    )
    return sent(head, log_position)
