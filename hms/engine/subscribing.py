"""Subscribing: subscriptions begin, are continued and end (PUBSUB §7).

One that is not durable lives as long as its consumers. A durable one is known by its name for its
topic, and ends when it is unsubscribed, when its life is over or when an operator deletes it. What
it wants is fixed when it begins (CT-07); what is retained then is given to it at once, in the same
record that defines it, so that a crash in between leaves neither or both.
"""

from dataclasses import dataclass

import msgspec

from field_buffer.catalogue import (
    ConsumerLimit,
    DurableNameInUse,
    IllegalState,
    InvalidArgument,
    SubscriptionNotFound,
)
from hms.engine.dispatch import discard, dispatch
from hms.engine.effects import Effects
from hms.engine.places import Queue, Subscription, Topic
from hms.engine.retaining import deliver_retained, wanted_by
from hms.engine.sessions import Connection
from hms.engine.state import State
from hms.engine.topics import Pattern, Scheme, Wants
from hms.records import PLACEMENT_BYTES_MAX, Cause, Definition, defined, group, undefined

LIFE_MS_MAX = 100 * 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """What a consumer is to be; kind is "queue" or "topic", durable a subscription's name."""

    handle: int
    session: int
    kind: str
    destination: str
    credit: int
    name: str = ""
    selector: str = ""
    durable: str = ""
    is_no_local: bool = False
    listener: str = ""
    is_shared: bool = False
    redelivery_delay_ms: int = 0
    topic: str = ""
    """A topic string, behind that of the destination where both are given."""
    scheme: str = ""
    retained: str = ""
    life_ms: int = 0


def subscribe(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> Subscription:
    """The subscription that a consumer asks for, which is made when it is not there."""
    topic, pattern = state.space.wanted(request.destination, request.topic, request.scheme)
    wanted = _wanted(state, connection, request, topic, pattern)
    if request.is_shared and not wanted.name:
        raise InvalidArgument(what="shared subscription", detail="it needs a name")
    if request.durable:
        return _durable(state, topic, pattern, wanted, fx)
    if request.is_shared:
        shared = state.space.named(pattern, wanted.name, is_durable=False)
        if shared is not None and shared.is_shared:
            return _same(shared, wanted)
    subscription = Subscription(topic, wanted, is_durable=False)
    retained = wanted_by(state, subscription) if subscription.wants is Wants.ALL else []
    state.space.add(subscription, state.now_ms)
    deliver_retained(state, subscription, retained, fx, is_new=True)
    return subscription


def _wanted(
    state: State,
    connection: Connection,
    request: ConsumerRequest,
    topic: Topic,
    pattern: Pattern,
) -> Definition:
    """How the log would know the subscription."""
    if request.retained and request.retained not in Wants.__members__:
        detail = f"{request.retained!r} is none of ALL, NEW and REQUEST"
        raise InvalidArgument(what="retained", detail=detail)
    if request.life_ms > LIFE_MS_MAX:
        detail = f"{request.life_ms} ms are more than a hundred years"
        raise InvalidArgument(what="life of a subscription", detail=detail)
    if request.life_ms and not request.durable:
        raise InvalidArgument(what="life of a subscription", detail="only a durable one has one")
    return Definition(
        0,
        "subscription",
        request.durable or request.name,
        topic.number,
        request.selector.strip(),
        request.is_no_local,
        connection.client_id,
        request.is_shared,
        topic_string="" if pattern.text == topic.string else pattern.text,
        scheme="" if pattern.scheme is Scheme.TOPIC else pattern.scheme.value,
        retained="" if request.retained == Wants.ALL else request.retained,
        created_ms=state.now_ms if request.life_ms else 0,
        life_ms=request.life_ms,
    )


def _durable(
    state: State, topic: Topic, pattern: Pattern, wanted: Definition, fx: Effects
) -> Subscription:
    """Continue a durable subscription, or make it; a changed selector begins a new one (JMS 3.1
    §8.3.3)."""
    known = state.space.named(pattern, wanted.name, is_durable=True)
    if known is not None:
        old = known.definition
        if known.queue is not None:
            detail = f"what it takes is put into queue {known.queue.name}; consume from there"
            raise IllegalState(what=f"subscription {known.name}", detail=detail)
        if old.is_configured:
            return _configured(known, wanted)
        if known.consumers and wanted.is_shared and old.is_shared:
            return _same(known, wanted)
        if known.consumers:
            raise DurableNameInUse(name=wanted.name, destination=known.said_topic)
        is_same = (old.selector, old.is_no_local) == (wanted.selector, wanted.is_no_local)
        if is_same and not known.is_over(state.now_ms):
            return known
        if is_in_use(known):
            raise DurableNameInUse(name=wanted.name, destination=known.said_topic)
        remove_subscription(state, known, Cause.UNSUBSCRIBED, fx)
    return define_durable(state, topic, wanted, fx)


def _configured(known: Subscription, wanted: Definition) -> Subscription:
    """What the configuration says holds; any number of consumers may use it (F-E5)."""
    if wanted.selector not in ("", known.definition.selector):
        text = f"the subscription {known.name} is configured with {known.definition.selector!r}"
        raise InvalidArgument(what="selector", detail=text)
    return known


def _same(known: Subscription, wanted: Definition) -> Subscription:
    """A further consumer of a shared subscription must ask for the same (JMS 3.1 §4.3.2)."""
    if known.definition.selector != wanted.selector or known.is_no_local != wanted.is_no_local:
        raise DurableNameInUse(name=wanted.name, destination=known.said_topic)
    return known


def define_durable(state: State, topic: Topic, wanted: Definition, fx: Effects) -> Subscription:
    """A durable subscription begins, with what is retained."""
    _check_definitions(state, wanted)
    queue = state.places.get(wanted.queue) if wanted.queue else None
    trial = Subscription(topic, wanted, is_durable=True)
    retained = wanted_by(state, trial) if trial.wants is Wants.ALL else []
    definition = msgspec.structs.replace(wanted, number=state.take_number())
    state.define(definition)
    made = state.places[definition.number]
    assert isinstance(made, Subscription)
    records = deliver_retained(state, made, retained, fx, is_new=True)
    begun = defined(definition)
    fx.records.append(group(0, 0, 0, state.now_ms, [begun, *records]) if records else begun)
    if isinstance(queue, Queue):
        dispatch(state, queue, fx)
    return made


def _check_definitions(state: State, wanted: Definition) -> None:
    """Every definition stands in each segment's dictionary, and every message of a topic names the
    durable subscriptions that get it: both have to fit beside the largest record."""
    limit = state.settings.definitions_bytes_max
    size = state.definitions_bytes + wanted.size_bytes
    if size > limit:
        raise ConsumerLimit(what="bytes of definitions", count=size, limit=limit)
    durable = len(state.places) - len(state.queues)
    most = limit // PLACEMENT_BYTES_MAX
    if durable >= most:
        raise ConsumerLimit(what="durable subscriptions", count=durable, limit=most)


# their end


def end_passing(state: State, subscription: Subscription) -> None:
    """A subscription that is not durable ends; a transaction may still hold some of it."""
    subscription.is_removed = True
    state.space.remove(subscription, state.now_ms)
    for message in subscription.line.everything():
        subscription.line.remove(message)
        state.waiting_bytes -= message.size_bytes


def unsubscribe(
    state: State, destination: str, name: str, topic: str, scheme: str, fx: Effects
) -> None:
    """End a durable subscription; what waits for it is discarded and counted."""
    _, pattern = state.space.wanted(destination, topic, scheme)
    subscription = state.space.named(pattern, name, is_durable=True)
    said = destination or topic
    if subscription is None:
        raise SubscriptionNotFound(name=name, destination=said)
    if is_in_use(subscription):
        raise DurableNameInUse(name=name, destination=said)
    remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)


def is_in_use(subscription: Subscription) -> bool:
    """It has a consumer, or an open transaction holds what one of its consumers took: it cannot end
    (JMS 3.1 §4.3.1)."""
    return bool(subscription.consumers) or subscription.line.out_count > 0


def remove_subscription(
    state: State, subscription: Subscription, cause: Cause, fx: Effects
) -> None:
    """A durable subscription ends, and what waits for it with it; what its queue has stays there
    (SU-13)."""
    line = subscription.line
    waiting = line.everything()
    for message in waiting:
        line.remove(message)
    discard(state, subscription, waiting, cause, fx)
    state.undefine(subscription)
    fx.records.append(undefined(subscription.number))


def end_overdue(state: State, fx: Effects) -> None:
    """Durable subscriptions whose life is over go as soon as nobody uses them (SU-11)."""
    overdue = [s for s in state.space.mortal.values() if s.is_over(state.now_ms)]
    for subscription in overdue:
        if not is_in_use(subscription):
            remove_subscription(state, subscription, Cause.UNSUBSCRIBED, fx)
