"""Local transactions (F-B5): what a transacted session sent and acknowledged takes effect together.

A commit is one GROUP record, so it is in the log as a whole or not at all.
"""

from field_buffer.catalogue import IllegalState, TransactionTooLarge
from field_buffer.packing import unpack_rows
from hms.engine.dispatch import dispatch
from hms.engine.effects import Effects, Reply
from hms.engine.line import ids_of
from hms.engine.messages import StoredMessage
from hms.engine.paging import page_out_new
from hms.engine.places import Queue, Subscription
from hms.engine.sending import store_batch, transaction_bytes
from hms.engine.sessions import Session
from hms.engine.settling import Return, give_back, give_back_all
from hms.engine.state import State
from hms.records import Record, RecordType, group, ranges


def commit(state: State, session: Session, correlation: int, number: int, fx: Effects) -> None:
    """Make the transaction effective; a repeated number was done before."""
    require_transacted(session, "commit")
    connection = session.connection
    answer = Reply(connection.number, correlation, value=True)
    if number <= state.memories.last_commit(connection.uid, session.handle):
        fx.must_wait = True
        fx.out.append(answer)
        return
    limit = state.settings.transaction_bytes_max
    size = transaction_bytes(state, session)
    if size > limit:
        raise TransactionTooLarge(size=size, limit=limit)
    has_work = session.has_work
    records, touched = _apply(state, session, fx)
    if has_work:  # even when none of it is persistent: whoever gets no reply asks for the number
        fx.records.append(group(connection.uid, session.handle, number, state.now_ms, records))
    fx.must_wait = True
    state.memories.committed(connection.uid, session.handle, number)
    for place in touched:
        dispatch(state, place, fx)
    fx.out.append(answer)


def _apply(
    state: State, session: Session, fx: Effects
) -> tuple[list[Record], list[Queue | Subscription]]:
    records: list[Record] = []
    touched: dict[int, Queue | Subscription] = {}
    for batch in session.pending_sends:
        rows = unpack_rows(batch.pack, batch.count)
        stored = store_batch(state, batch, rows, 0, fx)
        records += stored.records
        touched.update((id(place), place) for place in stored.touched)
        page_out_new(state, stored.messages, stored.touched)
    by_place: dict[int, tuple[Queue | Subscription, list[StoredMessage]]] = {}
    for place, message in session.acknowledged:
        by_place.setdefault(id(place), (place, []))[1].append(message)
    for place, messages in by_place.values():
        for message in messages:
            place.line.settle(message)
            state.waiting_bytes -= message.size_bytes
        place.line.counters.acknowledged += len(messages)
        persistent = [m for m in messages if m.is_persistent]
        if persistent and place.is_durable:
            spans = ids_of(persistent)
            records.append(ranges(RecordType.ACKNOWLEDGED, place.number, state.now_ms, spans))
    _clear(session)
    return records, list(touched.values())


def rollback(state: State, session: Session, correlation: int, fx: Effects) -> None:
    """Drop the sends, give the receipts back; what was acknowledged in it counts as an attempt."""
    require_transacted(session, "rollback")
    places = undo(state, session, Return.FAILED, fx)
    places += restart(state, session, fx)
    for place in dict.fromkeys(places):
        dispatch(state, place, fx)
    fx.out.append(Reply(session.connection.number, correlation))


def undo(state: State, session: Session, how: Return, fx: Effects) -> list[Queue | Subscription]:
    """End an open transaction without effect; the places that want a dispatch."""
    by_place: dict[int, tuple[Queue | Subscription, list[StoredMessage]]] = {}
    for place, message in session.acknowledged:
        by_place.setdefault(id(place), (place, []))[1].append(message)
    _clear(session)
    for place, messages in by_place.values():
        give_back(state, place, messages, how, fx, place.redelivery_delay_ms)
    return [place for place, _ in by_place.values()]


def recover(state: State, session: Session, correlation: int, fx: Effects) -> None:
    """Begin again with the oldest unacknowledged message (F-B8)."""
    if session.is_transacted:
        raise IllegalState(what="recover", detail="a transacted session has rollback() instead")
    for place in dict.fromkeys(restart(state, session, fx)):
        dispatch(state, place, fx)
    fx.out.append(Reply(session.connection.number, correlation))


def restart(state: State, session: Session, fx: Effects) -> list[Queue | Subscription]:
    """Release what is out to the session's consumers and begin a new epoch for each."""
    for consumer in session.consumers:
        give_back_all(state, consumer, Return.RELEASED, fx)
        consumer.epoch += 1
        consumer.credit = consumer.credit_at_open
    return [consumer.place for consumer in session.consumers]


def require_transacted(session: Session, what: str) -> None:
    """Refuse a transaction's call in another kind of session."""
    if not session.is_transacted:
        raise IllegalState(what=what, detail="the session is not transacted")


def _clear(session: Session) -> None:
    session.pending_sends = []
    session.acknowledged = []
    session.pending_bytes = 0
