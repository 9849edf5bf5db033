"""Partial returns: what gives back much does so in slices, each under its own hold of the lock.

A rollback, a recover, or the end of a consumer, session or connection may find 300,000 messages
out, which takes 1.5 s. Each function here gives back some of them as the command itself would, and
tells whether to call it again before the command. So a slice remembers nothing: there is less to do
then, and a crash or a lost connection in between finds what it finds in an open session. Whose
messages come back gets none meanwhile.
"""

from collections.abc import Iterable
from itertools import islice

from hms.engine.effects import Effects
from hms.engine.queue.departures import keeps_messages
from hms.engine.queue.dispatch import dispatch, dispatching_once
from hms.engine.queue.settlement import SLICE, Return, give_back, take_out
from hms.engine.session.opening import close_producer, close_session, remove_consumer
from hms.engine.session.session_objects import Connection, Consumer, Session
from hms.engine.session.transactions import require_transacted, undo_some
from hms.engine.state import State
from hms.errors.catalogue import TransactionRolledBack

__all__ = ["close_some", "end_some", "recover_some", "roll_back_some", "shut_some"]

_OF_CONSUMER = 8
"""What closing a consumer or producer costs, in messages."""


def roll_back_some(state: State, session: Session, fx: Effects) -> bool:
    """Before rollback(): some of what was acknowledged in the transaction, then of what is out."""
    require_transacted(session, "rollback")
    if _size(session) <= SLICE:
        return False
    state.blocked.drop(TransactionRolledBack(reason="rollback() was called"), fx, session)
    how = Return.LOST if session.work.rolled_back else Return.FAILED
    _no_more_for(session.consumers)
    return undo_some(state, session.work, how, fx) or recover_some(state, session, fx)


def recover_some(state: State, session: Session, fx: Effects) -> bool:
    """Before recover()."""
    if sum([len(consumer.out) for consumer in session.consumers]) <= SLICE:
        return False
    _no_more_for(session.consumers)
    return _return_some(state, session.consumers, Return.RELEASED, Return.FAILED, fx)


def shut_some(state: State, consumer: Consumer, fx: Effects) -> bool:
    """Before close_consumer(): what its application has stays."""
    if len(consumer.out) <= SLICE:
        return False
    if not keeps_messages(consumer):
        _no_more_for([consumer])
        return _return_some(state, [consumer], Return.RELEASED, Return.LOST, fx)
    unseen = list(islice((one for one in consumer.out if one not in consumer.seen), SLICE + 1))
    if len(unseen) <= SLICE:
        return False
    _no_more_for([consumer])
    _give_back_ids(state, consumer, unseen, Return.RELEASED, fx)
    dispatch(state, consumer.place, fx)
    return True


def end_some(state: State, session: Session, how: Return, fx: Effects) -> bool:
    """Before close_session(): what is out, then consumers and producers."""
    if _size(session) + len(session.connection.producers) * _OF_CONSUMER <= SLICE:
        return False
    _no_more_for(session.consumers)
    if not session.is_xa and undo_some(state, session.work, Return.LOST, fx):
        return True
    if _return_some(state, session.consumers, how, Return.LOST, fx):
        return True
    count = SLICE // _OF_CONSUMER
    if len(session.consumers) > count:
        with dispatching_once(state, fx):
            for consumer in session.consumers[:count]:
                if consumer.handle in session.connection.consumers:  # else it went with another
                    remove_consumer(state, consumer, how, fx)
        return True
    producers = session.connection.producers
    some = list(islice((p for p in producers.values() if p.session is session), count + 1))
    for producer in some if len(some) > count else ():
        is_final = how is not Return.LOST
        close_producer(state, session.connection, producer.handle, is_final=is_final, fx=fx)
    return len(some) > count


def close_some(state: State, connection: Connection, fx: Effects) -> bool:
    """Before close_connection(): session after session."""
    sessions = connection.sessions.values()
    size = sum([_size(session) for session in sessions])
    if size + len(connection.producers) * _OF_CONSUMER <= SLICE:
        return False
    for session in sessions:
        _no_more_for(session.consumers)
    first = next(iter(sessions))
    if not end_some(state, first, Return.LOST, fx):
        close_session(state, connection, first.handle, Return.LOST, fx)
    return True


def _size(session: Session) -> int:
    """What ending it costs, in messages."""
    consumers = session.consumers
    out = sum([len(consumer.out) for consumer in consumers])
    return len(session.work.acknowledged) + out + len(consumers) * _OF_CONSUMER


def _no_more_for(consumers: Iterable[Consumer]) -> None:
    for consumer in consumers:
        consumer.credit = 0


def _return_some(
    state: State, consumers: list[Consumer], how: Return, seen: Return, fx: Effects
) -> bool:
    """False, and nothing is done, when little is out. As give_back_all()."""
    if sum([len(consumer.out) for consumer in consumers]) <= SLICE:
        return False
    left = SLICE
    with dispatching_once(state, fx):
        for consumer in [c for c in consumers if c.out]:
            if left <= 0:
                break
            ids = list(islice(consumer.seen, left))
            for one in ids:
                del consumer.seen[one]
            delay_ms = consumer.redelivery_delay_ms or consumer.place.redelivery_delay_ms
            left -= _give_back_ids(state, consumer, ids, seen, fx, delay_ms)
            if left > 0 and not consumer.seen:
                ids = list(islice(consumer.out, left))
                left -= _give_back_ids(state, consumer, ids, how, fx)
            dispatch(state, consumer.place, fx)
    return True


def _give_back_ids(
    state: State,
    consumer: Consumer,
    ids: list[int],
    how: Return,
    fx: Effects,
    delay_ms: int = 0,
) -> int:
    messages = take_out(consumer, [(one, one) for one in ids])
    give_back(state, consumer.place, messages, how, fx, delay_ms)
    return len(messages)
