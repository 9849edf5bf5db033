"""Purge slices: much that waits at a place is discarded some at a time, each time under its own
hold of the engine's lock.

What waits in a queue or durable subscription that is to end goes before it ends, as a purge of it
would go. Meanwhile `Endings` keeps others from it, so that nothing is in the way of its end, which
is one record; a crash before that leaves it with the rest. What the log does not know ends first,
and a temporary queue that it knows is found by nobody from the beginning of its end on.
"""

from itertools import islice

from hms.engine.effects import Effects
from hms.engine.log.state_records import write
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import discard
from hms.engine.state import State
from hms.records import Cause, undefined

__all__ = ["PURGED_AT_ONCE", "begin_ending", "end_later", "lift_ending", "purge_some"]

PURGED_AT_ONCE = 10_000
"""Messages: 10 ms."""
GROUPED_AT_ONCE = 1_000
"""The same of those that groups and global orders have, or keys order."""
DELAYED_AT_ONCE = 5000
_ANY = 1 << 60


def purge_some(
    state: State, place: Queue | Subscription, cause: Cause, fx: Effects, now_ms: int
) -> int:
    """How many messages were discarded; 0 when what waits may go at once. now_ms 0: what is past
    its time is no exception."""
    line = place.line
    if place.has_groups():
        return _purge_grouped(state, place, cause, fx, now_ms)
    at_once = PURGED_AT_ONCE if line.sort is None else GROUPED_AT_ONCE
    if line.waiting_count <= at_once:
        return _purge_delayed(state, place, cause, fx)
    expired: list[StoredMessage] = []
    messages = line.take(at_once, _ANY, now_ms, expired, at_once)
    line.settle_all(messages)
    discard(state, place, messages, cause, fx)
    discard(state, place, expired, Cause.EXPIRED, fx)
    return len(messages) + len(expired)


def _purge_grouped(
    state: State, place: Queue | Subscription, cause: Cause, fx: Effects, now_ms: int
) -> int:
    """Those first that may not be taken now, so that nothing else may be taken for it. No list is
    discarded by halves: they go at once."""
    line, groups = place.line, place.line.groups
    if groups is None or groups.gathering is not None:
        return 0
    at_once = GROUPED_AT_ONCE if line.sort is None else GROUPED_AT_ONCE // 4
    if line.waiting_count <= at_once:
        return _purge_delayed(state, place, cause, fx)
    expired: list[StoredMessage] = []
    held = list(islice(groups.held(), at_once))
    for message in held:
        line.remove(message)
    messages = [m for m in held if not 0 < m.expires_at_ms <= now_ms]
    if len(messages) < len(held):
        expired = [m for m in held if 0 < m.expires_at_ms <= now_ms]
    if not held:
        messages = line.take(at_once, _ANY, now_ms, expired, at_once)
        line.settle_all(messages)
    discard(state, place, messages, cause, fx)
    discard(state, place, expired, Cause.EXPIRED, fx)
    return len(messages) + len(expired)


def _purge_delayed(state: State, place: Queue | Subscription, cause: Cause, fx: Effects) -> int:
    """Of those that wait for their time, where there are many."""
    line = place.line
    if line.delayed_count <= DELAYED_AT_ONCE:
        return 0
    some = list(islice(line.delayed, DELAYED_AT_ONCE))
    for message in some:
        line.remove(message)
    discard(state, place, some, cause, fx)
    return len(some)


def end_later(state: State, place: Queue | Subscription, cause: Cause, fx: Effects) -> int:
    """What waits at a place that nobody finds any more goes, much of it by ticks; at last the place
    itself, if the log knows it. How much waits."""
    count = place.line.stays_count

    def go_on(fx: Effects) -> bool:
        if purge_some(state, place, cause, fx, 0):
            return True
        discard(state, place, place.line.remove_everything(), cause, fx)
        if isinstance(place, Queue) and place.number:
            write(state, undefined(place.number), fx)
        return False

    if go_on(fx):
        state.unfinished.append(go_on)
    return count


def begin_ending(state: State, connection: int, place: Queue | Subscription) -> None:
    """A connection's command is about to end the place: others cannot begin to use it."""
    if connection in state.endings:
        return
    state.endings[connection] = place
    if isinstance(place, Queue):
        place.control.end()
        state.guard(place)


def lift_ending(state: State, connection: int) -> None:
    """That command is at its end, or the connection is."""
    place = state.endings.pop(connection, None)
    if isinstance(place, Queue) and place not in state.endings.values():
        place.control.go_on()
        state.guard(place)
