"""Local transactions (F-B5): what a transacted session sent and acknowledged takes effect together.

A commit is one GROUP record, so it is in the log as a whole or not at all.
"""

from collections.abc import Iterator
from itertools import islice

from hms.engine.effects import Effects, Refusal, Reply
from hms.engine.flow.limits import keys_of, obstacle_to_commit
from hms.engine.flow.overflow_policy import make_room
from hms.engine.flow.room_wait import Obstacle, Waiting
from hms.engine.log.paging import page_out_new
from hms.engine.messages import StoredMessage
from hms.engine.queue.departures import forget_if_done
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import dispatch, wake
from hms.engine.queue.queue_send import (
    ACKNOWLEDGED_BYTES,
    check_commit,
    read_batch,
    ready_batch,
    store_batch,
)
from hms.engine.queue.ready_run import ready_runs
from hms.engine.queue.settled_rest import FORGOTTEN_AT_ONCE
from hms.engine.queue.settlement import NOTHING, SLICE, Return, Said, give_back, give_back_all
from hms.engine.session.receipts import READIED_AT_ONCE, Received
from hms.engine.session.session_objects import PendingBatch, Session, Work
from hms.engine.state import State
from hms.engine.topic.publication_run import ready_publications
from hms.errors.catalogue import IllegalState, TransactionRolledBack
from hms.records import Encoded, Memory, Record, group, memory

BATCH_EFFORT = 8
"""What a batch costs to make ready beside its messages, in messages."""
SELECTORS_AT_ONCE = 10_000
"""So many batches, each with so many selectors, are told who chooses them at the commit itself."""
SPREAD_BATCHES = 64
"""What more batches publish goes to its subscriptions in slices, behind the commit."""
WITHDRAWN = "the commit was withdrawn before it took effect"
"""Somebody asked what became of it, and was told for good that it had no effect."""


def commit(state: State, session: Session, correlation: int, number: int, fx: Effects) -> None:
    """Make the transaction effective; a repeated number was done before."""
    require_transacted(session, "commit")
    connection = session.connection
    answer = Reply(connection.number, correlation, value=True)
    if number <= state.memories.last_commit(connection.uid, session.handle):
        fx.must_wait = True
        fx.out.append(answer)
        return
    if number <= session.withdrawn and not session.work.rolled_back:
        session.work.rolled_back = WITHDRAWN
    if session.work.rolled_back:
        _refuse(state, session, correlation, fx)
        return
    check_commit(state, session.work)
    one = _Commit(state, session, correlation, number)
    is_rated = connection.rate is not None
    if (state.is_guarded or is_rated) and _waits(state, one):
        return
    one.take(fx)


def _refuse(state: State, session: Session, correlation: int, fx: Effects) -> None:
    """What was done in it after it had been rolled back has no effect either."""
    work, session.work = session.work, Work()
    end_without_effect(state, work, Return.LOST, fx)
    error = TransactionRolledBack(reason=work.rolled_back)
    fx.out.append(Refusal(session.connection.number, correlation, error))


def _waits(state: State, one: "_Commit") -> bool:
    """Whether a commit stands in line: for room, or behind an earlier one of its session, so that
    none is confirmed while one before it may still be lost."""
    waiting = state.blocked.lines.get(one.keys[-1], ())
    same = next((w for w in waiting if isinstance(w, _Commit) and w.number >= one.number), None)
    if same is not None:
        same.correlation = one.correlation  # it comes again, and is answered once
        return True
    if not state.blocked.must_wait(one, state.now_ms):
        return False
    one.work.unready()
    one.session.work = Work()  # what comes now belongs to the next transaction
    return True


class _Commit(Waiting):
    """A transaction that takes effect, now or when there is room for what it sends (F-C11)."""

    __slots__ = ("_state", "number", "work")

    def __init__(self, state: State, session: Session, correlation: int, number: int) -> None:
        work = session.work
        own = "session", f"{session.connection.number}/{session.handle}"
        rate = session.connection.rate
        keys = keys_of(work) if rate is None else (rate.key,)
        super().__init__(session, None, correlation, (*keys, own), work.size_bytes)
        self._state = state
        self.work = work
        self.number = number

    def obstacle(self) -> Obstacle | None:
        """A limit or a pause of one of its destinations; none for what only acknowledges."""
        if not self.work.sends:
            return None
        state, rate = self._state, self.session.connection.rate
        slowed = None if rate is None else state.blocked.slowed_by(rate, state.now_ms)
        return slowed or obstacle_to_commit(state, self.work)

    def ready_some(self, fx: Effects) -> bool:
        """A slice of what its record needs, as before a commit that has not waited."""
        return ready_some(self._state, self.work, fx)

    def unready(self) -> None:
        """What was made ready takes no memory while it waits."""
        self.work.unready()

    def packs(self) -> list[tuple[memoryview, int]]:
        """What the transaction sends."""
        return [(batch.pack, batch.count) for batch in self.work.sends]

    def take(self, fx: Effects) -> None:
        """Make it effective, and answer."""
        state = self._state
        session, number = self.session, self.number
        connection, has_work = session.connection, self.work.is_any
        if number <= session.withdrawn:
            end_without_effect(state, self.work, Return.LOST, fx)
            error = TransactionRolledBack(reason=WITHDRAWN)
            fx.out.append(Refusal(connection.number, self.correlation, error))
            return
        check_commit(state, self.work)
        if number > self.last + 1:
            _skip(state, session, self.last, number, fx)
        if connection.rate is not None:
            self.charge(state.now_ms)
        records, touched = take_effect(state, self.work, fx)
        if has_work:  # even when none is persistent: a client without a reply asks for the number
            fx.records.append(group(connection.uid, session.handle, number, state.now_ms, records))
        fx.must_wait = True
        state.memories.committed(connection.uid, session.handle, number)
        for place in touched:
            dispatch(state, place, fx)
        if state.is_guarded:
            make_room(state, touched, fx)
        fx.out.append(Reply(connection.number, self.correlation, value=True))

    @property
    def last(self) -> int:
        """The number of the session's last commit before it."""
        session = self.session
        return self._state.memories.last_commit(session.connection.uid, session.handle)

    def give_up(self) -> None:
        """It was not committed: it is open again, with what was done in it since."""
        older, newer = self.work, self.session.work
        older.sends += newer.sends
        older.acknowledged = older.acknowledged + newer.acknowledged
        older.delays_ms |= newer.delays_ms
        older.size_bytes += newer.size_bytes
        older.steps += newer.steps
        older.worked_at_ms = max(older.worked_at_ms, newer.worked_at_ms)
        older.rolled_back = newer.rolled_back
        self.session.work = older


def work_of(waiting: Waiting) -> Work | None:
    """Of a commit that waits for room; None of a send."""
    return waiting.work if isinstance(waiting, _Commit) else None


def open_works(state: State) -> Iterator[Work]:
    """The work of every transaction that has not ended, each at least once: of sessions, of
    branches, of commits that wait for room, and what is given back in slices."""
    yield from state.returning
    for connection in state.connections.values():
        yield from (session.work for session in connection.sessions.values())
    yield from (branch.work for branch in state.branches.by_xid.values())
    for line in state.blocked.lines.values():
        yield from (waiting.work for waiting in line if isinstance(waiting, _Commit))


def take_effect(
    state: State, work: Work, fx: Effects
) -> tuple[list[Record | Encoded], list[Queue | Subscription]]:
    """What was sent begins to wait, what was acknowledged leaves; the records, which belong
    together, and the places that want a dispatch."""
    records: list[Record | Encoded] = []
    touched: dict[int, Queue | Subscription] = {}
    state.spreads.takes_all = len(work.sends) > SPREAD_BATCHES
    for batch in work.sends:
        if batch.published is not None and _is_published(state, batch, records, fx):
            continue
        run = batch.run
        if run is not None and run.queue is batch.producer.destination:  # which may be gone since
            if run.first_id == batch.first_id:
                stored_run = run.store(state)
                records += [] if stored_run is None else [stored_run]
                touched[id(run.queue)] = run.queue
                if state.is_crowded:
                    page_out_new(state, run.messages, [run.queue])
            continue
        stored = store_batch(state, batch, read_batch(batch), 0, fx)
        records += stored.records
        for place in stored.touched:  # of a queue it is one, and there may be 100,000 batches
            touched[id(place)] = place
        if state.is_crowded:
            page_out_new(state, stored.messages, stored.touched)
    state.spreads.takes_all = False
    for received in work.received().all():
        records += _settled(state, received, is_much=len(work.acknowledged) > FORGOTTEN_AT_ONCE)
        if received.place.line.groups is not None:  # what waited for these may go out
            touched[id(received.place)] = received.place
    _ended(state, work)
    return records, list(touched.values())


def _ended(state: State, work: Work) -> None:
    """Nothing is left of it; what there was of it goes in slices, where it was much."""
    spent = [one for one in (work.acknowledged, work.sends) if len(one) > FORGOTTEN_AT_ONCE]
    if spent:
        state.settled_rest.free(spent)
        state.unfinished.append(lambda fx: _forget_some(state, fx))
    work.clear()
    if state.space.still is not None and state.space.still.work is work:
        state.space.still = None


def _is_published(
    state: State, batch: PendingBatch, records: list[Record | Encoded], fx: Effects
) -> bool:
    """Whether the batch is published with those that it was made ready with; its records too."""
    run = batch.published
    assert run is not None, "it is not ready"
    if run.batches[0] is not batch:
        return True
    if not run.is_current(state):
        run.drop()
        return False
    records += run.store(state, fx)
    if state.is_crowded:
        page_out_new(state, run.messages, [])
    return True


def ready_some(state: State, work: Work, fx: Effects, *, with_sends: bool = True) -> bool:
    """Before a command that makes one record of it: a slice of what it needs for that, and whether
    there was one."""
    if work.received().ready_some():
        return True
    if not with_sends:
        return False
    some, effort = _next_batches(work)
    if effort > READIED_AT_ONCE:
        _ready(work, some)
        return True
    is_much = len(work.sends) > SPREAD_BATCHES or (
        len(work.sends) * state.space.selecting_count > SELECTORS_AT_ONCE
    )
    return ready_publications(state, work, fx, is_much=is_much)


def ready_rest(work: Work) -> int:
    """What ready_some() leaves to the command; what it took, in messages."""
    some, effort = _next_batches(work)
    _ready(work, some)
    return effort


def _next_batches(work: Work) -> tuple[list[PendingBatch], int]:
    effort, some = 0, []
    for batch in islice(work.sends, work.ready_count, None):
        some.append(batch)
        effort += batch.count + BATCH_EFFORT
        if effort > READIED_AT_ONCE:
            break
    return some, effort


def _ready(work: Work, some: list[PendingBatch]) -> None:
    for batch in some:
        if batch.published is None:
            ready_batch(batch)
    ready_runs(some)
    work.ready_count += len(some)


def _settled(state: State, received: Received, *, is_much: bool) -> list[Record]:
    """What was acknowledged leaves its place for good; the records that say so."""
    line, messages = received.place.line, received.messages
    sample = line.sample
    if sample is not None and messages and messages[0].id <= sample.message_id <= messages[-1].id:
        sample.settled(messages, state.now_ms)
    line.count_settled(len(messages), received.size_bytes)
    state.waiting_bytes -= received.size_bytes
    line.counters.acknowledged += len(messages)
    line.totals.acknowledged += len(messages)
    if is_much:
        state.settled_rest.add(received.place, messages)
    else:
        line.forget_settled(messages)
    return received.records(state.now_ms)


def _forget_some(state: State, fx: Effects) -> bool:
    """A slice of what commits have left for ticks; whether there is more."""
    if not state.settled_rest:
        return False
    place = state.settled_rest.settle_some()
    if place is not None:
        wake(state, place, fx)
    return bool(state.settled_rest)


def _skip(state: State, session: Session, last: int, number: int, fx: Effects) -> None:
    """A later question about a commit before this one gets a true answer."""
    key, memories = (session.connection.uid, session.handle), state.memories
    if memories.skipped(*key, last, number, is_certain=session.is_remembered or last > 0):
        fx.records.append(memory(Memory(producers=list(memories.producers_taken([key])))))


def rollback(
    state: State, session: Session, correlation: int, fx: Effects, said: Said = NOTHING
) -> None:
    """Drop the sends, give the receipts back; what was acknowledged in it counts as an attempt."""
    require_transacted(session, "rollback")
    state.blocked.drop(TransactionRolledBack(reason="rollback() was called"), fx, session)
    how = Return.LOST if session.work.rolled_back else Return.FAILED
    places = undo(state, session.work, how, fx, said)
    session.work.rolled_back = ""
    places += restart(state, session, fx)
    for place in dict.fromkeys(places):
        dispatch(state, place, fx)
    fx.out.append(Reply(session.connection.number, correlation))


def undo(
    state: State, work: Work, how: Return, fx: Effects, said: Said = NOTHING
) -> list[Queue | Subscription]:
    """End an open transaction without effect; the places that want a dispatch. said: why."""
    taken, delays_ms = by_place(work), work.delays_ms
    work.clear()
    for place, messages in taken:
        usual_ms = place.redelivery_delay_ms
        by_delay: dict[int, list[StoredMessage]] = {}
        for message in messages:
            delay_ms = delays_ms.get((id(place), message.id), usual_ms)
            by_delay.setdefault(delay_ms, []).append(message)
        for delay_ms, some in by_delay.items():
            is_tried = how is not Return.RELEASED
            give_back(state, place, some, how, fx, delay_ms if is_tried else 0, said)
    return [place for place, _ in taken]


def undo_some(state: State, work: Work, how: Return, fx: Effects) -> bool:
    """A slice of undo(), with its dispatch; False, and nothing is done, when little is left."""
    if len(work.acknowledged) <= SLICE:
        return False
    some = Work()
    some.acknowledged, some.delays_ms = work.acknowledged[:SLICE], work.delays_ms
    work.acknowledged = work.acknowledged[SLICE:]
    work.size_bytes -= ACKNOWLEDGED_BYTES * SLICE
    for place in undo(state, some, how, fx):
        dispatch(state, place, fx)
    return True


def end_without_effect(state: State, work: Work, how: Return, fx: Effects) -> None:
    """As undo(), with its dispatch, where nobody waits for it: what takes more than one hold of
    the lock is left to ticks."""
    rest = Work()
    rest.acknowledged, rest.delays_ms = work.acknowledged, work.delays_ms
    work.clear()

    def go_on(fx: Effects) -> bool:
        if undo_some(state, rest, how, fx):
            return True
        state.returning.remove(rest)
        for place in undo(state, rest, how, fx):
            dispatch(state, place, fx)
        return False

    state.returning.append(rest)
    if go_on(fx):
        state.unfinished.append(go_on)


def by_place(work: Work) -> list[tuple[Queue | Subscription, list[StoredMessage]]]:
    """What a transaction has acknowledged, at each place."""
    found: dict[int, tuple[Queue | Subscription, list[StoredMessage]]] = {}
    for place, message in work.acknowledged:
        found.setdefault(id(place), (place, []))[1].append(message)
    return list(found.values())


def recover(state: State, session: Session, correlation: int, fx: Effects) -> None:
    """Begin again with the oldest unacknowledged message (F-B8)."""
    if session.is_transacted:
        raise IllegalState(what="recover", detail="a transacted session has rollback() instead")
    for place in dict.fromkeys(restart(state, session, fx)):
        dispatch(state, place, fx)
    fx.out.append(Reply(session.connection.number, correlation))


def restart(state: State, session: Session, fx: Effects) -> list[Queue | Subscription]:
    """Release what is out to the session's consumers and begin a new epoch for each; what is known
    to have been seen has failed."""
    consumers = list(session.consumers)
    for consumer in consumers:
        give_back_all(state, consumer, Return.RELEASED, fx, seen=Return.FAILED)
        consumer.epoch += 1
        consumer.credit = consumer.credit_at_open
        consumer.room_bytes = consumer.window_bytes
        forget_if_done(consumer)
    return [consumer.place for consumer in consumers]


def require_transacted(session: Session, what: str) -> None:
    """Refuse a transaction's call in another kind of session, or inside a branch (F-B6)."""
    if session.is_xa:
        detail = "an XA session's work ends with its distributed transaction"
        raise IllegalState(what=what, detail=detail)
    if not session.is_transacted:
        raise IllegalState(what=what, detail="the session is not transacted")
