"""What clients open and close: connections, sessions, producers, consumers, subscriptions."""

from collections.abc import Iterable, Mapping

from hms.engine.effects import Effects
from hms.engine.flow.limits import check_consumers, check_producers, check_selectors
from hms.engine.groups.group_view import is_gathering
from hms.engine.queue import scan_continuation
from hms.engine.queue.departures import depart, forget, keeps_messages
from hms.engine.queue.destinations import Queue, Subscription, Topic
from hms.engine.queue.dispatch import dispatch, dispatching_once
from hms.engine.queue.purge_slices import begin_ending, lift_ending, purge_some
from hms.engine.queue.settlement import Return, give_back_all
from hms.engine.selector import Selector
from hms.engine.selector.selector_fields import checked_selector
from hms.engine.session import consumer_watch
from hms.engine.session.session_objects import (
    NO_WINDOW,
    Connection,
    Consumer,
    Producer,
    Session,
    consumer_bytes,
    producer_bytes,
)
from hms.engine.session.temporary_destinations import check_owner, queue_for
from hms.engine.state import State
from hms.engine.topic.spreading import give_now
from hms.engine.topic.subscription_begin import ConsumerRequest, subscribe, to_replace
from hms.engine.topic.subscription_end import end_passing
from hms.engine.xa.association import attach_lost, connection_ended, leave
from hms.errors.catalogue import (
    ClientIdInUse,
    ConnectionClosed,
    ConsumerLimit,
    DestinationKindMismatch,
    IllegalState,
    InvalidArgument,
    NotSupported,
    SessionLimit,
)
from hms.errors.tree import HmsError
from hms.records import Cause
from hms.wire.packed_messages import NODE_CLIENT, NODE_USER

ACK_MODES = range(4)
SENDER_CLIENT_BYTES_MAX = 255
"""So much of a client's id is said by its messages: each of them has room for it."""


def open_connection(state: State, number: int, uid: int, client_id: str, user: str) -> Connection:
    """A client said hello; its uid is not connected (the caller closed an old connection)."""
    if client_id and any(c.client_id == client_id for c in state.connections.values()):
        raise ClientIdInUse(client_id=client_id)
    connection = state.connections[number] = Connection(number, uid, client_id, user)
    if state.settings.is_sender_told and user:
        client = client_id.removeprefix(f"{user}/").encode()[:SENDER_CLIENT_BYTES_MAX]
        connection.sender = {NODE_USER: user, NODE_CLIENT: client.decode(errors="ignore")}
    return connection


def close_connection(state: State, number: int, how: Return, fx: Effects) -> None:
    """A connection ended: what it had open is removed (F-A3)."""
    connection = state.connections.pop(number, None)
    if connection is None:
        return
    consumer_watch.watch_no_more(state, connection)
    if connection.search is not None:
        connection.search.close()
    _no_more_for(connection.consumers.values())
    with dispatching_once(state, fx):
        for session in list(connection.sessions.values()):
            close_session(state, connection, session.handle, how, fx)
    connection_ended(state, number, fx)


def open_session(
    state: State, connection: Connection, handle: int, ack_mode: int, kind: str, xid: bytes = b""
) -> int:
    """A session; the number of its last commit that took effect. xid: see Engine."""
    limit = state.settings.sessions_max
    if state.sessions_open >= limit:
        raise SessionLimit(count=state.sessions_open, limit=limit)
    own = len(connection.sessions)
    if own >= limit - limit // 4:
        raise ConsumerLimit(what="sessions of a connection", count=own, limit=limit - limit // 4)
    if ack_mode not in ACK_MODES:
        raise InvalidArgument(what="ack_mode", detail=f"{ack_mode} is not between 0 and 3")
    _check_new(connection.sessions, "session", handle)
    if kind in ("transacted", "xa") and ack_mode != 0:
        detail = f"{'an XA' if kind == 'xa' else 'a transacted'} session acknowledges by itself"
        raise IllegalState(what="session", detail=detail)
    session = connection.sessions[handle] = Session(connection, handle, ack_mode, kind)
    if xid and session.is_xa:
        attach_lost(session, xid)
    state.sessions_open += 1
    session.is_remembered = state.memories.open_session(connection.uid, handle)
    return state.memories.last_commit(connection.uid, handle)


def close_session(
    state: State,
    connection: Connection,
    handle: int,
    how: Return,
    fx: Effects,
    *,
    is_doubtful: bool = False,
) -> None:
    """Close a session; an open transaction is rolled back. What the application has comes again,
    flagged; that is no failed attempt, in order or not. is_doubtful: somebody may still ask what
    became of its sends."""
    session = state.session(connection, handle)
    error = None if how is Return.LOST else ConnectionClosed(what="session")
    state.blocked.drop(error, fx, session)
    _no_more_for(session.consumers)
    places = leave(state, session, Return.LOST, fx)
    with dispatching_once(state, fx):
        for consumer in list(session.consumers):
            if consumer.handle in connection.consumers:  # else it went with another
                remove_consumer(state, consumer, how, fx)
    for producer in [p for p in connection.producers.values() if p.session is session]:
        is_final = how is not Return.LOST and not is_doubtful
        close_producer(state, connection, producer.handle, is_final=is_final, fx=fx)
    del connection.sessions[handle]
    state.memories.close_session(connection.uid, handle)
    state.sessions_open -= 1
    for place in places:
        dispatch(state, place, fx)


def _no_more_for(consumers: Iterable[Consumer]) -> None:
    """What one of them gives back must not go to another that is about to close too."""
    for consumer in consumers:
        consumer.credit = 0


def open_producer(
    state: State,
    connection: Connection,
    handle: int,
    session: int,
    where: tuple[str, str, str],
    fx: Effects,
    sent_before: int = 0,
) -> Producer:
    """A producer; its memory tells the highest sequence number taken from it so far. where: kind,
    destination and topic string; sent_before: the last number that its client has used."""
    owner = state.session(connection, session)
    _check_new(connection.producers, "producer", handle)
    _check_count(state, connection.producers, "producers")
    target, string = _publishes_at(state, where, fx)
    check_producers(state, target)
    size = producer_bytes(string, state.settings.frames_in_flight_max)
    state.check_open(size)
    node = state.space.opened(string, state.now_ms) if string else None
    memory = state.memories.open_producer(connection.uid, handle, sent_before)
    producer = Producer(owner, handle, target, memory)
    producer.topic, producer.node, producer.memory_bytes = string, node, size
    connection.producers[handle] = producer
    state.shares.take_memory(connection.owner, producer.memory_bytes)
    target.producers += 1
    return producer


def number_schedules(state: State, producer: Producer, handle: int, sequence: int) -> None:
    """Its schedules are numbered by this handle: which were taken is known as long as it is open,
    as of its sends. sequence: of the one that comes."""
    connection = producer.session.connection
    if handle == producer.schedule_handle or state.memories.is_open(connection.uid, handle):
        return
    if producer.schedule_handle:
        state.memories.close_producer(connection.uid, producer.schedule_handle)
    else:
        size = producer_bytes("", state.settings.frames_in_flight_max)
        state.check_open(size)
        producer.memory_bytes += size
        state.shares.take_memory(connection.owner, size)
    producer.schedule_handle = handle
    state.memories.open_producer(connection.uid, handle, max(sequence - 1, 0))


def _publishes_at(
    state: State, where: tuple[str, str, str], fx: Effects
) -> tuple[Queue | Topic, str]:
    """The queue, or the topic object and the whole topic."""
    kind, destination, topic = where
    if kind == "topic":
        return state.space.publication(destination, topic)
    return queue_for(state, destination, fx), ""


def close_producer(
    state: State, connection: Connection, handle: int, is_final: bool, fx: Effects
) -> None:
    """Close a producer; its numbering is remembered unless is_final: its client may come back, or
    ask what became of its sends."""
    producer = state.producer(connection, handle)
    state.blocked.drop(ConnectionClosed(what="producer"), fx, producer.session, producer)
    del connection.producers[handle]
    state.shares.take_memory(connection.owner, -producer.memory_bytes)
    producer.destination.producers -= 1
    if producer.node is not None:
        state.space.closed(producer.node, state.now_ms)
    handles = [handle, producer.schedule_handle] if producer.schedule_handle else [handle]
    for one in handles:
        if is_final:
            state.memories.forget_producer(connection.uid, one)
        else:
            state.memories.close_producer(connection.uid, one)


def open_consumer(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> Consumer:
    """A consumer; everything that can be refused is checked before anything is changed."""
    session, selector = _check_opening(state, connection, request)
    place: Queue | Subscription
    if request.kind == "topic":
        place = subscribe(state, connection, request, fx)
    else:
        place = queue_for(state, request.destination, fx, connection.uid)
        check_consumers(place)
        if selector is not None:
            check_selectors(place, state.settings.selectors_max)
        if request.listener and is_gathering(place):
            instead = "Receive its lists in a session that is not asynchronous."
            raise NotSupported(feature="a listener service for lists", instead=instead)
        if request.durable:
            raise DestinationKindMismatch(
                destination=place.name, kind="queue", wanted="topic for a durable subscription"
            )
    credit = 0 if request.listener else min(request.credit, state.settings.prefetch_max)
    consumer = Consumer(session, request.handle, place, credit, _window(state, request))
    consumer.name, consumer.listener = request.name, request.listener
    consumer.redelivery_delay_ms = request.redelivery_delay_ms
    consumer.priority = request.priority
    if isinstance(place, Queue):
        consumer.selector = selector
    state.shares.take_memory(connection.owner, consumer.memory_bytes)
    give_now(state, place)
    place.attach(consumer)
    consumer_watch.came(state, place, fx)
    session.consumers.append(consumer)
    connection.consumers[request.handle] = consumer
    dispatch(state, place, fx)
    return consumer


def _check_opening(
    state: State, connection: Connection, request: ConsumerRequest
) -> tuple[Session, Selector | None]:
    """Refuse a consumer for what its own request says; its session and its selector."""
    session = state.session(connection, request.session)
    _check_new(connection.consumers, "consumer", request.handle)
    _check_count(state, connection.consumers, "consumers")
    if request.listener and not session.is_asynchronous:
        raise IllegalState(what="listener", detail="the session is not asynchronous")
    selector = checked_selector(request.selector)
    own = selector if request.kind != "topic" else None
    state.check_open(consumer_bytes(request.name, request.listener, own))
    if request.queue and request.kind != "topic":
        raise InvalidArgument(what="queue", detail="only a topic's messages are put into one")
    named = state.topics.get(request.destination) if request.kind == "topic" else None
    if named is not None:
        check_owner(named, connection.uid, is_durable=bool(request.durable))
    return session, selector


def replace_some(
    state: State, connection: Connection, request: ConsumerRequest, fx: Effects
) -> bool:
    """Before open_consumer(), where it ends a durable subscription that chooses otherwise, and is
    not refused: a slice of what waits there, and whether there was one."""
    if not request.durable or request.kind != "topic":
        return False
    try:
        _check_opening(state, connection, request)
        replaced = to_replace(state, connection, request)
    except HmsError:
        return False
    if replaced is not None and purge_some(state, replaced, Cause.UNSUBSCRIBED, fx, state.now_ms):
        begin_ending(state, connection.number, replaced)
        return True
    lift_ending(state, connection.number)
    return False


def _window(state: State, request: ConsumerRequest) -> int:
    """How many bytes it may be sent before it takes them; a listener's messages are counted."""
    if request.listener or not request.credit_bytes:
        return NO_WINDOW
    return min(request.credit_bytes, state.settings.prefetch_bytes_max)


def close_consumer(state: State, consumer: Consumer, fx: Effects) -> None:
    """Close a consumer in order."""
    if not keeps_messages(consumer):
        remove_consumer(state, consumer, Return.RELEASED, fx)
        return
    place = consumer.place
    depart(state, consumer, fx)
    state.shares.take_memory(consumer.connection.owner, -consumer.memory_bytes)
    scan_continuation.answer_all(consumer, fx)
    place.detach(consumer)
    consumer_watch.went(state, place, fx)
    dispatch(state, place, fx)


def remove_consumer(state: State, consumer: Consumer, how: Return, fx: Effects) -> None:
    """Close a consumer; what is out to it comes back, a subscription that is not durable ends. What
    a listener's service was given is known (Engine.seen), so the rest was seen by nobody."""
    place = consumer.place
    give_back_all(state, consumer, Return.RELEASED if consumer.listener else how, fx)
    scan_continuation.answer_all(consumer, fx)
    if consumer.has_left:
        forget(consumer)
        dispatch(state, place, fx)
        return
    place.detach(consumer)
    consumer_watch.went(state, place, fx)
    consumer.session.consumers.remove(consumer)
    del consumer.connection.consumers[consumer.handle]
    state.shares.take_memory(consumer.connection.owner, -consumer.memory_bytes)
    if isinstance(place, Subscription) and not place.is_durable and not place.consumers:
        for left in list(place.left):
            assert isinstance(left, Consumer), "what has left was open"
            remove_consumer(state, left, how, fx)
        end_passing(state, place, fx)
    else:
        dispatch(state, place, fx)


def _check_count(state: State, table: Mapping[int, object], what: str) -> None:
    limit = state.settings.consumers_max
    if len(table) >= limit:
        raise ConsumerLimit(what=f"{what} of a connection", count=len(table), limit=limit)


def _check_new(table: Mapping[int, object], what: str, handle: int) -> None:
    if handle in table or handle < 1:
        raise InvalidArgument(what=f"{what} handle", detail=f"{handle} is in use or not positive")
