"""What clients have open, as operators see it: consumers and producers."""

from collections.abc import Callable, Iterator
from typing import Any

from hms.engine.queue.destinations import Queue
from hms.engine.session.session_objects import Connection, Consumer, Producer
from hms.engine.state import State
from hms.wire import operations as ops

__all__ = ["consumer_rows", "describe_consumer", "describe_producer", "producer_rows"]

PAGE_ROWS = 1000
"""A page ends with the client that makes it so long."""
Rows = Iterator[dict[str, Any] | None]


def consumer_rows(state: State, asked: ops.ListOpened) -> Rows:
    """Of whole clients, until there are enough for a page; None for one that is not meant."""
    return _opened(state, asked, _consumers, describe_consumer)


def producer_rows(state: State, asked: ops.ListOpened) -> Rows:
    """The same."""
    return _opened(state, asked, _producers, describe_producer)


def _consumers(connection: Connection) -> dict[int, Consumer]:
    return connection.consumers


def _producers(connection: Connection) -> dict[int, Producer]:
    return connection.producers


def _opened(
    state: State,
    asked: ops.ListOpened,
    of: Callable[[Connection], dict[int, Any]],
    describe: Callable[[Any], dict[str, Any]],
) -> Rows:
    known, count = state.connections, 0
    for number in sorted(n for n in known if n > asked.after):
        one = known.get(number)
        if one is None:  # it has ended meanwhile
            continue
        about = {"client": number, "client_id": one.client_id, "user": one.user}
        for handle, member in list(of(one).items()):
            is_open = known.get(number) is one and of(one).get(handle) is member
            row = describe(member) if is_open else None
            if row is None or asked.destination not in ("", row["destination"]):
                yield None
                continue
            count += 1
            yield about | row
        if count >= PAGE_ROWS:
            return


def describe_consumer(consumer: Consumer) -> dict[str, Any]:
    """What it receives from, and what it has."""
    place, out = consumer.place, consumer.out
    first = next(iter(out.values()), None)
    selector = consumer.selector
    return {
        "destination": f"queue:{place.name}"
        if isinstance(place, Queue)
        else f"topic:{place.said_topic}",
        "subscription": "" if isinstance(place, Queue) else place.name,
        "session": consumer.session.handle,
        "name": consumer.name,
        "selector": "" if selector is None else selector.text,
        "credit": consumer.credit,
        "in_flight": len(out),
        "oldest_in_flight": "" if first is None else f"{first.id:012x}",
        "has_left": consumer.has_left,
    }


def describe_producer(producer: Producer) -> dict[str, Any]:
    """Where it sends to, and how far it came."""
    target = producer.destination
    return {
        "destination": f"{target.kind}:{target.name}",
        "session": producer.session.handle,
        "last_sequence": producer.memory.last_sequence,
    }
