"""What clients open and close: connections, sessions, producers, consumers, subscriptions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from field_buffer.catalogue import (
    ClientIdInUse,
    ConsumerLimit,
    DestinationKindMismatch,
    DurableNameInUse,
    IllegalState,
    InvalidArgument,
    SessionLimit,
    SubscriptionNotFound,
)
from hms.engine import watching
from hms.engine.dispatch import discard, dispatch
from hms.engine.effects import Effects
from hms.engine.places import Queue, Subscription, Topic
from hms.engine.selector import Selector
from hms.engine.sessions import Connection, Consumer, Producer, Session
from hms.engine.settling import Return, give_back_all
from hms.engine.state import State
from hms.engine.transactions import undo
from hms.records import PLACEMENT_BYTES_MAX, Cause, Definition, defined, undefined

ACK_MODES = range(4)


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


def open_connection(state: State, number: int, uid: int, client_id: str, user: str) -> Connection:
    """A client said hello; its uid is not connected (the caller closed an old connection)."""
    if client_id and any(c.client_id == client_id for c in state.connections.values()):
        raise ClientIdInUse(client_id=client_id)
    connection = state.connections[number] = Connection(number, uid, client_id, user)
    return connection


def close_connection(state: State, number: int, how: Return, fx: Effects) -> None:
    """A connection ended: what it had open is removed (F-A3)."""
    connection = state.connections.pop(number, None)
    if connection is None:
        return
    watching.watch_no_more(state, connection)
    _no_more_for(connection.consumers.values())
    for session in list(connection.sessions.values()):
        close_session(state, connection, session.handle, how, fx)


def open_session(
    state: State, connection: Connection, handle: int, ack_mode: int, kind: str
) -> int:
    """A session; the number of its last commit that took effect."""
    limit = state.settings.sessions_max
    if state.sessions_open >= limit:
        raise SessionLimit(count=state.sessions_open, limit=limit)
    if ack_mode not in ACK_MODES:
        raise InvalidArgument(what="ack_mode", detail=f"{ack_mode} is not between 0 and 3")
    _check_new(connection.sessions, "session", handle)
    if kind == "transacted" and ack_mode != 0:
        raise IllegalState(what="session", detail="a transacted session acknowledges by itself")
    connection.sessions[handle] = Session(connection, handle, ack_mode, kind)
    state.sessions_open += 1
    return state.memories.last_commit(connection.uid, handle)


def close_session(
    state: State, connection: Connection, handle: int, how: Return, fx: Effects
) -> None:
    """Close a session; an open transaction is rolled back."""
    session = state.session(connection, handle)
    _no_more_for(session.consumers)
    places = undo(state, session, Return.LOST if how is Return.LOST else Return.FAILED, fx)
    for consumer in list(session.consumers):
        remove_consumer(state, consumer, how, fx)
    for producer in [p for p in connection.producers.values() if p.session is session]:
        close_producer(state, connection, producer.handle, is_final=how is not Return.LOST)
    del connection.sessions[handle]
    state.sessions_open -= 1
    for place in places:
        dispatch(state, place, fx)


def _no_more_for(consumers: Iterable[Consumer]) -> None:
    """What one of them gives back must not go to another that is about to close too."""
    for consumer in consumers:
        consumer.credit = 0


def open_producer(
    state: State, connection: Connection, handle: int, session: int, kind: str, destination: str
) -> int:
    """A producer; the highest sequence number taken from it so far."""
    owner = state.session(connection, session)
    _check_new(connection.producers, "producer", handle)
    _check_count(state, connection.producers, "producers")
    target = state.destination(kind, destination)
    memory = state.memories.producer(connection.uid, handle)
    connection.producers[handle] = Producer(owner, handle, target, memory)
    target.producers += 1
    return memory.last_sequence


def close_producer(state: State, connection: Connection, handle: int, is_final: bool) -> None:
    """Close a producer; its numbering is remembered while its client may come back."""
    producer = state.producer(connection, handle)
    del connection.producers[handle]
    producer.destination.producers -= 1
    if is_final:
        state.memories.forget_producer(connection.uid, handle)


def open_consumer(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> Consumer:
    """A consumer; everything that can be refused is checked before anything is changed."""
    session = state.session(connection, request.session)
    _check_new(connection.consumers, "consumer", request.handle)
    _check_count(state, connection.consumers, "consumers")
    if request.listener and not session.is_asynchronous:
        raise IllegalState(what="listener", detail="the session is not asynchronous")
    selector = Selector(request.selector) if request.selector.strip() else None
    target = state.destination(request.kind, request.destination)
    place = _place_for(state, connection, target, request, fx)
    credit = 0 if request.listener else min(request.credit, state.settings.prefetch_max)
    consumer = Consumer(session, request.handle, place, credit)
    consumer.name, consumer.listener = request.name, request.listener
    consumer.redelivery_delay_ms = request.redelivery_delay_ms
    if isinstance(place, Queue):
        consumer.selector = selector
    place.attach(consumer)
    watching.came(state, place, fx)
    session.consumers.append(consumer)
    connection.consumers[request.handle] = consumer
    dispatch(state, place, fx)
    return consumer


def remove_consumer(state: State, consumer: Consumer, how: Return, fx: Effects) -> None:
    """Close a consumer; what is out to it comes back, a subscription that is not durable ends."""
    place = consumer.place
    give_back_all(state, consumer, how, fx)
    place.detach(consumer)
    watching.went(state, place, fx)
    consumer.session.consumers.remove(consumer)
    del consumer.connection.consumers[consumer.handle]
    if isinstance(place, Subscription) and not place.is_durable and not place.consumers:
        _end_passing(state, place)
    else:
        dispatch(state, place, fx)


def _end_passing(state: State, subscription: Subscription) -> None:
    """A subscription that is not durable ends; a transaction may still hold some of it."""
    subscription.is_removed = True
    subscription.topic.subscriptions.remove(subscription)
    for message in subscription.line.everything():
        subscription.line.remove(message)
        state.waiting_bytes -= message.size_bytes


def unsubscribe(state: State, destination: str, name: str, fx: Effects) -> None:
    """End a durable subscription; what waits for it is discarded and counted."""
    topic = state.destination("topic", destination)
    assert isinstance(topic, Topic)
    subscription = topic.durable(name)
    if subscription is None:
        raise SubscriptionNotFound(name=name, destination=destination)
    if _is_in_use(subscription):
        raise DurableNameInUse(name=name, destination=destination)
    _remove_subscription(state, subscription, fx)


def _is_in_use(subscription: Subscription) -> bool:
    """It has a consumer, or an open transaction holds what one of its consumers took: it cannot end
    (JMS 3.1 §4.3.1)."""
    return bool(subscription.consumers) or subscription.line.out_count > 0


def _remove_subscription(state: State, subscription: Subscription, fx: Effects) -> None:
    line = subscription.line
    waiting = line.everything()
    for message in waiting:
        line.remove(message)
    discard(state, subscription, waiting, Cause.UNSUBSCRIBED, fx)
    state.undefine(subscription)
    fx.records.append(undefined(subscription.number))


def _place_for(
    state: State,
    connection: Connection,
    target: Queue | Topic,
    request: ConsumerRequest,
    fx: Effects,
) -> Queue | Subscription:
    """The queue, or the subscription, which is made when it is not there."""
    if isinstance(target, Queue):
        if request.durable:
            raise DestinationKindMismatch(
                destination=target.name, kind="queue", wanted="topic for a durable subscription"
            )
        return target
    wanted = Definition(
        0,
        "subscription",
        request.durable or request.name,
        target.number,
        request.selector.strip(),
        request.is_no_local,
        connection.client_id,
        request.is_shared,
    )
    if request.is_shared and not wanted.name:
        raise InvalidArgument(what="shared subscription", detail="it needs a name")
    if request.is_shared and not request.durable:
        shared = target.shared(wanted.name)
        if shared is not None:
            return _same(shared, wanted, target)
    if not request.durable:
        subscription = Subscription(target, wanted, is_durable=False)
        target.subscriptions.append(subscription)
        return subscription
    return _durable(state, target, wanted, fx)


def _durable(state: State, topic: Topic, wanted: Definition, fx: Effects) -> Subscription:
    """Continue a durable subscription, or make it; a changed selector begins a new one (JMS 3.1
    §8.3.3)."""
    known = topic.durable(wanted.name)
    if known is not None and known.definition.is_configured:
        return _configured(known, wanted)
    if known is not None:
        old = known.definition
        if known.consumers and wanted.is_shared and old.is_shared:
            return _same(known, wanted, topic)
        if known.consumers:
            raise DurableNameInUse(name=wanted.name, destination=topic.name)
        if (old.selector, old.is_no_local) == (wanted.selector, wanted.is_no_local):
            return known
        if _is_in_use(known):
            raise DurableNameInUse(name=wanted.name, destination=topic.name)
        _remove_subscription(state, known, fx)
    return _define_durable(state, topic, wanted, fx)


def _configured(known: Subscription, wanted: Definition) -> Subscription:
    """What the configuration says holds; any number of consumers may use it (F-E5)."""
    if wanted.selector not in ("", known.definition.selector):
        text = f"the subscription {known.name} is configured with {known.definition.selector!r}"
        raise InvalidArgument(what="selector", detail=text)
    return known


def _check_definitions(state: State, topic: Topic, wanted: Definition) -> None:
    """Every definition stands in each segment's dictionary, and every message of a topic names the
    durable subscriptions that get it: both have to fit beside the largest record."""
    limit = state.settings.definitions_bytes_max
    size = state.definitions_bytes + wanted.size_bytes
    if size > limit:
        raise ConsumerLimit(what="bytes of definitions", count=size, limit=limit)
    durable = sum(1 for s in topic.subscriptions if s.is_durable)
    most = limit // PLACEMENT_BYTES_MAX
    if durable >= most:
        what = f"durable subscriptions of topic {topic.name}"
        raise ConsumerLimit(what=what, count=durable, limit=most)


def _define_durable(state: State, topic: Topic, wanted: Definition, fx: Effects) -> Subscription:
    _check_definitions(state, topic, wanted)
    definition = Definition(
        state.take_number(),
        "subscription",
        wanted.name,
        topic.number,
        wanted.selector,
        wanted.is_no_local,
        wanted.client_id,
        wanted.is_shared,
    )
    state.define(definition)
    fx.records.append(defined(definition))
    made = topic.durable(wanted.name)
    assert made is not None
    return made


def _same(known: Subscription, wanted: Definition, topic: Topic) -> Subscription:
    """A further consumer of a shared subscription must ask for the same (JMS 3.1 §4.3.2)."""
    if known.definition.selector != wanted.selector or known.is_no_local != wanted.is_no_local:
        raise DurableNameInUse(name=wanted.name, destination=topic.name)
    return known


def _check_count(state: State, table: Mapping[int, object], what: str) -> None:
    limit = state.settings.consumers_max
    if len(table) >= limit:
        raise ConsumerLimit(what=f"{what} of a connection", count=len(table), limit=limit)


def _check_new(table: Mapping[int, object], what: str, handle: int) -> None:
    if handle in table or handle < 1:
        raise InvalidArgument(what=f"{what} handle", detail=f"{handle} is in use or not positive")
