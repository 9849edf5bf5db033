"""In flight: what is at consumers and not settled yet, and who has it."""

from typing import Any

from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import SessionView
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.session.transactions import open_works
from hms.engine.state import State

__all__ = ["held_by", "in_flight"]

HOLDERS_MAX = 100
"""So many are named, those that hold most."""
_NOBODY = {"connection": 0, "client_id": "", "session": 0, "consumer": 0, "name": "", "priority": 0}


def in_flight(state: State, place: Queue | Subscription) -> dict[int, StoredMessage]:
    """By id, what consumers of the place were sent, and what open transactions have received."""
    found = {m.id: m for consumer in place.holders for m in consumer.out.values()}
    for work in open_works(state):
        found.update((m.id, m) for where, m in work.acknowledged if where is place)
    return found


def held_by(state: State, queue: Queue) -> list[dict[str, Any]]:
    """Who holds how many of a queue's messages: sent, in the client's buffer or received, and not
    settled. Consumer 0 stands for what the session's open transaction received, connection 0 for
    branches that are in no session now."""
    rows = [
        _row(consumer.session, consumer.handle, consumer.name, len(consumer.out))
        | {"priority": consumer.priority}
        for consumer in queue.holders
    ]
    for connection in state.connections.values():
        for session in connection.sessions.values():
            received = sum(place is queue for place, _ in session.work.acknowledged)
            rows.append(_row(session, 0, "", received))
    left = queue.line.out_count - sum(row["count"] for row in rows)
    rows.append(_NOBODY | {"count": left})
    return sorted((row for row in rows if row["count"] > 0), key=_most_first)[:HOLDERS_MAX]


def _row(session: SessionView, consumer: int, name: str, count: int) -> dict[str, Any]:
    connection = session.connection
    return {
        "connection": connection.number,
        "client_id": connection.client_id,
        "session": session.handle,
        "consumer": consumer,
        "name": name,
        "priority": 0,
        "count": count,
    }


def _most_first(row: dict[str, Any]) -> int:
    return -int(row["count"])
