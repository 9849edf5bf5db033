"""Schedules: messages that are sent again and again, by interval or cron expression (F-D4).

Theory of operation. A schedule is a message that waits at a place of its own, which nobody consumes
from, until its next occurrence; so recovery, quotas and the moving of old segments treat it like
any message with a delay. Its head carries the plan. When it is due, a message like it is sent to
its destination and it is told again with its next time; both are one record, so after a crash the
occurrence has been sent and is over, or neither: each is sent exactly once. An occurrence for which
there is no room is kept and tried again; those behind it wait for it.

What was due while the node was down is *missed*: plans say what becomes of it. What was due while
the node was up is never missed, however late it is.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from field_buffer.catalogue import (
    InvalidArgument,
    InvalidSchedule,
    MessageTooLarge,
    ScheduleExists,
    ScheduleLimit,
    ScheduleNotFound,
    StoreFull,
)
from field_buffer.errors import HmsError
from field_buffer.packing import HEAD_BYTES_MAX, ROW, Head, Row, decode_head, encode_head
from hms.engine.audience import check_publication
from hms.engine.blocks import hold, offsets_of
from hms.engine.dispatch import dispatch
from hms.engine.effects import Effects
from hms.engine.limits import check_rows, make_room, obstacle_to
from hms.engine.line import ids_of
from hms.engine.messages import StoredMessage
from hms.engine.numbering import ProducerMemory
from hms.engine.paging import check_memory, memory_bytes, page_out_new
from hms.engine.places import Queue, Scheduled
from hms.engine.plans import Plan, check_plan
from hms.engine.publishing import Stored
from hms.engine.sending import check_values, store_batch
from hms.engine.sessions import Connection, PendingBatch, Producer, Session
from hms.engine.state import State
from hms.records import (
    Cause,
    Kept,
    Placement,
    Record,
    RecordType,
    Sent,
    Stay,
    group,
    moved,
    ranges,
    sent,
)

NODE_PLAN = "$Plan"
NODE_NAME, NODE_TIME, NODE_COUNT = "$ScheduleName", "$ScheduledTime", "$ScheduleCount"
"""What the node adds to a head: of the waiting message its plan, of those sent the schedule's name,
the time at which they were due, and their number, from 1."""
PLAN_BYTES = 1024
SENT_AT_ONCE = 256
RETRY_MS = 1000
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Plan).decode


class Schedule:
    """A plan with the message that waits for its next occurrence. error: why it could not be sent
    the last time."""

    __slots__ = ("due_ms", "error", "message", "plan")

    def __init__(self, plan: Plan, message: StoredMessage, due_ms: int) -> None:
        self.plan = plan
        self.message = message
        self.due_ms = due_ms
        self.error = ""


class Schedules:
    """All schedules of a node, the next one due first."""

    def __init__(self, place: Scheduled) -> None:
        self.place = place
        self.by_name: dict[str, Schedule] = {}
        self.booted_ms = 0
        self._heap: list[tuple[int, int, str]] = []
        self._stuck: list[Schedule] = []
        self._retry_ms = 0

    def due_ms(self) -> int | None:
        """When the next one is to be looked at."""
        while self._heap and self._current(self._heap[0]) is None:
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        return min([*times, self._retry_ms] if self._stuck else times, default=None)

    def push(self, schedule: Schedule) -> None:
        """A schedule waits for its time."""
        entry = schedule.due_ms, schedule.message.seq, schedule.plan.name
        heapq.heappush(self._heap, entry)

    def pop_due(self, now_ms: int) -> Iterator[Schedule]:
        """Schedules that are due, soonest first."""
        if self._stuck and self._retry_ms <= now_ms:
            for schedule in self._stuck:
                self.push(schedule)
            self._stuck = []
        while self._heap and self._heap[0][0] <= now_ms:
            found = self._current(heapq.heappop(self._heap))
            if found is not None:
                yield found

    def retry(self, schedule: Schedule, now_ms: int, error: str) -> None:
        """It could not be sent now."""
        schedule.error = error
        if not self._stuck:
            self._retry_ms = now_ms + RETRY_MS
        self._stuck.append(schedule)

    def _current(self, entry: tuple[int, int, str]) -> Schedule | None:
        due_ms, seq, name = entry
        found = self.by_name.get(name)
        if found is None or (found.due_ms, found.message.seq) != (due_ms, seq):
            return None
        return found


def recover_schedules(state: State) -> None:
    """After the log was read: what waits for its next occurrence."""
    place = next((p for p in state.places.values() if isinstance(p, Scheduled)), None)
    if place is None:
        return
    schedules = state.schedules = Schedules(place)
    for message in sorted(place.line.everything(), key=lambda m: m.seq):
        plan = _plan_of(message)
        due_ms = place.line.due_ms(message) or message.timestamp_ms
        schedules.by_name[plan.name] = Schedule(plan, message, due_ms)


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
            fx.records.append(_left(state, schedules, schedule, Cause.COLD))


def _begin_one(state: State, schedules: Schedules, schedule: Schedule, fx: Effects) -> None:
    count, now_ms = _sent_count(schedules, schedule), state.now_ms
    calendar = state.settings.calendar
    due_ms: int | None = schedule.due_ms
    try:
        due_ms = schedule.plan.due_after_outage(schedule.due_ms, now_ms, count, calendar)
    except HmsError as error:  # a time zone that is gone from this machine
        schedule.error = str(error)
    if due_ms is None:
        fx.records.append(_left(state, schedules, schedule, Cause.ENDED))
        return
    if due_ms != schedule.due_ms:
        fx.records.append(_told_again(state, schedules, schedule, due_ms, count))
    schedules.push(schedule)


def add(
    state: State,
    producer: Producer,
    plan: Plan,
    row: Row,
    payload: bytes,
    fx: Effects,
    *,
    may_replace: bool,
) -> dict[str, Any]:
    """A new schedule; the same one once more changes nothing. What there is of it, described.
    InvalidSchedule, ScheduleExists, ScheduleLimit."""
    if producer.session.is_transacted:
        raise InvalidArgument(
            what="a schedule", detail="a transacted session has none; use another"
        )
    check_plan(plan)
    known = None if state.schedules is None else state.schedules.by_name.get(plan.name)
    template = _template(row, payload, plan)
    if known is not None and (known.plan, known.message.payload) == (plan, template):
        fx.must_wait = True
        return describe(state, known)
    if known is not None and not may_replace:
        raise ScheduleExists(name=plan.name)
    check_rows(producer, [row])
    due_ms = _check_new(state, plan, row, len(template))
    schedules = _schedules(state, fx)
    records = [] if known is None else [_left(state, schedules, known, Cause.CANCELLED)]
    schedule, record = _keep(state, schedules, plan, row, template, due_ms, fx)
    fx.records.append(group(0, 0, 0, state.now_ms, [*records, record]) if records else record)
    return describe(state, schedule)


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
    if check_values(state, [row]):
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
    fx.records.append(_left(state, schedules, found, Cause.CANCELLED))


def send_due(state: State, refused: str | None, fx: Effects) -> None:
    """Send what is due, so many at once; refused: why the store takes nothing new now."""
    schedules = state.schedules
    if schedules is None:
        return
    for schedule in islice(schedules.pop_due(state.now_ms), SENT_AT_ONCE):
        try:
            if refused is not None:
                raise StoreFull(path="the store", detail=refused)
            _send_one(state, schedules, schedule, fx)
        except HmsError as error:
            schedules.retry(schedule, state.now_ms, str(error))


def _send_one(state: State, schedules: Schedules, schedule: Schedule, fx: Effects) -> None:
    plan, due_ms = schedule.plan, schedule.due_ms
    number = _sent_count(schedules, schedule) + 1
    next_ms = plan.follows(due_ms, schedules.booted_ms, number, state.settings.calendar)
    producer = _producer(state, plan)
    try:
        stored = _store(state, producer, schedule, number, fx)
    finally:
        if producer.node is not None:
            state.space.closed(producer.node, state.now_ms)
    schedule.error = ""
    if next_ms is None:
        last = _left(state, schedules, schedule, Cause.ENDED)
    else:
        last = _told_again(state, schedules, schedule, next_ms, number)
        schedules.push(schedule)
    fx.records.append(group(0, 0, 0, state.now_ms, [*stored.records, last]))
    for place in stored.touched:
        dispatch(state, place, fx)
    if state.is_guarded:
        make_room(state, stored.touched, fx)
    if plan.is_persistent:
        page_out_new(state, stored.messages, stored.touched)


def _store(
    state: State, producer: Producer, schedule: Schedule, number: int, fx: Effects
) -> Stored:
    """The occurrence, as if its sender had sent it just now."""
    plan, message = schedule.plan, schedule.message
    head = message.head()
    said = {NODE_NAME: plan.name, NODE_TIME: schedule.due_ms, NODE_COUNT: number}
    encoded = encode_head(msgspec.structs.replace(head, node=said))
    body = message.payload[message.head_bytes :]
    sizes, kind = (len(encoded), len(body)), (message.priority, message.kind)
    row = Row(*sizes, plan.ttl_ms, 0, *kind, plan.flags)
    pack = memoryview(b"".join((ROW.pack(*row), encoded, body)))
    _check_room(state, producer, row, pack, is_persistent=plan.is_persistent)
    first_id = state.take_ids(1, fx)
    batch = PendingBatch(producer, first_id, 1, state.now_ms, plan.is_persistent, pack)
    return store_batch(state, batch, [row], 0, fx)


def _check_room(
    state: State, producer: Producer, row: Row, pack: memoryview, *, is_persistent: bool
) -> None:
    """As a send is checked that does not wait."""
    obstacle = obstacle_to(state, producer, [row]) if state.is_guarded else None
    if obstacle is not None:
        raise obstacle.refusal
    if isinstance(producer.destination, Queue):
        check_memory(state, [row], is_persistent)
    else:
        check_publication(state, producer, [row], pack, is_persistent)


def _producer(state: State, plan: Plan) -> Producer:
    """The node's own, for one occurrence."""
    session = Session(Connection(0, 0), 0, 0, "")
    if plan.kind == "topic":
        topic, string = state.space.publication(plan.destination, plan.topic)
        producer = Producer(session, 0, topic, ProducerMemory())
        producer.topic, producer.node = string, state.space.opened(string, state.now_ms)
        return producer
    return Producer(session, 0, state.queue(plan.destination), ProducerMemory())


# the message that waits


def _schedules(state: State, fx: Effects) -> Schedules:
    if state.schedules is None:
        state.schedules = Schedules(state.scheduled_place(fx))
        state.schedules.booted_ms = state.now_ms
    return state.schedules


def _template(row: Row, payload: bytes, plan: Plan) -> bytes:
    """Head and body of the message that waits; MessageFormatError for a head nobody can read."""
    head = decode_head(payload[: row.head_bytes])
    encoded = encode_head(msgspec.structs.replace(head, node={NODE_PLAN: _encode(plan)}))
    return encoded + payload[row.head_bytes :]


def _plan_of(message: StoredMessage) -> Plan:
    head: Head = decode_head(message.payload[: message.head_bytes])
    plan: Plan = _decode(head.node[NODE_PLAN])
    return plan


def _keep(
    state: State,
    schedules: Schedules,
    plan: Plan,
    row: Row,
    template: bytes,
    due_ms: int,
    fx: Effects,
) -> tuple[Schedule, Record]:
    place, head_bytes = schedules.place, len(template) - row.body_bytes
    id_, seq = state.take_ids(1, fx), state.take_seqs(1)
    message = StoredMessage(
        id_, seq, state.now_ms, 0, row.priority, row.kind, head_bytes, template, is_persistent=True
    )
    place.line.add([message])
    place.line.delay(message, due_ms)
    state.waiting_bytes += message.size_bytes
    hold([message], place.number)
    landing = state.blocks.add([message], offsets_of([message], ROW.size))
    delay_ms = due_ms - state.now_ms
    kept = ROW.pack(head_bytes, row.body_bytes, 0, delay_ms, row.priority, row.kind, 0, 0)
    head = Sent(
        *(place.number, id_, state.now_ms, 0, 0, 0, 1),
        is_forwarded=True,
        placements=[Placement(place.number, b"")],
        pack=memoryview(kept + template),
        first_seq=seq,
    )
    schedule = schedules.by_name[plan.name] = Schedule(plan, message, due_ms)
    schedules.push(schedule)
    return schedule, sent(head, landing)


def _told_again(
    state: State, schedules: Schedules, schedule: Schedule, due_ms: int, sent_count: int
) -> Record:
    """It waits for its next time from now on."""
    message, line = schedule.message, schedules.place.line
    assert not message.is_paged, f"schedule {schedule.plan.name} has left memory"
    schedule.due_ms = due_ms
    line.delayed.add(message, due_ms)
    line.history[message.id] = (sent_count, 0)
    stay = Stay(schedules.place.number, sent_count, 0, due_ms)
    kept = Kept(
        *(message.id, message.seq, message.timestamp_ms, 0, message.priority, message.kind),
        message.head_bytes,
        message.length - message.head_bytes,
        [stay],
    )
    landing = state.blocks.move([message], offsets_of([message], 0))
    return moved([kept], [message.payload], landing)


def _left(state: State, schedules: Schedules, schedule: Schedule, cause: Cause) -> Record:
    place, message = schedules.place, schedule.message
    del schedules.by_name[schedule.plan.name]
    place.line.remove(message)
    state.waiting_bytes -= message.size_bytes
    spans = ids_of([message])
    return ranges(RecordType.DISCARDED, place.number, state.now_ms, spans, cause)


def describe(state: State, schedule: Schedule) -> dict[str, Any]:
    """A schedule as operators see it; times in milliseconds since 1970 UTC, 0 for none."""
    assert state.schedules is not None
    plan, message = schedule.plan, schedule.message
    return {
        "name": plan.name,
        "kind": "schedule",
        "destination": f"{plan.kind}:{plan.destination or plan.topic}",
        "next_ms": schedule.due_ms,
        "every_s": plan.every_ms / 1000,
        "cron": plan.cron,
        "time_zone": plan.time_zone,
        "missed": plan.missed,
        "sent": _sent_count(state.schedules, schedule),
        "first_ms": plan.first_ms,
        "until_ms": plan.until_ms,
        "max_count": plan.count_max,
        "persistent": plan.is_persistent,
        "bytes": message.length,
        "error": schedule.error,
    }


def _sent_count(schedules: Schedules, schedule: Schedule) -> int:
    return schedules.place.line.deliveries(schedule.message)
