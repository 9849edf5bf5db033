"""Boot: what the configuration decides once the log was read (F-H2, F-H3)."""

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from hms.engine.admin.configured_destinations import define_destinations, define_subscriptions
from hms.engine.cluster.source import dropped
from hms.engine.effects import Effects
from hms.engine.log.state_records import write
from hms.engine.queue.destinations import Queue, Retained, Scheduled, Subscription, Topic
from hms.engine.queue.dispatch import discard
from hms.engine.queue.settlement import bury_overdue
from hms.engine.schedule import schedule_changes
from hms.engine.schedule.schedule_plans import Plan
from hms.engine.session.temporary_destinations import end_dynamic
from hms.engine.state import State
from hms.engine.topic import Pattern
from hms.engine.topic.retention import take_away
from hms.engine.xa.cold_boot import empty_in_branches
from hms.records import Cause, NodeEvent, node_event, peers, reserved, undefined


def boot(state: State, now_ms: int, is_warm: bool | None, version: str, fx: Effects) -> None:
    """After the log is read: define what the configuration has, and empty what boots COLD (F-H2,
    F-H3). is_warm None: as configured; else the operator's word for the whole node."""
    state.at(now_ms)
    node_is_warm = state.settings.is_warm if is_warm is None else is_warm
    below = state.ids.reserve(1)
    if below is not None:
        fx.records.append(reserved(below))
        state.ids.safe_below = below  # the boot's records are durable before anybody connects
    if state.settings.cluster is not None:
        _begin_life(state, fx)
    fx.records += define_destinations(state)
    end_dynamic(state, fx)
    for place in list(state.places.values()):
        if isinstance(place, Retained):
            _empty_cold_topics(state, node_is_warm, is_warm, fx)
        elif isinstance(place, Scheduled):
            schedule_changes.begin(state, partial(_is_plan_warm, state, node_is_warm, is_warm), fx)
        elif not _is_warm(state, place, node_is_warm, is_warm):
            _empty(state, place, fx)
        else:
            bury_overdue(state, place, fx)
    fx.records += define_subscriptions(state)
    word = "WARM" if node_is_warm else "COLD"
    write(state, node_event(NodeEvent("booted", state.now_ms, word, version)), fx)


def _begin_life(state: State, fx: Effects) -> None:
    """Other nodes know a store by when it came to be, and a run of it by its number."""
    told = state.moves.memory()
    life, incarnation = told.life or state.now_ms, told.incarnation + 1
    write(state, peers(replace(told, life=life, incarnation=incarnation)), fx)


def _is_warm(
    state: State, place: Queue | Subscription | Topic, node_is_warm: bool, ordered: bool | None
) -> bool:
    """The command line first, then the destination's own option, then the node's."""
    if ordered is not None:
        return ordered
    owner = place.topic if isinstance(place, Subscription) else place
    key = (owner.kind, owner.name)
    configured = state.configured.get(key)
    own = configured.is_warm if configured is not None else None
    return node_is_warm if own is None else own


def _is_plan_warm(state: State, node_is_warm: bool, ordered: bool | None, plan: Plan) -> bool:
    """A schedule boots as the destination that it sends to."""
    table: Mapping[str, Queue | Topic]
    table = state.queues if plan.kind == "queue" else state.topics
    owner = table.get(plan.destination)
    if owner is None:
        return node_is_warm if ordered is None else ordered
    return _is_warm(state, owner, node_is_warm, ordered)


def _empty_cold_topics(state: State, node_is_warm: bool, ordered: bool | None, fx: Effects) -> None:
    """Forget what topics that boot COLD had retained."""
    cold = []
    for topic, _ in state.space.retained.matching(Pattern("#"), 0):
        owner = state.space.objects.nearest(topic) or state.space.base
        if not _is_warm(state, owner, node_is_warm, ordered):
            cold.append(topic)
    take_away(state, cold, Cause.COLD, fx)


def _empty(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Delete what the store holds for a place: its messages, and itself if it is a subscription."""
    empty_in_branches(state, place, fx)
    for offer in [o for o in state.moves.offers() if o.place is place]:
        dropped(state, offer, Cause.COLD, fx)
    waiting = place.line.everything()
    for message in waiting:
        place.line.remove(message)
    discard(state, place, waiting, Cause.COLD, fx)
    if isinstance(place, Subscription):
        write(state, undefined(place.number), fx)
