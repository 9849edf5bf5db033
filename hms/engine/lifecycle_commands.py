"""What operators do to destinations: create, delete, alter, pause and resume them (F-M2, F-M4)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from field_buffer.catalogue import DestinationInUse, InvalidArgument
from field_buffer.errors import FieldValue
from hms.engine import lifecycle
from hms.engine.control import Life
from hms.engine.dispatch import discard
from hms.engine.effects import Effects
from hms.engine.places import Queue, Topic
from hms.engine.state import State
from hms.records import Cause

Arguments = Mapping[str, FieldValue]
_LIVES = {"": Life.CREATED, "CREATED": Life.CREATED, "DYNAMIC": Life.DYNAMIC}


def _name(arguments: Arguments) -> str:
    name = arguments.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(what="name", detail="the name of a destination is needed")
    return name


def _rest(arguments: Arguments, *without: str) -> dict[str, object]:
    return {key: value for key, value in arguments.items() if key not in ("name", *without)}


def _create(kind: str, state: State, arguments: Arguments, fx: Effects) -> dict[str, Any]:
    life = str(arguments.get("life") or "")
    if life not in _LIVES:
        raise InvalidArgument(what="life", detail=f"{life!r} is neither CREATED nor DYNAMIC")
    given = {k: v for k, v in _rest(arguments, "life").items() if v is not None}
    made = lifecycle.create(state, kind, _name(arguments), given, fx, _LIVES[life])
    return {"name": made.name, "kind": kind}


def _alter(kind: str, state: State, arguments: Arguments, fx: Effects) -> None:
    target = lifecycle.destination_of(state, kind, _name(arguments))
    lifecycle.alter(state, target, _rest(arguments), fx)


def _delete(kind: str, state: State, arguments: Arguments, fx: Effects) -> int:
    target = lifecycle.destination_of(state, kind, _name(arguments))
    waiting = len(target.line.everything()) if isinstance(target, Queue) else 0
    if (
        waiting
        and arguments.get("force") is not True
        and not lifecycle.reason_to_stay(state, target)
    ):
        detail = f"{waiting} messages wait in it; receive or move them, or delete it with --force"
        raise DestinationInUse(kind=kind, destination=target.name, detail=detail)
    return lifecycle.delete(state, target, fx)


def _pause(kind: str, state: State, arguments: Arguments, fx: Effects) -> None:
    target = lifecycle.destination_of(state, kind, _name(arguments))
    lifecycle.pause(state, target, str(arguments.get("what") or "BOTH"), fx)


def _resume(kind: str, state: State, arguments: Arguments, fx: Effects) -> None:
    target = lifecycle.destination_of(state, kind, _name(arguments))
    lifecycle.resume(state, target, str(arguments.get("what") or "BOTH"), fx)


def _purge_topic(state: State, arguments: Arguments, fx: Effects) -> int:
    """Discard what waits for a topic's subscribers; what is out stays."""
    target = lifecycle.destination_of(state, "topic", _name(arguments))
    assert isinstance(target, Topic)
    count = 0
    for subscription in target.subscriptions:
        waiting = subscription.line.everything()
        for message in waiting:
            subscription.line.remove(message)
        discard(state, subscription, waiting, Cause.PURGED, fx)
        count += len(waiting)
    return count


def _lookup(state: State, arguments: Arguments, _: Effects) -> dict[str, str]:
    found = lifecycle.lookup(state, _name(arguments))
    return {"name": found.name, "kind": found.kind}


LIFECYCLE_COMMANDS: dict[str, Callable[[State, Arguments, Effects], Any]] = {
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
