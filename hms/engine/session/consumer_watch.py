"""Consumer watch: who is told that a destination gets its first consumer or loses its last (F-E11).

A durable subscription whose subscriber is away is nobody. What a connection watches ends with it.
"""

from hms.engine.effects import Effects, Ready
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.session.session_objects import Connection
from hms.engine.state import State
from hms.engine.text_sizes import text_bytes
from hms.errors.catalogue import ConsumerLimit

_WATCH_BYTES = 700


def watch(state: State, connection: Connection, kind: str, name: str) -> bool:
    """Tell the connection from now on; whether there is a consumer now."""
    if kind == "topic" and name not in state.topics:
        state.space.publication(name, "")  # a topic string that could be published on
    else:
        state.destination(kind, name)
    limit, count = state.settings.consumers_max, len(connection.watched)
    if (kind, name) not in connection.watched and count >= limit:
        raise ConsumerLimit(what="watched destinations of a connection", count=count, limit=limit)
    if (kind, name) not in connection.watched:
        state.check_open(_watch_bytes(name))
        state.shares.take_memory(connection.owner, _watch_bytes(name))
    connection.watched[kind, name] = None
    state.watchers.setdefault((kind, name), {})[connection.number] = None
    return _consumers_at(state, kind, name) > 0


def _watch_bytes(name: str) -> int:
    return _WATCH_BYTES + text_bytes(name)


def watch_no_more(state: State, connection: Connection) -> None:
    """The connection ends."""
    for kind, name in list(connection.watched):
        unwatch(state, connection, kind, name)


def unwatch(state: State, connection: Connection, kind: str, name: str) -> None:
    """The connection is not told of that one any more."""
    del connection.watched[kind, name]
    watchers = state.watchers[kind, name]
    del watchers[connection.number]
    state.shares.take_memory(connection.owner, -_watch_bytes(name))
    if not watchers:
        del state.watchers[kind, name]


def came(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A place has one more consumer."""
    _tell(state, place, 1, fx)


def went(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """A place has one consumer less."""
    _tell(state, place, 0, fx)


def _tell(state: State, place: Queue | Subscription, wanted: int, fx: Effects) -> None:
    """Tell that there is one, or none, if the destination has so many consumers now."""
    if not state.watchers:
        return
    for kind, name in _watched(state, place):
        if _consumers_at(state, kind, name) == wanted:
            watchers = state.watchers[kind, name]
            fx.out += [Ready(number, kind, name, wanted > 0) for number in watchers]


def _watched(state: State, place: Queue | Subscription) -> list[tuple[str, str]]:
    """What is watched of that which the place belongs to: a queue, the topic object, and the topic
    strings that the subscription matches."""
    if isinstance(place, Queue):
        key = ("queue", place.name)
        return [key] if key in state.watchers else []
    found = [("topic", place.topic.name)] if ("topic", place.topic.name) in state.watchers else []
    topics = [name for kind, name in state.watchers if kind == "topic"]
    strings = [name for name in topics if name not in state.topics and place.pattern.matches(name)]
    return found + [("topic", name) for name in strings]


def _consumers_at(state: State, kind: str, name: str) -> int:
    """How many consumers a destination has now; a topic may be said by a topic string."""
    target = (state.queues if kind == "queue" else state.topics).get(name)
    if target is not None:
        return _consumers(target)
    return sum(len(s.consumers) for s in state.space.matching(name))


def _consumers(target: Queue | Topic) -> int:
    if isinstance(target, Queue):
        return len(target.consumers)
    return sum(len(subscription.consumers) for subscription in target.subscriptions)
