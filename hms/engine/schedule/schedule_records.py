"""Schedules in the log: how they are found after a boot, told again, and ended."""

from typing import Any

from hms.engine.log.live_index import offsets_of
from hms.engine.queue.destinations import Scheduled
from hms.engine.queue.pending_list import ids_of
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.schedule.schedules import Schedule, Schedules, plan_of, sent_count
from hms.engine.state import State
from hms.records import Cause, Kept, Record, RecordType, Stay, moved, ranges


def recover_schedules(state: State) -> None:
    """After the log was read: what waits for its next occurrence."""
    place = next((p for p in state.places.values() if isinstance(p, Scheduled)), None)
    if place is None:
        return
    schedules = state.schedules = Schedules(place)
    for message in sorted(place.line.everything(), key=lambda m: m.seq):
        plan = plan_of(message)
        due_ms = place.line.due_ms(message) or message.timestamp_ms
        schedules.by_name[plan.name] = Schedule(plan, message, due_ms)


def told_again(
    state: State, schedules: Schedules, schedule: Schedule, due_ms: int, count: int
) -> Record:
    """It waits for its next time from now on."""
    message, line = schedule.message, schedules.place.line
    assert not message.is_paged, f"schedule {schedule.plan.name} has left memory"
    schedule.due_ms = due_ms
    line.delayed.add(message, due_ms)
    line.history[message.id] = (count, 0)
    stay = Stay(schedules.place.number, count, 0, due_ms)
    kept = Kept(
        *(message.id, message.seq, message.timestamp_ms, 0, message.priority, message.kind),
        message.head_bytes,
        message.length - message.head_bytes,
        [stay],
    )
    log_position = state.blocks.move([message], offsets_of([message], 0))
    return moved([kept], [message.payload], log_position)


def left(state: State, schedules: Schedules, schedule: Schedule, cause: Cause) -> Record:
    """It is over; the record that says so."""
    place, message = schedules.place, schedule.message
    del schedules.by_name[schedule.plan.name]
    place.line.remove(message)
    state.waiting_bytes -= message.size_bytes
    spans = ids_of([message])
    return ranges(RecordType.DISCARDED, place.number, state.now_ms, spans, cause)


def describe(state: State, plan: Plan, schedule: Schedule | None) -> dict[str, Any]:
    """A schedule as operators see it, or, without it, one that is over; times in milliseconds since
    1970 UTC, 0 for none."""
    schedules = state.schedules
    return {
        "name": plan.name,
        "kind": "schedule",
        "destination": f"{plan.kind}:{plan.destination or plan.topic}",
        "next_ms": 0 if schedule is None else schedule.due_ms,
        "every_s": plan.every_ms / 1000,
        "cron": plan.cron,
        "time_zone": plan.time_zone,
        "missed": plan.missed,
        "sent": 0 if schedule is None or schedules is None else sent_count(schedules, schedule),
        "first_ms": plan.first_ms,
        "until_ms": plan.until_ms,
        "max_count": plan.count_max,
        "persistent": plan.is_persistent,
        "bytes": 0 if schedule is None else schedule.message.length,
        "owner": plan.owner,
        "refused": 0 if schedule is None else schedule.refused,
        "error": "" if schedule is None else schedule.error,
    }
