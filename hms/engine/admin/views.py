"""What operators see, as plain data, and the few commands that change a destination."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hms.engine.admin.counter_views import counters_of, describe_limits
from hms.engine.admin.dead_letter_operations import DEAD_LETTER_COMMANDS
from hms.engine.admin.destination_figures import fits_one_of
from hms.engine.admin.destination_operations import LIFECYCLE_COMMANDS
from hms.engine.admin.message_operations import MESSAGE_COMMANDS
from hms.engine.admin.opened_views import consumer_rows, producer_rows
from hms.engine.admin.status_view import StatusPass
from hms.engine.admin.topic_operations import COMMANDS
from hms.engine.effects import Effects
from hms.engine.groups.group_view import describe_ordering, is_gathering
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.dispatch import discard
from hms.engine.queue.in_flight_view import held_by
from hms.engine.schedule.schedule_operations import SCHEDULE_COMMANDS, schedule_rows, soonest
from hms.engine.session.session_objects import Consumer, Session
from hms.engine.state import State
from hms.engine.xa.branch_operations import COMMANDS as BRANCH_COMMANDS
from hms.engine.xa.branch_operations import branch_rows
from hms.records import Cause
from hms.wire import operations as ops

Rows = Iterator[dict[str, Any] | None]


def operate(state: State, verb: str, asked: ops.Operation, fx: Effects) -> Any:
    """The answer to an operation, as plain data."""
    return _OPERATIONS[verb](state, asked, fx)


def describe_queue(queue: Queue) -> dict[str, Any]:
    """A queue and its counters since boot (F-M5)."""
    return (
        {
            "name": queue.name,
            "kind": "queue",
            "consumers": len(queue.consumers),
            "backup_consumers": len(queue.backups),
            "producers": queue.producers,
            "redelivery_limit": queue.redelivery_limit,
            "max_messages": queue.control.limits.messages_max,
            "paused": queue.control.paused,
        }
        | _describe_line(queue)
        | describe_ordering(queue)
    )


def describe_opened(consumer: Consumer) -> dict[str, Any] | None:
    """What a new consumer is told: of a topic's, what it resolved to (CT-06), and the life of its
    subscription as it was given at first (SU-10); of a queue's, that lists come (F-C17)."""
    place = consumer.place
    if isinstance(place, Queue):
        return {"is_gathering": True} if is_gathering(place) else None
    return {"topic": place.pattern.text, "life_ms": place.definition.life_ms}


def _describe_line(place: Queue | Subscription) -> dict[str, Any]:
    line = place.line
    counters = line.counters
    return {
        "waiting": line.waiting_count,
        "delayed": line.delayed_count,
        "in_flight": line.out_count,
        "bytes": line.size_bytes,
        "sent": counters.sent,
        "delivered": counters.delivered,
        "acknowledged": counters.acknowledged,
        "redelivered": counters.redelivered,
        "expired": counters.expired,
        "dead_lettered": counters.dead_lettered,
        "purged": counters.purged,
        "removed": counters.removed,
        "moved_in": counters.moved_in,
        "moved_out": counters.moved_out,
        "returned": counters.returned,
    }


def _describe_topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "kind": "topic",
        "topic_string": topic.string,
        "subscriptions": len(topic.subscriptions),
        "producers": topic.producers,
        "paused": topic.control.paused,
        "sent": topic.sent,
    }


def describe_subscription(subscription: Subscription) -> dict[str, Any]:
    """A subscription and its counters."""
    return {
        "name": subscription.name,
        "topic": subscription.said_topic,
        "scheme": subscription.pattern.scheme.value,
        "queue": subscription.queue.name if subscription.queue is not None else "",
        "missed": subscription.missed,
        "owner": subscription.definition.owner,
        "withheld": subscription.withheld,
        "is_durable": subscription.is_durable,
        "is_active": bool(subscription.consumers),
        "selector": subscription.definition.selector,
    } | _describe_line(subscription)


def _status(state: State, _: ops.Nothing, __: Effects) -> dict[str, Any]:
    shown = StatusPass(state)
    while shown.go_on():
        pass
    return shown.answer()


def _queues(state: State, asked: ops.ListDestinations) -> Rows:
    return _destinations(state.queues, describe_queue, asked)


def _destinations(
    known: Mapping[str, Any], describe: Callable[[Any], dict[str, Any]], asked: ops.ListDestinations
) -> Rows:
    fields, is_wanted = asked.fields.split(), fits_one_of(asked.names)
    for name, one in sorted(known.items()):
        if known.get(name) is not one or not is_wanted(name):
            yield None
            continue
        row = describe(one)
        yield {key: row[key] for key in ("name", *fields) if key in row} if fields else row


def _queue_show(state: State, asked: ops.NameOne, _: Effects) -> dict[str, Any]:
    queue = _queue(state, asked)
    shown = describe_queue(queue) | describe_limits(state, queue) | counters_of([queue.line])
    return shown | {"held_by": held_by(state, queue)}


def _topics(state: State, asked: ops.ListDestinations) -> Rows:
    return _destinations(state.topics, _describe_topic, asked)


def _subscriptions(state: State, _: ops.Nothing) -> Rows:
    known = state.space.subscriptions
    for key, subscription in list(known.items()):
        if known.get(key) is subscription:
            row = describe_subscription(subscription)
            if state.space.authority is not None:
                has_rights = state.space.has_rights(subscription)
                row["owner_rights"] = "" if has_rights else "owner without rights"
            yield row


def _sessions(state: State, _: ops.Nothing) -> Rows:
    for connection in list(state.connections.values()):
        for session in list(connection.sessions.values()):
            if session.handle in connection.sessions:
                yield _describe_session(session)


def _describe_session(session: Session) -> dict[str, Any]:
    return {
        "connection": session.connection.number,
        "client_id": session.connection.client_id,
        "user": session.connection.user,
        "session": session.handle,
        "is_transacted": session.is_transacted,
        "is_xa": session.is_xa,
        "is_asynchronous": session.is_asynchronous,
        "ack_mode": session.ack_mode,
        "consumers": sum(not c.has_left for c in session.consumers),
        "in_flight": sum(len(c.out) for c in session.consumers),
        "has_open_transaction": session.is_transacted and session.work.is_any,
    }


def _queue_purge(state: State, asked: ops.NameOne, fx: Effects) -> int:
    """Discard what waits in a queue; messages that are out stay."""
    queue = _queue(state, asked)
    waiting = queue.line.remove_everything()
    discard(state, queue, waiting, Cause.PURGED, fx)
    return len(waiting)


def _queue(state: State, asked: ops.NameOne) -> Queue:
    queue = state.destination("queue", asked.name)
    assert isinstance(queue, Queue)
    return queue


class Listing(NamedTuple):
    """An operation that shows many. rows: those of what was there when it was begun and is there
    still, None for what has none; chosen: which of the rows so far are shown, in their order."""

    rows: Callable[[State, Any], Rows]
    chosen: Callable[[list[dict[str, Any]], Any], list[dict[str, Any]]] = lambda rows, _: rows

    def whole(self, state: State, asked: ops.Operation, _: Effects) -> list[dict[str, Any]]:
        """All at once."""
        found = [row for row in self.rows(state, asked) if row is not None]
        return self.chosen(found, asked)


LISTINGS = {
    "queue.list": Listing(_queues),
    "topic.list": Listing(_topics),
    "subscription.list": Listing(_subscriptions),
    "session.list": Listing(_sessions),
    "consumer.list": Listing(consumer_rows),
    "producer.list": Listing(producer_rows),
    "transaction.list": Listing(branch_rows),
    "schedule.list": Listing(schedule_rows, soonest),
}
_OPERATIONS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "status": _status,
    **{verb: listing.whole for verb, listing in LISTINGS.items()},
    "queue.show": _queue_show,
    "queue.purge": _queue_purge,
    **COMMANDS,
    **LIFECYCLE_COMMANDS,
    **BRANCH_COMMANDS,
    **SCHEDULE_COMMANDS,
    **MESSAGE_COMMANDS,
    **DEAD_LETTER_COMMANDS,
}
