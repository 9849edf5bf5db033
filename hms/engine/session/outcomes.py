"""The outcome of what is in doubt: a client that lost the answer to a send or a commit asks later.

    in the log                     STORED with its ids, or COMMITTED
    not in the log                 WITHDRAWN or ROLLED_BACK: from now on it never will be
    nobody remembers any more      FORGOTTEN

An answer is final. What is not in the log is withdrawn before that is said, so a copy of the frame
that arrives late is refused with SendWithdrawn; a commit that arrives late is rolled back.
"""

from hms.engine.effects import Effects
from hms.engine.session.deduplication import WITHDRAWN, Taken
from hms.engine.session.session_objects import Session
from hms.engine.state import State
from hms.errors.tree import FieldValue
from hms.records import Memory, memory
from hms.wire.outcome_tokens import Token

__all__ = ["outcome"]

Answer = dict[str, FieldValue]


def outcome(state: State, asked: Token, fx: Effects) -> Answer:
    """What became of it, for good; the answer waits for the log."""
    fx.must_wait = True
    return _of_commit(state, asked) if asked.is_commit else _of_send(state, asked, fx)


def _of_send(state: State, asked: Token, fx: Effects) -> Answer:
    memories, first = state.memories, asked.number
    key = (asked.client_uid, asked.handle)
    found = memories.known(*key)
    taken = None if found is None else found.recent.get(first)
    if taken is not None:
        if taken.first_message_id == WITHDRAWN:
            return _answer("WITHDRAWN")
        first_id = taken.first_message_id + asked.offset
        return {**_answer("STORED"), "first": first_id, "count": asked.count}
    batches_max = state.settings.frames_in_flight_max
    is_known = not memories.has_forgotten if found is None else first > found.forgotten
    if found is not None and len(found.recent) >= batches_max:
        is_known = is_known and first > found.recent.first
    if not is_known or not asked.is_logged:
        return _answer("FORGOTTEN")
    withdrawn = Taken(WITHDRAWN, 0, asked.frame_count)
    memories.remember(*key, first, withdrawn, batches_max)
    fx.records.append(memory(Memory(producers=list(memories.producers_taken([key])))))
    return _answer("WITHDRAWN")


def _of_commit(state: State, asked: Token) -> Answer:
    memories, number = state.memories, asked.number
    key = (asked.client_uid, asked.handle)
    last = memories.last_commit(*key)
    if number == last:
        return _answer("COMMITTED")
    if number > last:
        if not last and memories.has_forgotten:
            return _answer("FORGOTTEN")
        session = _session(state, *key)
        if session is not None:
            session.withdrawn = max(session.withdrawn, number)
        return _answer("ROLLED_BACK")
    skipped = memories.known(*key)
    if skipped is not None and number in skipped.recent:
        return _answer("ROLLED_BACK")
    is_known = skipped is None or number > skipped.forgotten
    return _answer("COMMITTED" if is_known and not memories.has_forgotten else "FORGOTTEN")


def _session(state: State, client_uid: int, handle: int) -> Session | None:
    """The session, if its client is connected."""
    for connection in state.connections.values():
        if connection.uid == client_uid:
            return connection.sessions.get(handle)
    return None


def _answer(outcome: str) -> Answer:
    return {"outcome": outcome}
