"""The life of destinations: made, altered and deleted while the node runs (F-C4 to F-C7).

What hms.conf has stays as long as it stands there. What an operator creates stays until it is
deleted, over restarts too. What a client creates with create_queue() is gone when the node has
stopped; what its first use creates goes when it was empty and unused for a while; a temporary one
belongs to a connection. Deleting needs that nobody receives and that nothing is being worked on;
what waits is discarded, counted and recorded. Who still has it open for sending is told then.
"""

from collections.abc import Mapping

from field_buffer.catalogue import (
    ConsumerLimit,
    DestinationExists,
    DestinationInUse,
    ExportNameInUse,
    ExportNameNotFound,
    InvalidArgument,
    TemporaryDestination,
)
from hms.engine.attributes import PAUSES, read_attributes
from hms.engine.control import Life
from hms.engine.dispatch import discard, dispatch
from hms.engine.effects import Effects
from hms.engine.limits import make_room
from hms.engine.places import Queue, Topic
from hms.engine.sessions import Connection
from hms.engine.state import State
from hms.records import Cause, Definition, defined, undefined

SYSTEM = "HMS."
TEMPORARY = "HMS.TEMP."
NAME_MAX = 255
OWNER_GRACE_MS = 60_000
"""So long a temporary queue waits for a connection that was lost and may come back."""
TEMPORARIES_MAX = 1024
"""Of one connection."""

Destination = Queue | Topic


# making


def create(
    state: State,
    kind: str,
    name: str,
    given: Mapping[str, object],
    fx: Effects,
    life: Life = Life.CREATED,
) -> Destination:
    """A new queue or topic; DestinationExists, ExportNameInUse, InvalidArgument."""
    _check_kind(kind)
    _check_name(state, kind, name)
    own = dict(given)
    string = str(own.pop("topic_string", "") or "") if kind == "topic" else ""
    altered = read_attributes(kind, own)
    _check_export(state, str(altered.get("export_name") or name))
    number = 0 if life is Life.TEMPORARY else state.take_number()
    definition = Definition(
        number, kind, name, topic_string=string, altered=altered, made=life.value
    )
    if life is not Life.TEMPORARY:
        check_definitions(state, definition)
        fx.records.append(defined(definition))
    state.define(definition)
    made = state.destination(kind, name)
    made.control.used_ms = state.now_ms
    return made


def _check_kind(kind: str) -> None:
    if kind not in ("queue", "topic"):
        raise InvalidArgument(what="kind", detail=f"{kind!r} is neither queue nor topic")


def _check_name(state: State, kind: str, name: str) -> None:
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidArgument(
            what="name", detail=f"it has to have 1 to {NAME_MAX} printable letters"
        )
    if name.startswith(SYSTEM) and not name.startswith(TEMPORARY):
        detail = f"names that begin with {SYSTEM} are the system's own"
        raise InvalidArgument(what="name", detail=detail)
    if name in state.queues or name in state.topics:
        actual = "queue" if name in state.queues else "topic"
        raise DestinationExists(kind=actual, destination=name)
    _check_kind(kind)


def _check_export(state: State, export_name: str, me: Destination | None = None) -> None:
    """No two destinations have one export name; without one its own name counts."""
    for other in state.destinations():
        if other is not me and (other.control.export_name or other.name) == export_name:
            said = {"kind": other.kind, "destination": other.name}
            raise ExportNameInUse(export_name=export_name, **said)


def check_definitions(state: State, wanted: Definition) -> None:
    """Every definition stands in each segment's dictionary, which has to have room for it."""
    limit = state.settings.definitions_bytes_max
    size = state.definitions_bytes + wanted.size_bytes
    if size > limit:
        raise ConsumerLimit(what="bytes of definitions", count=size, limit=limit)


def queue_for(state: State, name: str, fx: Effects, uid: int = 0) -> Queue:
    """The queue of that name; made by this, its first use, where the node does so (F-C5). uid: of
    the client that wants to receive from it, 0 for one that sends."""
    is_known = name in state.queues or name in state.topics
    if not is_known and state.settings.is_auto and not name.startswith(SYSTEM):
        create(state, "queue", name, {}, fx, Life.AUTOMATIC)
    found = state.queue(name)
    if uid and found.control.owner not in (0, uid):
        raise TemporaryDestination(kind="queue", destination=name, what="receive from it")
    return found


# looking up


def lookup(state: State, export_name: str) -> Destination:
    """The destination that is exported under a name (F-C7); ExportNameNotFound."""
    for found in state.destinations():
        if (found.control.export_name or found.name) == export_name:
            return found
    raise ExportNameNotFound(export_name=export_name)


# changing


def alter(state: State, target: Destination, given: Mapping[str, object], fx: Effects) -> None:
    """New attributes hold for what comes now; those that are None are taken back to hms.conf's.
    What waits beyond a new limit stays, unless the destination removes."""
    read = read_attributes(target.kind, {k: v for k, v in given.items() if v is not None})
    altered = {k: v for k, v in target.control.altered.items() if k not in given} | read
    if "export_name" in read:
        export_name = str(read["export_name"] or target.name)
        _check_export(state, export_name, target)
    _redefine(state, target, fx, altered=altered)
    if isinstance(target, Queue):
        target.promote()
        dispatch(state, target, fx)
        make_room(state, [target], fx)


def pause(state: State, target: Destination, what: str, fx: Effects) -> None:
    """Pause what is named, beside what is paused already (F-C14)."""
    sending, receiving = _which(what)
    control = target.control
    _pause(
        state,
        target,
        fx,
        sending=control.is_sending_paused or sending,
        receiving=control.is_receiving_paused or receiving,
    )


def resume(state: State, target: Destination, what: str, fx: Effects) -> None:
    """Have what is named go on."""
    sending, receiving = _which(what)
    control = target.control
    _pause(
        state,
        target,
        fx,
        sending=control.is_sending_paused and not sending,
        receiving=control.is_receiving_paused and not receiving,
    )
    places = [target] if isinstance(target, Queue) else list(target.subscriptions)
    for place in places:
        dispatch(state, place, fx)


def _pause(
    state: State, target: Destination, fx: Effects, *, sending: bool, receiving: bool
) -> None:
    word = next(word for word, both in PAUSES.items() if both == (sending, receiving))
    _redefine(state, target, fx, paused=word)


def _which(what: str) -> tuple[bool, bool]:
    if not what or what.upper() not in PAUSES:
        detail = f"{what!r} is neither production, nor consumption, nor both"
        raise InvalidArgument(what="what", detail=detail)
    return PAUSES[what.upper()]


def _redefine(
    state: State,
    target: Destination,
    fx: Effects,
    *,
    altered: Mapping[str, str | int | float | bool] | None = None,
    paused: str | None = None,
) -> None:
    old, control = target.definition, target.control
    definition = Definition(
        old.number,
        old.kind,
        old.name,
        topic_string=old.topic_string,
        altered=dict(control.altered if altered is None else altered),
        paused=control.paused if paused is None else paused,
        made=control.life.value,
    )
    state.reconfigure(target, definition)
    if control.life is not Life.TEMPORARY:
        fx.records.append(defined(definition))


# ending


def delete(state: State, target: Destination, fx: Effects) -> int:
    """End a destination; how many messages waited for nobody then. DestinationInUse."""
    said = {"kind": target.kind, "destination": target.name}
    reason = _reason_to_stay(state, target)
    if reason:
        raise DestinationInUse(**said, detail=reason)
    return remove(state, target, Cause.DELETED, fx)


def _reason_to_stay(state: State, target: Destination) -> str:
    is_ours = (target.kind, target.name) in state.configured or target.name.startswith(SYSTEM)
    if is_ours and target.control.life is not Life.TEMPORARY:
        return "it stands in hms.conf, or is the system's own"
    wait_in_branches = sum(
        batch.count
        for branch in state.branches.by_xid.values()
        for batch in branch.work.sends
        if batch.producer.destination is target
    )
    if wait_in_branches:
        return f"distributed transactions send {wait_in_branches} messages to it"
    if isinstance(target, Topic):
        count = len(target.subscriptions)
        return f"it has {count} subscriptions" if count else ""
    count = len(target.consumers) + len(target.backups)
    if count:
        return f"it has {count} consumers"
    if target.line.out_count:
        return f"{target.line.out_count} messages of it are being worked on"
    into = [s.name for s in state.space.subscriptions.values() if s.queue is target]
    return f"subscription {into[0]} delivers into it" if into else ""


def remove(state: State, target: Destination, cause: Cause, fx: Effects) -> int:
    """A destination is gone, and what waits in it with it."""
    waiting = target.line.everything() if isinstance(target, Queue) else []
    if isinstance(target, Queue):
        for message in waiting:
            target.line.remove(message)
        discard(state, target, waiting, cause, fx)
        state.temporaries.pop(target.name, None)
    is_known = target.control.life is not Life.TEMPORARY
    state.undefine_destination(target)
    if is_known:
        fx.records.append(undefined(target.number))
    return len(waiting)


# temporary ones


def create_temporary(state: State, connection: Connection, kind: str, fx: Effects) -> Destination:
    """A destination for one connection (F-C6)."""
    mine = [t for t in state.destinations() if t.control.owner == connection.uid]
    if len(mine) >= TEMPORARIES_MAX:
        what = "temporary destinations of a connection"
        raise ConsumerLimit(what=what, count=len(mine), limit=TEMPORARIES_MAX)
    state.temporaries_made += 1
    name = f"{TEMPORARY}{connection.uid:016x}.{state.temporaries_made}"
    made = create(state, kind, name, {}, fx, Life.TEMPORARY)
    made.control.owner, made.control.used_ms = connection.uid, 0
    if isinstance(made, Queue):
        state.temporaries[name] = made
    return made


def delete_temporary(
    state: State, connection: Connection, kind: str, name: str, fx: Effects
) -> None:
    """End a temporary destination before its connection ends; DestinationInUse."""
    target = state.destination(kind, name)
    if target.control.owner != connection.uid:
        raise TemporaryDestination(kind=kind, destination=name, what="delete it")
    delete(state, target, fx)


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
    """Nobody but its owner received from it, and that is gone."""
    is_used = target.subscriptions if isinstance(target, Topic) else target.consumers
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
        if control.owner and 0 < control.used_ms <= state.now_ms - OWNER_GRACE_MS:
            _end_temporary(state, target, fx)
        elif control.life is Life.AUTOMATIC and isinstance(target, Queue):
            _end_automatic(state, target, fx)


def _end_automatic(state: State, queue: Queue, fx: Effects) -> None:
    line = queue.line
    has_messages = line.waiting_count + line.out_count + line.delayed_count > 0
    if has_messages or queue.producers or _reason_to_stay(state, queue):
        queue.control.used_ms = state.now_ms
    elif queue.control.used_ms <= state.now_ms - state.settings.auto_idle_ms:
        remove(state, queue, Cause.DELETED, fx)


def end_dynamic(state: State, fx: Effects) -> None:
    """At boot: what clients had created for the last life of the node is gone with it (F-C4)."""
    for target in state.destinations():
        if target.control.life is Life.DYNAMIC:
            _end_at_boot(state, target, fx)
        elif target.control.life is Life.AUTOMATIC:
            target.control.used_ms = state.now_ms


def _end_at_boot(state: State, target: Destination, fx: Effects) -> None:
    if isinstance(target, Topic) and target.subscriptions:
        return  # a durable subscriber still counts on it
    if isinstance(target, Queue) and target.line.out_count:
        return  # a prepared transaction still has some of it
    remove(state, target, Cause.DELETED, fx)


def destination_of(state: State, kind: str, name: str) -> Destination:
    """A queue or topic by kind and name."""
    _check_kind(kind)
    if not name:
        raise InvalidArgument(what="name", detail=f"the name of a {kind} is needed")
    return state.destination(kind, name)
