"""Held places: an operator's command keeps consumers from what waits there while it works.

A hold belongs to the connection of the command and ends with it, so that one that is killed leaves
nothing paused. It is not in the log, and no pause of an operator (F-C14), which outlives the node.
"""

from typing import Any

from hms.engine.admin.message_selection import place_of
from hms.engine.effects import Effects
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import dispatch
from hms.engine.session.session_objects import Connection
from hms.engine.state import State
from hms.errors.catalogue import InvalidArgument
from hms.wire import operations as ops

__all__ = ["HOLD", "RELEASE", "end_holds", "operate"]

HOLD, RELEASE = "message.hold", "message.release"


def operate(state: State, connection: int, verb: str, asked: ops.Operation, fx: Effects) -> Any:
    """Hold a place for a connection, or let go of it. Held twice it is held once."""
    assert isinstance(asked, ops.NamePlace)
    place = place_of(state, asked.place).place
    if place is None or asked.place.startswith("retained:"):
        raise InvalidArgument(what="place", detail="nobody consumes what is retained")
    held = state.connection(connection).holds
    if verb == HOLD and place not in held:
        held.append(place)
        place.holds += 1
    elif verb == RELEASE and place in held:
        held.remove(place)
        _let_go(state, place, fx)
    return {"holds": place.holds}


def end_holds(state: State, ended: Connection, fx: Effects) -> None:
    """The connection has ended."""
    for place in ended.holds:
        _let_go(state, place, fx)


def _let_go(state: State, place: Queue | Subscription, fx: Effects) -> None:
    place.holds -= 1
    dispatch(state, place, fx)
