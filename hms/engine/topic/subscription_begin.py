"""Subscription begin: subscriptions begin, are continued and end (PUBSUB §7).

One that is not durable lives as long as its consumers. A durable one is known by its name for its
topic, and ends when it is unsubscribed, when its life is over or when an operator deletes it. What
it wants is fixed when it begins (CT-07); what is retained then is given to it at once, in the same
record that defines it, so that a crash in between leaves neither or both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hms.engine.effects import Effects
from hms.engine.log.state_records import applied
from hms.engine.messages import ReadyCopy, StoredMessage
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.dispatch import dispatch
from hms.engine.session.session_objects import Connection, Consumer
from hms.engine.state import State
from hms.engine.topic import Pattern, Scheme, Wants
from hms.engine.topic.retained_search import SEARCHED_AT_ONCE, RetainedSearch
from hms.engine.topic.retention import (
    asking_uid,
    check_found,
    deliver_copies,
    deliver_retained,
    request_retained,
    wanted_by,
)
from hms.engine.topic.spreading import give_now
from hms.engine.topic.subscription_end import is_in_use, remove_subscription
from hms.errors.catalogue import (
    ConsumerLimit,
    DurableNameInUse,
    IllegalState,
    InvalidArgument,
)
from hms.errors.tree import HmsError
from hms.records import PLACEMENTS_MAX, Cause, Definition, Encoded, Record, defined, group

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
    queue: str = ""
    """Where what it takes is put; then nothing comes to the consumer itself."""
    correlation_id: str = ""
    credit_bytes: int = 0
    """Of heads and bodies; 0 any."""
    priority: int = 0
    """Who has a higher one, and room, gets messages first."""


def subscribe(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> Subscription:
    """The subscription that a consumer asks for, which is made when it is not there."""
    topic, pattern = state.space.wanted(request.destination, request.topic, request.scheme)
    wanted = _wanted(state, connection, request, topic, pattern)
    if request.is_shared and not wanted.name:
        raise InvalidArgument(what="shared subscription", detail="it needs a name")
    if request.durable:
        return _durable(state, connection, request.handle, topic, pattern, wanted, fx)
    if request.is_shared:
        shared = state.space.named(pattern, wanted.name, is_durable=False)
        if shared is not None and shared.is_shared:
            return _same(shared, wanted)
    queue = state.queue(request.queue) if request.queue else None
    subscription = Subscription(topic, wanted, queue=queue)
    state.check_open(subscription.memory_bytes)
    wants_all = subscription.wants is Wants.ALL
    number = queue.number if queue is not None else 0
    found = _searched(state, connection, request.handle, number, fx)
    retained = list[StoredMessage]()
    if found is None and wants_all:
        retained = wanted_by(state, subscription, connection.uid)
    state.space.add(subscription, state.now_ms)
    records: Sequence[Record | Encoded]
    if found is not None:
        records = deliver_copies(state, queue or subscription, found)
    else:
        records = deliver_retained(state, subscription, retained, fx, is_new=True)
    if records:  # into a queue: those outlive the subscription
        fx.records.append(group(0, 0, 0, state.now_ms, records))
    if queue is not None:
        dispatch(state, queue, fx)
    return subscription


def search_some(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> bool:
    """Before subscribe(): a slice of the search for what is retained, and whether there is more."""
    search = connection.search
    if search is None or search.handle != request.handle:
        if search is not None:
            search.close()
        search = connection.search = _new_search(state, connection, request)
    return search is not None and search.go_on(fx)


def search_again_some(state: State, consumer: Consumer, fx: Effects) -> bool:
    """Before request_again(): the same."""
    subscription, connection = consumer.place, consumer.connection
    search = connection.search
    if search is None or search.handle != consumer.handle:
        if search is not None:
            search.close()
        connection.search = search = None
        is_little = state.space.retained.count <= SEARCHED_AT_ONCE
        if isinstance(subscription, Subscription) and not is_little:
            place = subscription.queue or subscription
            number = place.number if place.is_durable else 0
            uid = asking_uid(subscription)
            search = connection.search = RetainedSearch(
                state, subscription, uid, consumer.handle, number, keeps_ids=False
            )
    return search is not None and search.go_on(fx)


def request_again(
    state: State, connection: Connection, handle: int, subscription: Subscription, fx: Effects
) -> int:
    """Give a consumer of the subscription what is retained; how much that is."""
    place = subscription.queue or subscription
    number = place.number if place.is_durable else 0
    found = _searched(state, connection, handle, number, fx)
    count = request_retained(state, subscription, fx, found)
    dispatch(state, place, fx)
    return count


def _new_search(
    state: State, connection: Connection, request: ConsumerRequest
) -> RetainedSearch | None:
    """None where little is looked at, or where subscribe() refuses."""
    if state.space.retained.count <= SEARCHED_AT_ONCE:
        return None
    try:
        topic, pattern = state.space.wanted(request.destination, request.topic, request.scheme)
        wanted = _wanted(state, connection, request, topic, pattern)
        is_durable = bool(request.durable)
        queue = state.queue(request.queue) if request.queue else None
        trial = Subscription(topic, wanted, queue=queue)
    except HmsError:
        return None
    is_known = state.space.named(pattern, wanted.name, is_durable=is_durable) is not None
    if not pattern.is_wildcard or trial.wants is not Wants.ALL or (wanted.name and is_known):
        return None
    if queue is not None:
        number = queue.number if queue.is_durable else 0
    else:
        number = state.take_number() if is_durable else 0
    uid, keeps_ids = connection.uid, queue is None
    return RetainedSearch(state, trial, uid, request.handle, number, keeps_ids=keeps_ids)


def _searched(
    state: State, connection: Connection, handle: int, number: int, fx: Effects
) -> Sequence[ReadyCopy] | None:
    """What was found before for this consumer, checked to fit; None when nothing was looked for.
    number: of the place that gets it."""
    search, connection.search = connection.search, None
    if search is None:
        return None
    if search.handle != handle or search.number != number:
        search.close()
        return None
    found = search.result(fx)
    check_found(state, found)
    return found


def _wanted(
    state: State,
    connection: Connection,
    request: ConsumerRequest,
    topic: Topic,
    pattern: Pattern,
) -> Definition:
    """How the log would know the subscription."""
    _check_options(request)
    if request.durable and request.queue and not state.queue(request.queue).is_durable:
        detail = f"{request.queue} is temporary: it ends with its connection"
        raise IllegalState(what="a durable subscription into a queue", detail=detail)
    return definition_of(
        topic,
        pattern,
        request.durable or request.name,
        request.retained,
        selector=request.selector.strip(),
        is_no_local=request.is_no_local,
        client_id=connection.client_id,
        owner=connection.user if state.space.authority is not None else "",
        is_shared=request.is_shared,
        queue=state.queue(request.queue).number if request.queue else 0,
        correlation_id=request.correlation_id,
        created_ms=state.now_ms if request.life_ms else 0,
        life_ms=request.life_ms,
    )


def _check_options(request: ConsumerRequest) -> None:
    if request.retained and request.retained not in Wants.__members__:
        detail = f"{request.retained!r} is none of ALL, NEW and REQUEST"
        raise InvalidArgument(what="retained", detail=detail)
    if request.life_ms > LIFE_MS_MAX:
        detail = f"{request.life_ms} ms are more than a hundred years"
        raise InvalidArgument(what="life of a subscription", detail=detail)
    if request.life_ms and not request.durable:
        raise InvalidArgument(what="life of a subscription", detail="only a durable one has one")


def definition_of(
    topic: Topic, pattern: Pattern, name: str, retained: str, **more: Any
) -> Definition:
    """How the log would know a subscription to a pattern; its number is given when it begins."""
    return Definition(
        0,
        "subscription",
        name,
        topic.number,
        topic_string="" if pattern.text == topic.string else pattern.text,
        scheme="" if pattern.scheme is Scheme.TOPIC else pattern.scheme.value,
        retained="" if retained == Wants.ALL else retained,
        **more,
    )


def _durable(
    state: State,
    connection: Connection,
    handle: int,
    topic: Topic,
    pattern: Pattern,
    wanted: Definition,
    fx: Effects,
) -> Subscription:
    """Continue a durable subscription, or make it; a changed selector begins a new one (JMS 3.1
    §8.3.3)."""
    known = state.space.named(pattern, wanted.name, is_durable=True)
    if known in state.endings.values():
        raise DurableNameInUse(name=wanted.name, destination=pattern.text)
    if known is None:
        search, number = connection.search, wanted.queue
        if search is not None and search.handle == handle and not number:
            number = search.number
        found = _searched(state, connection, handle, number, fx)
        own = 0 if wanted.queue else number
        return define_durable(state, topic, wanted, fx, connection.uid, found, own)
    if known.queue is not None and known.definition.queue != wanted.queue:
        detail = f"what it takes is put into queue {known.queue.name}; consume from there"
        raise IllegalState(what=f"subscription {known.name}", detail=detail)
    if known.definition.is_configured:
        return _configured(known, wanted)
    if known.consumers and wanted.is_shared and known.definition.is_shared:
        return _same(known, wanted)
    if known.consumers:
        raise DurableNameInUse(name=wanted.name, destination=known.said_topic)
    _check_shared(state, known, wanted)
    if _chosen(known.definition) == _chosen(wanted) and not known.is_over(state.now_ms):
        return known
    if is_in_use(known):
        raise DurableNameInUse(name=wanted.name, destination=known.said_topic)
    _check_definitions(state, wanted, known.definition.size_bytes)  # else the old one would be lost
    remove_subscription(state, known, Cause.UNSUBSCRIBED, fx)
    return define_durable(state, topic, wanted, fx, connection.uid)


def to_replace(
    state: State, connection: Connection, request: ConsumerRequest
) -> Subscription | None:
    """The durable subscription that subscribe() ends for a request, to begin a new one; None when
    it ends none, or when another command is ending it."""
    topic, pattern = state.space.wanted(request.destination, request.topic, request.scheme)
    known = state.space.named(pattern, request.durable, is_durable=True)
    if known is None or known.queue is not None or known.definition.is_configured:
        return None
    if is_in_use(known) or known in [p for n, p in state.endings.items() if n != connection.number]:
        return None
    wanted = _wanted(state, connection, request, topic, pattern)
    _check_shared(state, known, wanted)
    if _chosen(known.definition) == _chosen(wanted) and not known.is_over(state.now_ms):
        return None
    _check_definitions(state, wanted, known.definition.size_bytes)
    state.shares.check_memory(Subscription(topic, wanted).memory_bytes, is_defined=True)
    give_now(state, known)
    return known


def _check_shared(state: State, known: Subscription, wanted: Definition) -> None:
    """One that is shared stays so, and one that is not too, also while it is idle."""
    if known.is_shared is wanted.is_shared or known.queue is not None:
        return
    if known.is_over(state.now_ms):
        return
    is_now, wants = ("shared", "alone") if known.is_shared else ("not shared", "shared")
    detail = f"it is {is_now} and was asked for {wants}; ask for it as it is, or unsubscribe it"
    raise IllegalState(what=f"subscription {known.name}", detail=detail)


def _chosen(definition: Definition) -> tuple[str, bool, int, str]:
    """What makes it another subscription when it changes."""
    return (
        definition.selector,
        definition.is_no_local,
        definition.queue,
        definition.correlation_id,
    )


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


def define_durable(
    state: State,
    topic: Topic,
    wanted: Definition,
    fx: Effects,
    client_uid: int | None = None,
    found: Sequence[ReadyCopy] | None = None,
    number: int = 0,
) -> Subscription:
    """A durable subscription begins, with what is retained; client_uid: of its first subscriber;
    found: copies of that, made before for a subscription of this number."""
    _check_definitions(state, wanted)
    queue = state.places.get(wanted.queue) if wanted.queue else None
    trial = Subscription(topic, wanted)
    state.shares.check_memory(trial.memory_bytes, is_defined=True)
    retained: list[StoredMessage] = []
    if found is None and trial.wants is Wants.ALL:
        retained = wanted_by(state, trial, client_uid)
    definition = msgspec.structs.replace(wanted, number=number or state.take_number())
    begun = applied(state, defined(definition))
    made = state.places[definition.number]
    assert isinstance(made, Subscription)
    records: Sequence[Record | Encoded]
    if found is not None:
        records = deliver_copies(state, made.queue or made, found)
    else:
        records = deliver_retained(state, made, retained, fx, is_new=True)
    fx.records.append(group(0, 0, 0, state.now_ms, [begun, *records]) if records else begun)
    if isinstance(queue, Queue):
        dispatch(state, queue, fx)
    return made


def _check_definitions(state: State, wanted: Definition, instead_bytes: int = 0) -> None:
    """Every definition stands in each segment's dictionary, and every message of a topic names the
    durable subscriptions that get it: both have to fit beside the largest record. instead_bytes: of
    the one that it replaces."""
    state.shares.check_definitions(wanted.size_bytes - instead_bytes)
    if len(state.places) >= PLACEMENTS_MAX:
        raise ConsumerLimit(
            what="durable subscriptions", count=len(state.places), limit=PLACEMENTS_MAX
        )
