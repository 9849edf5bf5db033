"""Watching: who is told when a destination gets its first consumer and loses its last (F-E11).

A durable subscription whose subscriber is away is nobody. What a connection watches ends with it.
"""

from field_buffer.catalogue import ConsumerLimit
from hms.engine.effects import Effects, Ready
from hms.engine.places import Queue, Subscription, Topic
from hms.engine.sessions import Connection
from hms.engine.state import State


def watch(state: State, connection: Connection, kind: str, name: str) -> bool:
    """Tell the connection from now on; whether there is a consumer now."""
    target = state.destination(kind, name)
    limit, count = state.settings.consumers_max, len(connection.watched)
    if (kind, name) not in connection.watched and count >= limit:
        raise ConsumerLimit(what="watched destinations of a connection", count=count, limit=limit)
    connection.watched[kind, name] = None
    state.watchers.setdefault((kind, name), {})[connection.number] = None
    return _consumers(target) > 0


def watch_no_more(state: State, connection: Connection) -> None:
    """The connection ends."""
    for key in connection.watched:
        watchers = state.watchers[key]
        del watchers[connection.number]
        if not watchers:
            del state.watchers[key]
    connection.watched.clear()


def came(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A place has one more consumer."""
    _tell(state, place, 1, fx)


def went(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A place has one consumer less."""
    _tell(state, place, 0, fx)


def _tell(state: State, place: Queue | Subscription, wanted: int, fx: Effects) -> None:
    """Tell that there is one, or none, if the destination has so many consumers now."""
    target = place.topic if isinstance(place, Subscription) else place
    watchers = state.watchers.get((target.kind, target.name))
    if watchers and _consumers(target) == wanted:
        fx.out += [Ready(number, target.kind, target.name, wanted > 0) for number in watchers]


def _consumers(target: Queue | Topic) -> int:
    if isinstance(target, Queue):
        return len(target.consumers)
    return sum(len(subscription.consumers) for subscription in target.subscriptions)
