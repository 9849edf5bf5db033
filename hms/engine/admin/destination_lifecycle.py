"""The life of destinations: made, altered and deleted while the node runs (F-C4 to F-C7).

What hms.conf has stays as long as it stands there. What an operator creates stays until it is
deleted, over restarts too. What a client creates with create_queue() is gone when the node has
stopped; what its first use creates goes when it was empty and unused for a while; a temporary one
belongs to a connection. Deleting needs that nobody receives and that nothing is being worked on;
what waits becomes dead letters, or is discarded, counted and recorded. Who still has it open for
sending is told then.
"""

from collections.abc import Mapping
from itertools import chain, islice

from msgspec.structs import replace

from hms.engine.admin.destination_attributes import PAUSES, read_attributes
from hms.engine.effects import Effects
from hms.engine.flow.destination_control import Lifetime
from hms.engine.flow.overflow_policy import make_room
from hms.engine.log.state_records import write
from hms.engine.messages import sizes_of
from hms.engine.queue.dead_letters import DeadReason, Death, keep, target_of
from hms.engine.queue.destinations import Queue, Subscription, Topic, place_bytes
from hms.engine.queue.dispatch import discard, dispatch
from hms.engine.queue.purge_slices import end_later
from hms.engine.state import State
from hms.engine.topic import check_topic
from hms.engine.topic.retention import take_away
from hms.errors.catalogue import (
    DestinationExists,
    DestinationInUse,
    DestinationNotFound,
    ExportNameInUse,
    ExportNameNotFound,
    InvalidArgument,
    NotSupported,
)
from hms.records import Cause, Definition, defined, undefined

SYSTEM = "HMS."
TEMPORARY = "HMS.TEMP."
NAME_MAX = 255
Destination = Queue | Topic


# making


def create(
    state: State,
    kind: str,
    name: str,
    given: Mapping[str, object],
    fx: Effects,
    life: Lifetime = Lifetime.CREATED,
    client_uid: int = 0,
) -> Destination:
    """A new queue or topic; DestinationExists, ExportNameInUse, InvalidArgument. client_uid: whom a
    temporary one belongs to."""
    _check_kind(kind)
    if life is Lifetime.DYNAMIC and state.settings.cluster is not None:
        raise NotSupported(
            feature="creating a destination from a client of a cluster",
            instead=f"Have an operator create it: hms {kind} create {name}.",
        )
    _check_name(state, name, life)
    own = dict(given)
    string = str(own.pop("topic_string", "") or "") if kind == "topic" else ""
    if kind == "topic":
        check_topic(string or name, state.space.limits)
    altered = read_attributes(kind, own)
    _check_targets(state, kind, name, altered)
    _check_export(state, str(altered.get("export_name") or name))
    definition = Definition(
        0,
        kind,
        name,
        topic_string=string,
        altered=altered,
        made=life.value,
        client_uid=client_uid,
    )
    state.shares.check_memory(place_bytes(name + string), is_defined=True)
    if life is not Lifetime.TEMPORARY or state.settings.keeps_temporary:
        check_definitions(state, definition.size_bytes)
        definition = replace(definition, number=state.take_number())
        write(state, defined(definition), fx)
    else:
        state.define(definition)
    made = state.destination(kind, name)
    made.control.used_ms = state.now_ms
    return made


def _check_kind(kind: str) -> None:
    if kind not in ("queue", "topic"):
        raise InvalidArgument(what="kind", detail=f"{kind!r} is neither queue nor topic")


def _check_name(state: State, name: str, life: Lifetime) -> None:
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidArgument(
            what="name", detail=f"it has to have 1 to {NAME_MAX} printable letters"
        )
    if name.startswith(SYSTEM) and life is not Lifetime.TEMPORARY:
        detail = f"names that begin with {SYSTEM} are the system's own"
        raise InvalidArgument(what="name", detail=detail)
    if name in state.queues or name in state.topics:
        actual = "queue" if name in state.queues else "topic"
        raise DestinationExists(kind=actual, destination=name)


def _check_export(state: State, export_name: str, me: Destination | None = None) -> None:
    """No two destinations have one export name; without one its own name counts."""
    for other in state.destinations():
        if other is not me and (other.control.export_name or other.name) == export_name:
            said = {"kind": other.kind, "destination": other.name}
            raise ExportNameInUse(export_name=export_name, **said)


def _check_targets(state: State, kind: str, name: str, altered: Mapping[str, object]) -> None:
    """What keeps its letters exists, and is another queue."""
    for key in ("dead_letter", "expired_to"):
        wanted = str(altered.get(key) or "")
        if wanted and kind == "queue" and wanted == name:
            raise InvalidArgument(what=key, detail="a queue cannot be its own")
        if wanted and wanted not in state.queues:
            raise DestinationNotFound(kind="queue", destination=wanted)


def check_definitions(state: State, more: int) -> None:
    """Every definition stands in each segment's dictionary, which has to have room for it."""
    state.shares.check_definitions(more)


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
    _check_targets(state, target.kind, target.name, read)
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
        if place.line.waiting_count:
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
        client_uid=control.owner,
    )
    more = definition.size_bytes - old.size_bytes
    if more > 0:
        check_definitions(state, more)
    if control.life is Lifetime.TEMPORARY and not target.number:
        state.reconfigure(target, definition)
    else:
        write(state, defined(definition), fx)


# ending


def delete(state: State, target: Destination, fx: Effects, *, is_discarded: bool = False) -> int:
    """End a destination; how many messages waited for nobody then: they become dead letters, unless
    they are discarded. DestinationInUse."""
    said = {"kind": target.kind, "destination": target.name}
    reason = reason_to_stay(state, target)
    if reason:
        raise DestinationInUse(**said, detail=reason)
    buried = 0
    is_temporary = target.control.life is Lifetime.TEMPORARY  # what waits there is for nobody else
    if isinstance(target, Queue) and not (is_discarded or is_temporary):
        buried = bury_deleted(state, target, fx)
    return buried + remove(state, target, Cause.DELETED, fx)


def bury_deleted(state: State, queue: Queue, fx: Effects, count_max: int = 1 << 62) -> int:
    """What waits in a queue that is about to be deleted becomes a dead letter; how many did."""
    target = target_of(state, queue, DeadReason.DESTINATION_DELETED)
    if target is None:
        return 0
    line = queue.line
    going = list(islice(chain(line.page(is_newest_first=False), line.delayed), count_max))
    dead = [(message, line.attempts(message)) for message in going]
    for message in going:
        line.remove(message)
    queue.line.count_letters(DeadReason.DESTINATION_DELETED, len(going))
    state.waiting_bytes -= sizes_of(going)
    keep(state, queue, target, dead, Death(DeadReason.DESTINATION_DELETED), fx)
    dispatch(state, target, fx)
    return len(going)


def reason_to_stay(state: State, target: Destination) -> str:
    """Why a destination cannot be deleted now; "" when it can."""
    is_ours = (target.kind, target.name) in state.configured or target.name.startswith(SYSTEM)
    if is_ours and target.control.life is not Lifetime.TEMPORARY:
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
    into = feeding(state, target)
    return f"subscription {into[0].name} delivers into it" if into else ""


def feeding(state: State, queue: Queue) -> list[Subscription]:
    """The subscriptions that deliver into a queue."""
    return [s for s in state.space.subscriptions.values() if s.queue is queue]


def remove(state: State, target: Destination, cause: Cause, fx: Effects) -> int:
    """A destination is gone, and what waits in it with it."""
    if isinstance(target, Queue):
        return _remove_queue(state, target, cause, fx)
    take_away(state, [target.string], cause, fx)
    if target.control.life is not Lifetime.TEMPORARY or target.number:
        write(state, undefined(target.number), fx)
    else:
        state.undefine_destination(target)
    return 0


def _remove_queue(state: State, queue: Queue, cause: Cause, fx: Effects) -> int:
    if queue.control.life is Lifetime.TEMPORARY:
        if queue.number:
            queue.control.end()
            state.guard(queue)
        else:
            state.undefine_destination(queue)
            state.temporaries.pop(queue.name, None)
        return end_later(state, queue, cause, fx)
    waiting = queue.line.remove_everything()
    discard(state, queue, waiting, cause, fx)
    write(state, undefined(queue.number), fx)
    return len(waiting)


def destination_of(state: State, kind: str, name: str) -> Destination:
    """A queue or topic by kind and name."""
    _check_kind(kind)
    if not name:
        raise InvalidArgument(what="name", detail=f"the name of a {kind} is needed")
    return state.destination(kind, name)
