"""What operators and applications see of schedules and delayed messages, and how they end them."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.queue.destinations import SCHEDULED, Queue, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.schedule import schedule_changes
from hms.engine.schedule.schedule_records import describe
from hms.engine.schedule.schedules import Schedule
from hms.engine.selector.selector_fields import checked_selector, selector_view
from hms.engine.state import State
from hms.errors.catalogue import InvalidArgument, ScheduleNotFound
from hms.records import Cause
from hms.wire import operations as ops

ID_DIGITS = 12


def schedule_rows(state: State, asked: ops.ListSchedules) -> Iterator[dict[str, Any] | None]:
    """Schedules and delayed messages, and None for each place. kind: "schedule" or "delayed" for
    those only, destination: of one queue or topic; schedules alone: owner, of that user, selector,
    whose message it chooses."""
    kind, limit = asked.kind, asked.limit
    is_chosen = _choice(asked)
    if is_chosen is not None:
        kind = kind or "schedule"
    if kind not in ("", "schedule", "delayed"):
        raise InvalidArgument(what="kind", detail=f"{kind!r} is neither schedule nor delayed")
    if not 0 < limit <= ops.SCHEDULES_LISTED_MAX:
        raise InvalidArgument(
            what="limit", detail=f"it is not a number from 1 to {ops.SCHEDULES_LISTED_MAX}"
        )
    known = _scheduled(state, is_chosen) if kind != "delayed" else ()
    delayed = _delayed(state) if kind != "schedule" else ()
    of = asked.destination
    return (
        row if row and of in ("", row["destination"]) else None for row in chain(known, delayed)
    )


def soonest(rows: list[dict[str, Any]], asked: ops.ListSchedules) -> list[dict[str, Any]]:
    """The next one due first, as many as are asked for."""
    rows.sort(key=lambda one: (one["next_ms"], one["name"]))
    return rows[: asked.limit]


def schedule_show(state: State, asked: ops.NameOne, _: Effects) -> dict[str, Any]:
    """One schedule by its name, or one delayed message by its id."""
    name = asked.name
    known = None if state.schedules is None else state.schedules.by_name.get(name)
    if known is not None:
        return describe(state, known.plan, known)
    for place, message in _find(state, name):
        return _describe_delayed(place, message)
    raise ScheduleNotFound(name=name)


def schedule_cancel(state: State, asked: ops.NameOne, fx: Effects) -> dict[str, Any]:
    """End a schedule, or take a delayed message back from wherever it waits for its time."""
    name = asked.name
    if state.schedules is not None and name in state.schedules.by_name:
        schedule_changes.cancel(state, name, fx)
        return {"name": name, "kind": "schedule"}
    found = list(_find(state, name))
    if not found:
        raise ScheduleNotFound(name=name)
    for place, message in found:
        place.line.remove(message)
        discard(state, place, [message], Cause.CANCELLED, fx)
    return {"name": name, "kind": "delayed"}


def _choice(asked: ops.ListSchedules) -> Callable[[Schedule], bool] | None:
    """Which schedules are asked for; None for all."""
    selector, owner = checked_selector(asked.selector), asked.owner
    if selector is None:
        return (lambda one: one.plan.owner == owner) if owner else None
    names = selector.names
    return lambda one: (
        owner in ("", one.plan.owner)
        and selector.matches(selector_view(one.message, names)) is True
    )


def _scheduled(
    state: State, is_chosen: Callable[[Schedule], bool] | None
) -> Iterator[dict[str, Any] | None]:
    known = {} if state.schedules is None else state.schedules.by_name
    for name in list(known):
        schedule = known.get(name)  # another one, perhaps, when it was due meanwhile
        is_asked = schedule is not None and (is_chosen is None or is_chosen(schedule))
        yield describe(state, schedule.plan, schedule) if schedule and is_asked else None


def _places(state: State) -> list[Queue | Subscription]:
    passing = [s for s in state.space.subscriptions.values() if not s.is_durable]
    return [place for place in (*state.places.values(), *passing) if place.kind != SCHEDULED]


def _delayed(state: State) -> Iterator[dict[str, Any] | None]:
    """Also those that failed and wait before they are tried again."""
    for place in _places(state):
        delayed = place.line.delayed
        for message in list(delayed):
            if delayed.find(message.id) is message:
                yield _describe_delayed(place, message)
        yield None


def _find(state: State, name: str) -> Iterator[tuple[Queue | Subscription, StoredMessage]]:
    """The delayed message of that id, at each place."""
    if len(name) != ID_DIGITS or not set(name) <= set("0123456789abcdef"):
        return
    number = int(name, 16)
    for place in _places(state):
        message = place.line.delayed.find(number)
        if message is not None:
            yield place, message


def _describe_delayed(place: Queue | Subscription, message: StoredMessage) -> dict[str, Any]:
    said = place.name if isinstance(place, Queue) else place.said_topic
    return {
        "name": message_id_text(message.id),
        "kind": "delayed",
        "destination": f"{'queue' if isinstance(place, Queue) else 'topic'}:{said}",
        "subscription": "" if isinstance(place, Queue) else place.name,
        "next_ms": place.line.due_ms(message),
        "deliveries": place.line.deliveries(message),
        "persistent": message.is_persistent,
        "bytes": message.length,
    }


SCHEDULE_COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "schedule.show": schedule_show,
    "schedule.cancel": schedule_cancel,
}
