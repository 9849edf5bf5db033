"""Overflow policy: the limit behaviours that remove what waits (F-C11)."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from hms.engine.effects import Effects
from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.flow.limits import Place, held_bytes
from hms.engine.messages import StoredMessage
from hms.engine.queue.dispatch import discard
from hms.engine.state import State
from hms.records import Cause


def make_room(state: State, places: Iterable[Place], fx: Effects) -> None:
    """Remove what is too much where the limit behaviour removes; each is counted, and in the
    history with its cause. What was just delivered is not in the way any more."""
    for place in places:
        limits = place.control.limits
        if not limits.behavior.removes or not place.control.is_guarded:
            continue
        removed = []
        victims = _victims(place) if _is_over(place) else iter(())
        while _is_over(place) and (message := next(victims, None)) is not None:
            place.line.remove(message)
            removed.append(message)
        discard(state, place, removed, Cause.LIMIT, fx)


def _is_over(place: Place) -> bool:
    """Whether more waits than may."""
    limits, line = place.control.limits, place.line
    if limits.messages_max and line.waiting_count > limits.messages_max:
        return True
    if not limits.bytes_max or not line.waiting_count:
        return False
    out = sum(consumer.out_bytes for consumer in place.holders)
    return held_bytes(line) - out > limits.bytes_max


def _victims(place: Place) -> Iterator[StoredMessage]:
    """What waits, in the order in which it has to go."""
    by_priority = place.control.limits.behavior is LimitBehavior.REMOVE_LOW_PRIORITY
    rank = attrgetter("priority", "seq") if by_priority else attrgetter("seq")
    line = place.line
    while firsts := line.firsts():
        yield min(firsts, key=rank)
