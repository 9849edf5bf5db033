"""Spreading: what is published begins to wait at its places; at very many of them in slices."""

from collections.abc import Mapping, Sequence

from hms.engine.effects import Effects
from hms.engine.flow.overflow_policy import make_room
from hms.engine.messages import StoredMessage, sizes_of
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import dispatch
from hms.engine.session.session_objects import Producer
from hms.engine.state import State
from hms.engine.topic.spreads import Part, Spread, steps_of

SPREAD_MIN = 2048
"""What no more subscriptions get is theirs at once."""
SPREAD_AT_ONCE = 2048
"""Steps: 5 ms."""
PREPARED_AT_ONCE = 512
"""Selectors that an audience is made of: 3 ms."""
LOOKS_MAX = 2000
"""So many slices of an audience are made before a publication at most."""
STEPS_AT_ONCE = 8192
"""What takes no more steps is put into all its lines at once, where there are not so many."""


def is_large(state: State, subscriptions: int, count: int, due: int, uses: int) -> bool:
    """Whether so many messages to so many subscriptions, so many of them delayed, are put there in
    slices, as they are too much for a command with what it has published before: 1,024 delayed ones
    to 2,000 held the lock for 2 s, to 100 for 0.1 s."""
    if subscriptions > SPREAD_MIN:
        return True
    state.spreads.given += subscriptions * steps_of(count, due, uses)
    return state.spreads.given > STEPS_AT_ONCE


def begin_spread(state: State, parts: Sequence[Part], due: Mapping[int, int], uses: int) -> None:
    """All of this is to be put where it waits, behind what is under way."""
    if parts:
        size_bytes = sum([len(places) * sizes_of(messages) for places, messages in parts])
        begin_spreads(state, [Spread(parts, due, uses)], size_bytes)


def begin_spreads(state: State, begun: Sequence[Spread], size_bytes: int) -> None:
    """The same of some, whose messages take so much where they wait, of all places together."""
    state.waiting_bytes += size_bytes
    spreads = state.spreads
    spreads.waiting.extend(begun)
    if begun and not spreads.is_told:
        spreads.is_told = True
        state.unfinished.append(lambda fx: _go_on(state, fx))


def _go_on(state: State, fx: Effects) -> bool:
    spread_some(state, fx)
    state.spreads.is_told = bool(state.spreads)
    return state.spreads.is_told


def spread_some(state: State, fx: Effects) -> None:
    """A slice of what is under way."""
    steps, touched, waiting = SPREAD_AT_ONCE, list[Subscription](), state.spreads.waiting
    while waiting and steps > 0:
        spread = waiting[0]
        for subscriptions, late, messages in spread.take(steps):
            size_bytes = sizes_of(messages)
            for subscription in late:
                subscription.line.add(messages, size_bytes, spread.uses)
                if spread.due:
                    delay(state, subscription, messages, spread.due)
            touched += subscriptions
            steps -= spread.steps_of(messages) * len(subscriptions)
        if spread.is_done:
            waiting.popleft()
    for place in touched:
        if place.consumers or place.feed is not None:
            dispatch(state, place, fx)
    if state.is_guarded:
        make_room(state, touched, fx)


def send_some(state: State, producer: Producer, fx: Effects) -> bool:
    """Before a publication: a slice of those under way, as nobody may leave more and more of it to
    ticks, or its audience where finding it takes long; and whether it has to come again."""
    if state.spreads:
        spread_some(state, fx)
        return bool(state.spreads)
    space = state.space
    looks, producer.looks = producer.looks, 0
    if looks > LOOKS_MAX or space.has_audience(producer.topic, state.now_ms):
        return False  # subscriptions may come faster than it does
    if space.prepare_some(producer.topic, state.now_ms, PREPARED_AT_ONCE):
        producer.looks = looks + 1
        return True
    audience = space.audience(producer.topic, state.now_ms)
    if len(audience.subscriptions) <= SPREAD_MIN:
        return False
    producer.looks = LOOKS_MAX + 1
    return True


def give_now(state: State, subscription: Queue | Subscription) -> None:
    """Whatever is on its way to this one waits there from now on."""
    if not state.spreads or not isinstance(subscription, Subscription):
        return
    for spread in state.spreads.waiting:
        messages = spread.take_one(subscription)
        if messages is not None:
            subscription.line.add(messages, sizes_of(messages), spread.uses)
            if spread.due:
                delay(state, subscription, messages, spread.due)


def delay(
    state: State,
    place: Queue | Subscription,
    messages: list[StoredMessage],
    due: Mapping[int, int],
) -> None:
    """Those of the messages that are delayed wait on, for their time."""
    line = place.line
    known_ms = line.delayed.next_ms()
    for message in messages:
        if message.id in due:
            line.delay(message, due[message.id])
    next_ms = line.delayed.next_ms()
    if next_ms is not None and next_ms != known_ms:
        state.wake_at(next_ms, place)
