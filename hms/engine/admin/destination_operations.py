"""What operators do to destinations: create, delete, alter, pause and resume them (F-M2, F-M4)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hms.engine.admin import destination_lifecycle
from hms.engine.effects import Effects
from hms.engine.flow.destination_control import Lifetime
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.queue.dispatch import discard
from hms.engine.state import State
from hms.engine.topic.spreading import give_now
from hms.errors.catalogue import DestinationInUse, InvalidArgument
from hms.records import Cause
from hms.wire import operations as ops

_LIVES = {"": Lifetime.CREATED, "CREATED": Lifetime.CREATED, "DYNAMIC": Lifetime.DYNAMIC}


def _named(name: str) -> str:
    if not name:
        raise InvalidArgument(what="name", detail="the name of a destination is needed")
    return name


def _create(kind: str, state: State, asked: ops.CreateDestination, fx: Effects) -> dict[str, Any]:
    life = asked.life
    if life not in _LIVES:
        raise InvalidArgument(what="life", detail=f"{life!r} is neither CREATED nor DYNAMIC")
    given = {key: value for key, value in asked.attributes.items() if value is not None}
    made = destination_lifecycle.create(state, kind, _named(asked.name), given, fx, _LIVES[life])
    return {"name": made.name, "kind": kind}


def _alter(kind: str, state: State, asked: ops.AlterDestination, fx: Effects) -> None:
    target = destination_lifecycle.destination_of(state, kind, _named(asked.name))
    destination_lifecycle.alter(state, target, asked.attributes, fx)


def _delete(kind: str, state: State, asked: ops.DeleteDestination, fx: Effects) -> int:
    target = destination_lifecycle.destination_of(state, kind, _named(asked.name))
    is_discarded = asked.force and asked.discard
    if not destination_lifecycle.reason_to_stay(state, target):
        detail = _what_waits(state, target, asked)
        if detail:
            raise DestinationInUse(kind=kind, destination=target.name, detail=detail)
    return destination_lifecycle.delete(state, target, fx, is_discarded=is_discarded)


def _what_waits(state: State, target: Queue | Topic, asked: ops.DeleteDestination) -> str:
    """Why what waits in it does not let it go; "" when nothing does."""
    if not isinstance(target, Queue) or (asked.force and asked.discard):
        return ""
    waiting = target.line.stays_count
    if waiting and not asked.force:
        return f"{waiting} messages wait in it; receive or move them, or use --force"
    if waiting and target.dead_letter and state.blocks.paged_count and _has_paged(target):
        return "the log alone has the bodies of some messages; move them, or use --discard"
    return ""


def _has_paged(queue: Queue) -> bool:
    """The newest first, as these leave memory first."""
    newest = queue.line.arrivals(1 << 62, (), is_newest_first=True)
    return any(message.is_paged for message in newest)


def _pause(kind: str, state: State, asked: ops.PauseDestination, fx: Effects) -> None:
    target = destination_lifecycle.destination_of(state, kind, _named(asked.name))
    destination_lifecycle.pause(state, target, asked.what or "BOTH", fx)


def _resume(kind: str, state: State, asked: ops.PauseDestination, fx: Effects) -> None:
    target = destination_lifecycle.destination_of(state, kind, _named(asked.name))
    destination_lifecycle.resume(state, target, asked.what or "BOTH", fx)


def _purge_topic(state: State, asked: ops.NameOne, fx: Effects) -> int:
    """Discard what waits for a topic's subscribers; what is out stays."""
    target = destination_lifecycle.destination_of(state, "topic", _named(asked.name))
    assert isinstance(target, Topic)
    count = 0
    for subscription in target.subscriptions:
        give_now(state, subscription)
        waiting = subscription.line.remove_everything()
        discard(state, subscription, waiting, Cause.PURGED, fx)
        count += len(waiting)
    return count


def _lookup(state: State, asked: ops.NameOne, _: Effects) -> dict[str, str]:
    found = destination_lifecycle.lookup(state, _named(asked.name))
    return {"name": found.name, "kind": found.kind}


LIFECYCLE_COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    **{
        f"{kind}.{verb}": partial(handler, kind)
        for kind in ("queue", "topic")
        for verb, handler in (
            ("create", _create),
            ("alter", _alter),
            ("delete", _delete),
            ("pause", _pause),
            ("resume", _resume),
        )
    },
    "topic.purge": _purge_topic,
    "destination.lookup.show": _lookup,
}
