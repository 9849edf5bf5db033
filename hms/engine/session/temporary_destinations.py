"""Lives of their own: destinations that clients make by using them, or for themselves alone.

A queue that its first use makes goes when it was empty and unused for a while (F-C5). A temporary
one belongs to a connection and goes with it (F-C6); a connection that was lost may come back within
a minute. It is in the log only where another machine may go on with that (docs/decisions/0079): a
request and its answer should not cost two definitions on the disk elsewhere. What create_queue()
makes is gone when the node has stopped (F-C4).
"""

from collections.abc import Callable

from hms.engine.admin.destination_lifecycle import (
    SYSTEM,
    TEMPORARY,
    Destination,
    create,
    delete,
    feeding,
    reason_to_stay,
    remove,
)
from hms.engine.effects import Effects
from hms.engine.flow.destination_control import Lifetime
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.session.session_objects import Connection
from hms.engine.state import State
from hms.engine.topic import Pattern
from hms.engine.topic.retention import take_away
from hms.errors.catalogue import ConsumerLimit, IllegalState, TemporaryDestination
from hms.records import Cause

OWNER_GRACE_MS = 60_000
"""So long a temporary queue waits for a connection that was lost and may come back."""
TEMPORARIES_MAX = 1024
"""Of one connection."""
SECRET_BYTES = 12
"""Of a temporary destination's name: 96 bits that nobody guesses."""

RandomBytes = Callable[[int], bytes]
"""So many random bytes. An engine has no chance of its own; its node brings it."""


def queue_for(state: State, name: str, fx: Effects, uid: int = 0) -> Queue:
    """The queue of that name; made by this, its first use, where the node does so (F-C5). uid: of
    the client that wants to receive from it, 0 for one that sends."""
    is_known = name in state.queues or name in state.topics
    if not is_known and state.settings.is_auto and not name.startswith(SYSTEM):
        create(state, "queue", name, {}, fx, Lifetime.AUTOMATIC)
    found = state.queue(name)
    if uid:
        check_owner(found, uid)
    return found


def check_owner(target: Destination, uid: int, *, is_durable: bool = False) -> None:
    """Only the connection that made a temporary destination receives from it, while it lives."""
    owner = target.control.owner
    is_lost = not owner and target.control.life is Lifetime.TEMPORARY
    if owner not in (0, uid) or is_lost:  # the release before leaves the owner out of the log
        said = {"kind": target.kind, "destination": target.name}
        raise TemporaryDestination(**said, what="receive from it")
    if owner and is_durable:
        raise IllegalState(what="durable", detail="a temporary topic ends with its connection")


# temporary ones


def create_temporary(
    state: State, connection: Connection, kind: str, random: RandomBytes, fx: Effects
) -> Destination:
    """A destination for one connection (F-C6). Who knows its name may send to it, so the name is
    not to be guessed from another one."""
    mine = [t for t in state.destinations() if t.control.owner == connection.uid]
    if len(mine) >= TEMPORARIES_MAX:
        what = "temporary destinations of a connection"
        raise ConsumerLimit(what=what, count=len(mine), limit=TEMPORARIES_MAX)
    state.temporaries_made += 1
    number = state.take_ids(1, fx)  # like a message id never given again
    name = f"{TEMPORARY}{number:012x}{random(SECRET_BYTES).hex()}"
    made = create(state, kind, name, {}, fx, Lifetime.TEMPORARY, connection.uid)
    made.control.used_ms = 0
    if isinstance(made, Queue) and not made.number:
        state.temporaries[name] = made
    return made


def delete_temporary(
    state: State, connection: Connection, kind: str, name: str, fx: Effects
) -> None:
    """End a temporary destination before its connection ends; DestinationInUse."""
    target = state.destination(kind, name)
    if target.control.owner != connection.uid:
        raise TemporaryDestination(kind=kind, destination=name, what="delete it")
    delete(state, target, fx, is_discarded=True)  # as when its connection ends


def owner_came(state: State, uid: int) -> None:
    """A client is here, perhaps again: its temporary destinations stay."""
    for target in _of_owner(state, uid):
        target.control.used_ms = 0


def owner_left(state: State, uid: int, fx: Effects, *, is_final: bool) -> None:
    """A client said good-bye, or was lost and may come back."""
    for target in _of_owner(state, uid):
        target.control.used_ms = state.now_ms
        if is_final:
            _end_temporary(state, target, fx)


def _of_owner(state: State, uid: int) -> list[Destination]:
    if not state.temporaries_made:
        return []
    every = state.destinations()
    return [target for target in every if target.control.owner == uid]


def _end_temporary(state: State, target: Destination, fx: Effects) -> None:
    """Nobody but its owner received from it, and that is gone. A prepared branch may still have
    something to do with one that is in the log."""
    if target.number:
        is_used = target.control.is_gone or bool(reason_to_stay(state, target))
    elif isinstance(target, Topic):
        is_used = bool(target.subscriptions)
    else:  # another connection may have a subscription put its messages there
        is_used = bool(target.consumers or feeding(state, target))
    if not is_used:
        remove(state, target, Cause.DELETED, fx)


# what time brings


def end_idle(state: State, fx: Effects) -> None:
    """Temporary destinations whose owner did not come back go, and automatic queues that nobody
    has used for their time."""
    if not (state.settings.is_auto or state.temporaries_made):
        return
    for target in state.destinations():
        control = target.control
        is_temporary = control.owner or control.life is Lifetime.TEMPORARY
        if is_temporary and 0 < control.used_ms <= state.now_ms - OWNER_GRACE_MS:
            _end_temporary(state, target, fx)
        elif control.life is Lifetime.AUTOMATIC and isinstance(target, Queue):
            _end_automatic(state, target, fx)


def _end_automatic(state: State, queue: Queue, fx: Effects) -> None:
    line = queue.line
    has_messages = line.waiting_count + line.out_count + line.delayed_count > 0
    if has_messages or queue.producers or reason_to_stay(state, queue):
        queue.control.used_ms = state.now_ms
    elif queue.control.used_ms <= state.now_ms - state.settings.auto_idle_ms:
        remove(state, queue, Cause.DELETED, fx)


def end_dynamic(state: State, fx: Effects) -> None:
    """At boot: what clients had created for the last life of the node is gone with it (F-C4), and
    what temporary topics had retained. Those that are in the log wait for their owners."""
    retained = [topic for topic, _ in state.space.retained.matching(Pattern("#"), 0)]
    known = state.space.topics
    left = [one for one in retained if one.startswith(TEMPORARY) and one not in known]
    if left:
        take_away(state, left, Cause.DELETED, fx)
    for target in state.destinations():
        if target.control.life is Lifetime.DYNAMIC:
            _end_at_boot(state, target, fx)
        elif target.control.life is Lifetime.TEMPORARY:
            state.temporaries_made += 1
            target.control.used_ms = state.now_ms
        elif target.control.life is Lifetime.AUTOMATIC:
            target.control.used_ms = state.now_ms


def _end_at_boot(state: State, target: Destination, fx: Effects) -> None:
    if isinstance(target, Topic) and target.subscriptions:
        return  # a durable subscriber still counts on it
    if isinstance(target, Queue) and (target.line.out_count or feeding(state, target)):
        return  # a prepared transaction has some of it, or a durable subscription puts more there
    remove(state, target, Cause.DELETED, fx)
