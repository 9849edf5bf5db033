"""Booting: what the configuration decides once the log was read (F-H2, F-H3)."""

from hms.engine.configured import define_destinations, define_subscriptions
from hms.engine.dispatch import discard
from hms.engine.effects import Effects
from hms.engine.places import Queue, Retained, Subscription, Topic
from hms.engine.retaining import take_away
from hms.engine.settling import bury_overdue
from hms.engine.state import State
from hms.engine.topics import Pattern
from hms.records import Cause, NodeEvent, node_event, reserved, undefined


def boot(state: State, now_ms: int, is_warm: bool | None, version: str, fx: Effects) -> None:
    """After the log is read: define what the configuration has, and empty what boots COLD (F-H2,
    F-H3). is_warm None: as configured; else the operator's word for the whole node."""
    state.at(now_ms)
    node_is_warm = state.settings.is_warm if is_warm is None else is_warm
    below = state.ids.reserve(1)
    if below is not None:
        fx.records.append(reserved(below))
        state.ids.safe_below = below  # the boot's records are durable before anybody connects
    fx.records += define_destinations(state)
    for place in list(state.places.values()):
        if isinstance(place, Retained):
            _empty_cold_topics(state, node_is_warm, is_warm, fx)
        elif not _is_warm(state, place, node_is_warm, is_warm):
            _empty(state, place, fx)
        else:
            bury_overdue(state, place, fx)
    fx.records += define_subscriptions(state)
    fx.records.append(
        node_event(NodeEvent("booted", state.now_ms, "WARM" if node_is_warm else "COLD", version))
    )


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
    waiting = place.line.everything()
    for message in waiting:
        place.line.remove(message)
    discard(state, place, waiting, Cause.COLD, fx)
    if isinstance(place, Subscription):
        state.undefine(place)
        fx.records.append(undefined(place.number))
