"""Service listeners: consumers whose messages are given to a service, one at a time.

Their credit is the monitor's business: it knows when a server is free.
"""

from collections.abc import Sequence

from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage
from hms.engine.queue.dispatch import acknowledge, dispatch
from hms.engine.queue.settlement import NOTHING, Return, Said, give_back, take_out
from hms.engine.session.session_objects import Consumer
from hms.engine.state import State

__all__ = ["credit", "done"]


def credit(state: State, connection: int, handle: int, count: int, fx: Effects) -> int | None:
    """Set a listener's credit; how many messages that brought it, None when it is gone."""
    consumer = _find(state, connection, handle)
    if consumer is None:
        return None
    before = len(consumer.out)
    consumer.credit = count
    if count:
        dispatch(state, consumer.place, fx)
    return len(consumer.out) - before


def done(
    state: State,
    connection: int,
    handle: int,
    messages: Sequence[StoredMessage],
    how: Return | None,
    delay_ms: int | None,
    fx: Effects,
    said: Said = NOTHING,
) -> None:
    """Settle what was out to a listener; what is not out any more was given back before."""
    consumer = _find(state, connection, handle)
    if consumer is None:
        return
    place = consumer.place
    found = take_out(consumer, [(m.id, m.id) for m in messages])
    if how is None:
        acknowledge(state, place, found, fx)
    else:
        if delay_ms is None:
            delay_ms = consumer.redelivery_delay_ms or place.redelivery_delay_ms
        is_tried = how is not Return.RELEASED
        give_back(state, place, found, how, fx, delay_ms if is_tried else 0, said)
        dispatch(state, place, fx)


def _find(state: State, connection: int, handle: int) -> Consumer | None:
    owner = state.connections.get(connection)
    return owner.consumers.get(handle) if owner is not None else None
