"""Dead letters go back to where they came from: a queue, or the one subscription that gave them up.

A letter that is sent back keeps its id, body and properties, loses what said that it was dead, and
counts in $ReturnCount, so that a loop is visible and ends.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hms.engine.admin.message_operations import chosen, expiry_of, has_body, said, wanted_target
from hms.engine.admin.message_selection import find
from hms.engine.admin.senders import check_sender
from hms.engine.effects import Effects
from hms.engine.flow.limits import fitting
from hms.engine.messages import StoredMessage
from hms.engine.queue.dead_letters import ORIGIN_SHORT, RETURN_COUNT
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.relocation import relocate
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.engine.state import Relocation, State
from hms.errors.tree import HmsError
from hms.wire import operations as ops

__all__ = ["DEAD_LETTER_COMMANDS", "where_back"]

NO_LETTER, GONE, TOO_OFTEN, FULL = "no_letter", "origin_gone", "returned_too_often", "origin_full"
Place = Queue | Subscription


def _queues(state: State, _: ops.Nothing, __: Effects) -> list[dict[str, Any]]:
    """The queues that keep dead or expired messages of others, with what waits in each."""
    names = {DEAD_LETTER_QUEUE}
    for one in state.destinations():
        names |= {one.dead_letter, one.expired_to}
    known = [state.queues[name] for name in sorted(names) if name in state.queues]
    return [
        {"name": queue.name, "waiting": queue.line.waiting_count, "in_flight": queue.line.out_count}
        for queue in known
    ]


def _return(state: State, asked: ops.ReturnLetters, fx: Effects) -> dict[str, Any]:
    found = chosen(state, asked)
    chunk, place = find(state, found, asked), found.place
    target = wanted_target(state, asked.to, found) if asked.to else None
    expires_at_ms = expiry_of(state, asked.ttl_ms)
    groups: dict[int, list[StoredMessage]] = {}
    left: Counter[str] = Counter()
    free = [m for m in chunk.messages if place is None or has_body(place, m)]
    for message in free:
        where = where_back(state, message, target, asked.returns_max)
        if isinstance(where, str):
            left[where] += 1
        else:
            if asked.is_from_sender:
                check_sender(state, message, *_sent_to(where))
            groups.setdefault(where.number, []).append(message)
    done, later = [], 0
    for number, letters in groups.items():
        count = _room(state, state.places[number], letters)
        left[FULL] += len(letters) - count
        how = Relocation(number, is_count_reset=True, is_return=True, expires_at_ms=expires_at_ms)
        if place is not None and count and not asked.is_dry:
            later += relocate(state, place, letters[:count], how, fx)
        done += letters[:count]
    held = len(chunk.messages) - len(free)
    return said(chunk, done, skipped_ordered=held, later=later) | {
        "left": {k: n for k, n in left.items() if n}
    }


def where_back(
    state: State, message: StoredMessage, target: Place | None, returns_max: int
) -> Place | str:
    """Where a letter goes back to, or why it stays."""
    node = message.head().node
    origin, returned = node.get("$DeadOrigin"), node.get(RETURN_COUNT, 0)
    if not isinstance(origin, str):
        return NO_LETTER
    if isinstance(returned, int) and returned >= returns_max:
        return TOO_OFTEN
    if target is not None:
        return target
    kind, _, name = origin.partition(":")
    if kind == "queue":
        queue = state.queues.get(name)
        return queue if queue is not None and queue.number else GONE
    wanted = node.get("$DeadSubscription")
    for one in state.space.durables(wanted) if isinstance(wanted, str) else ():
        if _is_origin(one, name):
            return one
    return GONE


def _sent_to(place: Place) -> tuple[str, str]:
    """Kind and name of what its sender would have to send to."""
    if isinstance(place, Subscription):
        return "topic", place.said_topic
    return "queue", place.name


def _is_origin(subscription: Subscription, name: str) -> bool:
    short = name.endswith("…") and len(name) > ORIGIN_SHORT - len("topic:")
    said_topic = subscription.said_topic
    return said_topic.startswith(name[:-1]) if short else said_topic == name


def _room(state: State, place: Place, letters: list[StoredMessage]) -> int:
    """How many of them fit."""
    try:
        return fitting(state, place, [m.length for m in letters])
    except HmsError:
        return 0


DEAD_LETTER_COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "dlq.queues": _queues,
    "dlq.return": _return,
}
