"""What operators do to messages that wait: list, view, move, copy, delete, expire, alter (F-M3).

Each request does one chunk and says where the next one begins; in between others have their turn.
What is in flight is counted and not touched.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from hms.engine.admin.message_selection import (
    IN_FLIGHT,
    PREPARED,
    Chunk,
    Found,
    find,
    id_of,
    is_chosen,
    place_of,
    state_of,
)
from hms.engine.admin.senders import check_sender
from hms.engine.effects import Effects
from hms.engine.flow.limits import fitting
from hms.engine.groups.group_view import is_gathering
from hms.engine.log.paging import check_memory
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.queue.delays import DELAY_MS_MAX
from hms.engine.queue.destinations import Queue, Retained, Subscription
from hms.engine.queue.dispatch import discard, dispatch
from hms.engine.queue.imported_ids import sorted_out
from hms.engine.queue.relocation import relocate
from hms.engine.state import Relocation, State
from hms.engine.topic.retention import keep_imported, retainable, take_away, topics_of
from hms.errors.catalogue import InvalidArgument, MessageNotFound, NotSupported
from hms.records import Cause
from hms.wire import operations as ops
from hms.wire.packed_messages import NODE_TOPIC

__all__ = [
    "MESSAGE_COMMANDS",
    "chosen",
    "expiry_of",
    "has_body",
    "may_go",
    "said",
    "wanted_target",
]

IDS_SHOWN = 5
PROPERTIES_MAX = 64
"""Of a list, so many are shown of each message; no value has more letters than SHOWN_MAX."""
SHOWN_MAX = 256
PRIORITY_MAX = 9
Place = Queue | Subscription


# looking


def _list(state: State, asked: ops.SelectMessages, _: Effects) -> dict[str, Any]:
    found = place_of(state, asked.place)
    chunk = find(state, found, asked, shows_out=True, sizes=False)
    names = asked.properties.split()[:PROPERTIES_MAX]
    place = found.place
    rows = (
        []
        if place is None or asked.is_dry
        else [_row(place, chunk, m, names) for m in chunk.messages]
    )
    return said(chunk) | {"messages": rows}


def _row(place: Place, chunk: Chunk, message: StoredMessage, names: list[str]) -> dict[str, Any]:
    head, line = message.head(), place.line
    row: dict[str, Any] = {
        "id": message_id_text(message.id),
        "time_ms": message.timestamp_ms,
        "type": head.type,
        "priority": message.priority,
        "kind": message.kind,
        "bytes": message.length - message.head_bytes,
        "count": line.deliveries(message),
        "state": state_of(place, chunk, message),
        "expires_ms": message.expires_at_ms,
        "due_ms": line.due_ms(message),
        "persistent": message.is_persistent,
    }
    if names:
        own = {"JMSReplyTo": head.reply_to, "JMSCorrelationID": head.correlation_id}
        given = {name: value for name, value in own.items() if value is not None}
        known = dict(head.properties) | dict(head.node) | given
        row["properties"] = {name: _short(known[name]) for name in names if name in known}
    return row


def _short(value: Any) -> Any:
    return value[:SHOWN_MAX] if isinstance(value, str | bytes) else value


def _view(state: State, asked: ops.ViewMessage, _: Effects) -> dict[str, Any]:
    """One message with its head and body, packed; a body that is in the log only is not there."""
    found, id_ = place_of(state, asked.place), id_of(asked.id)
    selection = ops.SelectMessages(asked.place, ids=asked.id, after=asked.after, end=asked.end)
    chunk = find(state, found, selection, shows_out=True, sizes=False)
    if chunk.has_more and not chunk.messages:
        return said(chunk)
    if not chunk.messages or found.place is None:
        raise MessageNotFound(message_id=message_id_text(id_), place=asked.place)
    message = chunk.messages[0]
    until = message.head_bytes + asked.bytes_max
    return _row(found.place, chunk, message, []) | {
        "has_more": False,
        "attempts": found.place.line.attempts(message),
        "head": message.payload[: message.head_bytes],
        "body": None if message.is_paged else message.payload[message.head_bytes : until],
    }


# changing


def _move(state: State, asked: ops.MoveMessages, fx: Effects) -> dict[str, Any]:
    found = _mine(state, asked, "move")
    target = wanted_target(state, asked.to, found)
    how = Relocation(target.number, is_count_reset=asked.is_count_reset)
    return _relocated(state, asked, found, target, how, fx)


def _copy(state: State, asked: ops.MoveMessages, fx: Effects) -> dict[str, Any]:
    found = chosen(state, asked)
    target = wanted_target(state, asked.to, found)
    return _relocated(state, asked, found, target, Relocation(target.number, is_copy=True), fx)


def wanted_target(state: State, to: str, found: Found) -> Queue:
    """The queue that is to get messages of a place; InvalidArgument, DestinationNotFound."""
    if not to:
        raise InvalidArgument(what="to", detail="the queue that is to get them is needed")
    name = to.removeprefix("queue:")
    target = state.queue(name)
    if target is found.place:
        raise InvalidArgument(what="to", detail=f"they are in {name} already")
    if not target.number:
        raise InvalidArgument(what="to", detail=f"{name} is temporary: they would be lost with it")
    if is_gathering(target):
        raise InvalidArgument(what="to", detail=f"{name} gathers groups; send them whole")
    return target


def _alter(state: State, asked: ops.AlterMessages, fx: Effects) -> dict[str, Any]:
    found = _mine(state, asked, "alter")
    if asked.is_id_taken:
        return _take_ids(state, asked, found, fx)
    how = Relocation(
        0 if found.place is None else found.place.number,
        priority=_priority(asked.priority),
        expires_at_ms=_expiry(state, asked.ttl_ms),
        due_ms=None if asked.deliver_at_ms < 0 else _later(state, asked.deliver_at_ms),
    )
    if (how.priority, how.expires_at_ms, how.due_ms) == (None, None, None):
        raise InvalidArgument(
            what="priority, ttl_ms and deliver_at_ms", detail="one of them is needed"
        )
    return _relocated(state, asked, found, None, how, fx)


def _take_ids(state: State, asked: ops.AlterMessages, found: Found, fx: Effects) -> dict[str, Any]:
    queue = found.place
    if not isinstance(queue, Queue) or not queue.number or is_gathering(queue):
        detail = f"{asked.place} is no queue that keeps single messages"
        raise InvalidArgument(what="is_id_taken", detail=detail)
    target = _import_target(state, asked.to, queue, fx)
    chunk, left = find(state, found, asked), Counter[str]()
    free = [m for m in chunk.messages if may_go(queue, m)]
    going, replaced = sorted_out(state, target, free, left)
    if target is not queue and going:
        if isinstance(target, Retained):
            going = retainable(state, going, left)
        else:
            count = fitting(state, target, [m.length for m in going])
            left["full"] += len(going) - count
            going = going[:count]
    if going and not asked.is_dry:
        if isinstance(target, Retained):
            take_away(state, topics_of(going), Cause.REPLACED, fx)
        elif replaced:
            _leave(state, target, replaced, Cause.REPLACED, fx)
        relocate(state, queue, going, Relocation(target.number, takes_id=True, due_ms=0), fx)
        if isinstance(target, Retained):
            keep_imported(state, target, topics_of(going))
    ordered = len(chunk.messages) - len(free)
    left_ = {why: count for why, count in left.items() if count}
    return said(chunk, going, skipped_ordered=ordered) | {"left": left_}


def _import_target(state: State, to: str, queue: Queue, fx: Effects) -> Place:
    """Where imported messages go from a queue; "": they stay."""
    if not to:
        return queue
    target = place_of(state, to)
    if target.pattern is not None:
        return state.retained_place(fx)
    if isinstance(target.place, Subscription):
        return target.place
    return wanted_target(state, to, Found(queue, "queue"))


def _priority(given: int) -> int | None:
    if given > PRIORITY_MAX:
        raise InvalidArgument(what="priority", detail=f"it is between 0 and {PRIORITY_MAX}")
    return None if given < 0 else given


def _expiry(state: State, ttl_ms: int) -> int | None:
    return None if ttl_ms < 0 else expiry_of(state, ttl_ms)


def expiry_of(state: State, ttl_ms: int) -> int:
    """When a message expires that lives so long from now on; 0 for ever."""
    if ttl_ms > DELAY_MS_MAX:
        raise InvalidArgument(what="ttl_ms", detail="it is longer than a hundred years")
    return state.now_ms + ttl_ms if ttl_ms else 0


def _later(state: State, at_ms: int) -> int:
    if at_ms > state.now_ms + DELAY_MS_MAX:
        raise InvalidArgument(what="deliver_at_ms", detail="it is in more than a hundred years")
    return at_ms if at_ms > state.now_ms else 0


def _relocated(
    state: State,
    asked: ops.SelectMessages,
    found: Found,
    target: Queue | None,
    how: Relocation,
    fx: Effects,
) -> dict[str, Any]:
    chunk, place = find(state, found, asked), found.place
    if place is None or not chunk.messages:
        return said(chunk)
    breaks = isinstance(asked, ops.MoveMessages) and asked.is_order_broken
    is_free = has_body if how.is_copy else partial(may_go, breaks_order=breaks)
    going = [m for m in chunk.messages if is_free(place, m)]
    ordered = len(chunk.messages) - len(going)
    if target is not None and isinstance(asked, ops.MoveMessages) and asked.is_from_sender:
        for message in going:
            check_sender(state, message, "queue", target.name)
    if target is not None and going:
        count = fitting(state, target, [m.length for m in going])
        if count < len(going) and asked.is_atomic:
            detail = f"{target.name} has room for {count} of {len(going)} messages"
            raise InvalidArgument(what="is_atomic", detail=detail)
        if count < len(going):  # the next request hears why
            going = going[:count]
            chunk.position, chunk.has_more = going[-1].seq, True
            ordered = 0
    paged = sum(m.is_paged for m in going) if asked.is_atomic else 0
    if paged:
        detail = f"the log alone has the bodies of {paged} messages, which would follow"
        raise InvalidArgument(what="is_atomic", detail=detail)
    if how.is_copy:
        heads = sum(m.head_bytes for m in going)
        check_memory(state, heads, sum(m.length for m in going), len(going), can_page=True)
    later = 0 if asked.is_dry else relocate(state, place, going, how, fx)
    return said(chunk, going, skipped_ordered=ordered, later=later)


def may_go(place: Place, message: StoredMessage, *, breaks_order: bool = False) -> bool:
    """Not what others have to wait for: parts of a gathered group, or, unless it is to be broken,
    of a global order; nor what is delayed and whose body is not in memory."""
    groups = place.line.groups
    if not has_body(place, message):
        return False
    if groups is None or not groups.is_binding(message):
        return True
    return breaks_order and groups.is_ordered(message)


def has_body(place: Place, message: StoredMessage) -> bool:
    """Whether its body is in memory, or can be waited for: not that of one that is delayed."""
    return not message.is_paged or place.line.delayed.find(message.id) is None


def _delete(state: State, asked: ops.SelectMessages, fx: Effects) -> dict[str, Any]:
    found = chosen(state, asked)
    chunk, place = find(state, found, asked, sizes=False), found.place
    if place is not None and chunk.messages and not asked.is_dry:
        if found.pattern is not None:
            topics = [m.head().node.get(NODE_TOPIC) for m in chunk.messages]
            take_away(state, [t for t in topics if isinstance(t, str)], Cause.CLEARED, fx)
        else:
            _leave(state, place, chunk.messages, Cause.PURGED, fx)
    return said(chunk)


def _expire(state: State, asked: ops.SelectMessages, fx: Effects) -> dict[str, Any]:
    found = _mine(state, asked, "expire")
    chunk, place = find(state, found, asked), found.place
    if place is not None and chunk.messages and not asked.is_dry:
        _leave(state, place, chunk.messages, Cause.EXPIRED, fx)
    return said(chunk)


def _leave(
    state: State, place: Place, messages: list[StoredMessage], cause: Cause, fx: Effects
) -> None:
    for message in messages:
        place.line.remove(message)
    discard(state, place, messages, cause, fx)
    dispatch(state, place, fx)


def _mine(state: State, asked: ops.SelectMessages, what: str) -> Found:
    """The place; not what is retained, which belongs to its topic."""
    found = chosen(state, asked)
    if found.pattern is not None:
        raise NotSupported(
            feature=f"to {what} what is retained", instead="Copy it, or delete it, or publish anew."
        )
    return found


def chosen(state: State, asked: ops.SelectMessages) -> Found:
    """The place of a command that changes, for which something has to be chosen."""
    found = place_of(state, asked.place)
    if not is_chosen(asked):
        detail = "say which messages, such as with a selector, or that all are meant"
        raise InvalidArgument(what="selection", detail=detail)
    if asked.state in (IN_FLIGHT, PREPARED):
        detail = "what is in flight is at a consumer or in a branch, and not touched"
        raise InvalidArgument(what="state", detail=detail)
    return found


def said(
    chunk: Chunk,
    done: list[StoredMessage] | None = None,
    *,
    skipped_ordered: int = 0,
    later: int = 0,
) -> dict[str, Any]:
    """What a chunk comes to: how many, the first ids, and where the next one begins."""
    messages = chunk.messages if done is None else done
    return {
        "count": len(messages),
        "bytes": sum(m.length - m.head_bytes for m in messages),
        "ids": [message_id_text(m.id) for m in messages[:IDS_SHOWN]],
        "skipped_in_flight": chunk.skipped_out,
        "skipped_ordered": skipped_ordered,
        "later": later,
        "after": chunk.position,
        "end": chunk.end,
        "has_more": chunk.has_more,
    }


MESSAGE_COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "message.list": _list,
    "message.view": _view,
    "message.move": _move,
    "message.copy": _copy,
    "message.delete": _delete,
    "message.expire": _expire,
    "message.alter": _alter,
}
