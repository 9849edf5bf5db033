"""Due schedules: what is due is sent, and its schedule told again with its next time (F-D4)."""

from itertools import islice

import msgspec

from hms.engine.effects import Effects
from hms.engine.flow.limits import check_rows, obstacle_to
from hms.engine.flow.overflow_policy import make_room
from hms.engine.log.paging import check_memory, page_out_new
from hms.engine.queue.dead_letters import DeadReason, Death, told_of
from hms.engine.queue.destinations import Queue
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.incoming import accepted
from hms.engine.queue.queue_send import store_batch
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.schedule.schedule_records import left, told_again
from hms.engine.schedule.schedules import Schedule, Schedules, sent_count
from hms.engine.session.deduplication import ProducerMemory
from hms.engine.session.session_objects import Connection, PendingBatch, Producer, Session
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import State
from hms.engine.topic.audience import check_publication
from hms.engine.topic.publication import Stored
from hms.errors.catalogue import DestinationNotFound, MessageTooLarge, NotAuthorized, StoreFull
from hms.errors.tree import HmsError
from hms.records import Cause, group
from hms.wire.packed_messages import NODE_CLIENT, NODE_USER, ROW, Row, encode_head

NODE_NAME, NODE_TIME, NODE_COUNT = "$ScheduleName", "$ScheduledTime", "$ScheduleCount"
"""What the node says of what it sends: the schedule's name, the time at which it was due, and its
number, from 1."""
SENT_AT_ONCE = 256


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
        except NotAuthorized as error:
            _skip_one(state, schedules, schedule, str(error), fx)
        except (DestinationNotFound, MessageTooLarge) as error:
            _bury_one(state, schedules, schedule, error, fx)
        except HmsError as error:
            schedules.retry(schedule, state.now_ms, str(error))


def _check_owner(state: State, producer: Producer, plan: Plan) -> None:
    """NotAuthorized when its creator may not send this any more."""
    authority = state.space.authority
    if authority is not None and plan.owner:
        place = producer.topic or producer.destination.name
        authority.check_schedule(plan.owner, plan.name, plan.kind, place, plan.flags)


def _skip_one(
    state: State, schedules: Schedules, schedule: Schedule, error: str, fx: Effects
) -> None:
    """Its owner may not send it: nothing is sent, and it waits for its next time."""
    schedule.error, schedule.refused = error, schedule.refused + 1
    count, plan = sent_count(schedules, schedule), schedule.plan
    after_ms = max(schedule.due_ms, state.now_ms)
    next_ms = plan.next_ms(after_ms, count, state.settings.calendar)
    if next_ms is None:
        fx.records.append(left(state, schedules, schedule, Cause.ENDED))
        return
    fx.records.append(told_again(state, schedules, schedule, next_ms, count))
    schedules.push(schedule)


def _bury_one(
    state: State, schedules: Schedules, schedule: Schedule, error: HmsError, fx: Effects
) -> None:
    """Where it is to go there is nothing, or nothing that takes it: it is a dead letter."""
    is_large = isinstance(error, MessageTooLarge)
    reason = DeadReason.MESSAGE_TOO_LARGE if is_large else DeadReason.DESTINATION_UNKNOWN
    try:
        _send_one(state, schedules, schedule, fx, Death(reason, str(error)))
    except HmsError as fault:
        schedules.retry(schedule, state.now_ms, str(fault))
    else:
        schedule.error = str(error)


def _send_one(
    state: State,
    schedules: Schedules,
    schedule: Schedule,
    fx: Effects,
    death: Death | None = None,
) -> None:
    """The occurrence goes where the schedule sends; with a death to the dead letters."""
    plan, due_ms = schedule.plan, schedule.due_ms
    number = sent_count(schedules, schedule) + 1
    next_ms = plan.follows(due_ms, schedules.booted_ms, number, state.settings.calendar)
    producer = _producer(state, plan) if death is None else _of_letters(state)
    try:
        if death is None:
            _check_owner(state, producer, plan)
        stored = _store(state, producer, schedule, number, fx, death)
    finally:
        if producer.node is not None:
            state.space.closed(producer.node, state.now_ms)
    schedule.error = ""
    if next_ms is None:
        last = left(state, schedules, schedule, Cause.ENDED)
    else:
        last = told_again(state, schedules, schedule, next_ms, number)
        # Nothing happened to it; the group's events are the sent.
        last = msgspec.structs.replace(last, events=0)
        schedules.push(schedule)
    fx.records.append(group(0, 0, 0, state.now_ms, [*stored.records, last]))
    for place in stored.touched:
        dispatch(state, place, fx)
    if state.is_guarded:
        make_room(state, stored.touched, fx)
    if plan.is_persistent:
        page_out_new(state, stored.messages, stored.touched)


def _store(
    state: State,
    producer: Producer,
    schedule: Schedule,
    number: int,
    fx: Effects,
    death: Death | None,
) -> Stored:
    """The occurrence, as if its sender had sent it just now."""
    plan, message = schedule.plan, schedule.message
    head = message.head()
    said = {NODE_NAME: plan.name, NODE_TIME: schedule.due_ms, NODE_COUNT: number}
    said |= {name: head.node[name] for name in (NODE_USER, NODE_CLIENT) if name in head.node}
    if death is not None:
        origin = f"{plan.kind}:{plan.topic or plan.destination}"
        said |= told_of(death, origin, state.now_ms, 0)
    encoded = encode_head(msgspec.structs.replace(head, node=said))
    body = message.payload[message.head_bytes :]
    sizes, kind = (len(encoded), len(body)), (message.priority, message.kind)
    row = Row(*sizes, 0 if death else plan.ttl_ms, 0, *kind, plan.flags)
    pack = memoryview(b"".join((ROW.pack(*row), encoded, body)))
    _check_room(state, producer, row, pack, is_persistent=plan.is_persistent)
    first_id = state.take_ids(1, fx)
    batch = PendingBatch(producer, first_id, 1, state.now_ms, plan.is_persistent, pack)
    return store_batch(state, batch, accepted(pack, [row]), 0, fx)


def _check_room(
    state: State, producer: Producer, row: Row, pack: memoryview, *, is_persistent: bool
) -> None:
    """As a send is checked that does not wait."""
    check_rows(producer, [row])
    obstacle = obstacle_to(state, producer, [row]) if state.is_guarded else None
    if obstacle is not None:
        raise obstacle.refusal
    if isinstance(producer.destination, Queue):
        size = row.head_bytes + row.body_bytes
        check_memory(state, row.head_bytes, size, 1, is_persistent)
    else:
        check_publication(state, producer, [row], pack, is_persistent)


def _session() -> Session:
    """The node's own, for one occurrence: a transaction, so that what is in memory only is seen by
    nobody before the log knows that it was sent."""
    return Session(Connection(0, 0), 0, 0, "transacted")


def _of_letters(state: State) -> Producer:
    name = state.settings.dead_letter
    queue = state.queues.get(name) or state.queues[DEAD_LETTER_QUEUE]
    return Producer(_session(), 0, queue, ProducerMemory())


def _producer(state: State, plan: Plan) -> Producer:
    session = _session()
    if plan.kind == "topic":
        topic, string = state.space.publication(plan.destination, plan.topic)
        producer = Producer(session, 0, topic, ProducerMemory())
        producer.topic, producer.node = string, state.space.opened(string, state.now_ms)
        return producer
    return Producer(session, 0, state.queue(plan.destination), ProducerMemory())
