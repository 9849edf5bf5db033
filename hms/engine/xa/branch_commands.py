"""Commands: one method per request on branches and decisions; each takes the time and the effects
that it may add to, as those of the engine do, and of which it is a part."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage
from hms.engine.queue.queue_send import BRANCH_STEPS, STEPS_MAX
from hms.engine.queue.settlement import Return, take_out
from hms.engine.session.receipts import READIED_AT_ONCE
from hms.engine.session.transactions import ready_rest, ready_some
from hms.engine.state import State
from hms.engine.xa import association, completion, decision_requests, retained_state
from hms.engine.xa.branch import XID_HEAD_BYTES, Branch, gtrid_of
from hms.engine.xa.retained_state import Key
from hms.engine.xa.xa_codes import DONE, UNKNOWN, Answer, Code
from hms.errors.catalogue import DecisionRefused

XID_PART_BYTES_MAX = 64
"""Of gtrid and bqual, each."""
FORMAT_ID_SIGN = 0x80

LISTED_AT_ONCE = 10_000
"""Global transactions: 7 ms."""

Plain = dict[str, Any]


class _ActiveListed(NamedTuple):
    """A list of global transactions that a connection has asked for."""

    asked: object
    rest: Iterator[list[Any]]
    rows: list[list[Any]]


class BranchCommands:
    """Branches and decisions of one node; see hms/engine/engine.py."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._active: dict[int, _ActiveListed] = {}

    # branches

    def start(
        self, connection: int, session: int, xid: bytes, flags: int, timeout_ms: int, now_ms: int
    ) -> Answer:
        """xa_start."""
        self._state.at(now_ms)
        if not _is_xid(xid):
            return Answer(Code.INVAL, "the xid is not well formed")
        owner = self._state.session(self._state.connection(connection), session)
        return association.start(self._state, owner, xid, flags, timeout_ms)

    def end(
        self, connection: int, session: int, xid: bytes, flags: int, now_ms: int, fx: Effects
    ) -> Answer:
        """xa_end."""
        self._state.at(now_ms)
        owner = self._state.session(self._state.connection(connection), session)
        return association.end(self._state, owner, xid, flags, fx)

    def take(
        self,
        connection: int,
        session: int,
        listener: tuple[int, int],
        messages: Sequence[StoredMessage],
    ) -> Answer:
        """What is out to a listener, given by its connection and handle, is received by the branch
        in which a session works."""
        owner = self._state.session(self._state.connection(connection), session)
        there = self._state.connections.get(listener[0])
        consumer = there.consumers.get(listener[1]) if there is not None else None
        if not owner.xid or owner.work.is_over:
            return Answer(Code.PROTO, "the session works in no branch")
        taken = take_out(consumer, [(m.id, m.id) for m in messages]) if consumer else []
        if consumer is None or not taken:
            return Answer(Code.NOTA, "the message was given back meanwhile")
        owner.work.acknowledged += [(consumer.place, message) for message in taken]
        return DONE

    def _is_stranger(self, by: int, xid: bytes) -> bool:
        """Whether a connection may know nothing of that branch; 0 stands for the node itself."""
        branch = self._state.branches.by_xid.get(xid)
        if not by or branch is None or self.is_coordinator(by, xid):
            return False
        return branch.is_hidden_from(self._state.connection(by).uid)

    def is_coordinator(self, connection: int, xid: bytes) -> bool:
        """Whether a connection has begun the global transaction that a branch is named after, and
        has still to decide: it ends what services have left there."""
        active = self._state.decisions.active.get(_gtrid_of(xid))
        return active is not None and active.connection == connection

    def ready_some(
        self, xids: Sequence[bytes], by: int, now_ms: int, fx: Effects, *, is_vote: bool = False
    ) -> bool:
        """Before prepare(), commit() and decide(): a slice of what their records need, and whether
        there was one; see hms/engine/engine.py."""
        self._state.at(now_ms)
        known = [xid for xid in xids if not self._is_stranger(by, xid)]
        works = [branch.work for branch in self._there(known) if branch.may_end]
        if len(works) * BRANCH_STEPS > STEPS_MAX:
            return False  # they are too many
        if any(ready_some(self._state, work, fx, with_sends=not is_vote) for work in works):
            return True
        effort = 0
        for work in works if len(works) > 1 and not is_vote else ():
            effort += ready_rest(work)  # each has left a little to its command
            if effort > READIED_AT_ONCE:
                return True
        return False

    def _there(self, xids: Sequence[bytes]) -> list[Branch]:
        found = self._state.branches.by_xid
        return [found[xid] for xid in xids if xid in found]

    def _not_ended(self, xids: Sequence[bytes]) -> None:
        """These were not committed after all: what was made ready takes no memory any more."""
        for branch in self._there(xids):
            branch.work.unready()

    def prepare(
        self, xid: bytes, now_ms: int, fx: Effects, *, is_again: bool = False, by: int = 0
    ) -> Answer:
        """xa_prepare; by: the connection that asks."""
        self._state.at(now_ms)
        if self._is_stranger(by, xid):
            return UNKNOWN
        return completion.prepare(self._state, xid, fx, is_again=is_again)

    def commit(
        self,
        xid: bytes,
        now_ms: int,
        fx: Effects,
        *,
        is_one_phase: bool,
        is_again: bool,
        by: int = 0,
    ) -> Answer:
        """xa_commit; by: the connection that asks."""
        self._state.at(now_ms)
        if self._is_stranger(by, xid):
            return UNKNOWN
        answer = completion.commit(
            self._state, xid, fx, is_one_phase=is_one_phase, is_again=is_again
        )
        self._not_ended([xid])
        return answer

    def rollback(self, xid: bytes, now_ms: int, fx: Effects, *, by: int = 0) -> Answer:
        """xa_rollback; by: the connection that asks."""
        self._state.at(now_ms)
        if self._is_stranger(by, xid):
            return UNKNOWN
        return completion.rollback(self._state, xid, fx)

    def forget(self, xid: bytes, now_ms: int, fx: Effects) -> Answer:
        """xa_forget."""
        self._state.at(now_ms)
        return completion.forget(self._state, xid, fx)

    def recover(self, after: int, count_max: int, fx: Effects) -> Plain:
        """A page of xa_recover."""
        return completion.recover(self._state, after, count_max, fx)

    # decisions

    def begin_global(
        self, connection: int, gtrid: bytes, timeout_ms: int, name: str, now_ms: int
    ) -> None:
        """A global transaction is active from now on."""
        self._state.at(now_ms)
        decision_requests.begin(self._state, connection, gtrid, timeout_ms, name)

    def decide(
        self,
        connection: int,
        gtrid: bytes,
        participants: bytes,
        xids: Sequence[bytes],
        now_ms: int,
        fx: Effects,
    ) -> Plain:
        """Commit a global transaction and its branches here."""
        self._state.at(now_ms)
        for xid in xids:  # those of services that it has called are named after it
            if _gtrid_of(xid) != gtrid and self._is_stranger(connection, xid):
                reason = f"branch {xid.hex()} is not known here"
                raise DecisionRefused(gtrid=gtrid.hex(), reason=reason)
        try:
            return decision_requests.decide(self._state, connection, gtrid, participants, xids, fx)
        finally:
            self._not_ended(xids)

    def end_global(self, connection: int, gtrid: bytes, now_ms: int, fx: Effects) -> None:
        """It ends without a decision."""
        self._state.at(now_ms)
        if decision_requests.end(self._state, connection, gtrid):
            association.abandon(self._state, gtrid, Return.FAILED, fx)

    def ask(self, gtrid: bytes, fx: Effects) -> Plain:
        """What became of it."""
        return decision_requests.ask(self._state, gtrid, fx)

    def note(self, gtrid: bytes, participants: bytes, now_ms: int, fx: Effects) -> None:
        """What its decision says of its participants from now on."""
        self._state.at(now_ms)
        decision_requests.check_may_change(gtrid)
        decision_requests.note(self._state, gtrid, participants, fx)

    def forget_decision(self, gtrid: bytes, fx: Effects) -> None:
        """Its decision is not needed any more."""
        decision_requests.check_may_change(gtrid)
        decision_requests.forget(self._state, gtrid, fx)

    def decisions(self, after: int, count_max: int, fx: Effects) -> Plain:
        """A page of the decisions."""
        return decision_requests.page(self._state, after, count_max, fx)

    def active_some(self, connection: int, asked: object) -> bool:
        """Before active(): a slice of the list for this request of a connection; whether there is
        more."""
        found = self._active.get(connection)
        if found is None or found.asked is not asked:
            found = _ActiveListed(asked, decision_requests.active(self._state), [])
            self._active[connection] = found
        some = list(islice(found.rest, LISTED_AT_ONCE))
        found.rows.extend(some)
        return len(some) == LISTED_AT_ONCE

    def active(self, connection: int) -> list[list[Any]]:
        """Global transactions that are neither decided nor over, as active_some() has found
        them."""
        return self._active.pop(connection).rows

    def connection_ended(self, connection: int) -> None:
        """Nobody waits for its list any more."""
        self._active.pop(connection, None)

    # the log's old segments

    def kept(self) -> list[list[Key]]:
        """What the log has of branches and decisions."""
        return retained_state.kept(self._state)

    def restate(self, keys: list[Key], fx: Effects) -> None:
        """Tell the log again what is still there of these."""
        retained_state.restate(self._state, keys, fx)


def _gtrid_of(xid: bytes) -> bytes:
    return gtrid_of(xid) if _is_xid(xid) else b""


def _is_xid(xid: bytes) -> bool:
    """Whether these are a format id, two lengths, and as many bytes."""
    if len(xid) <= XID_HEAD_BYTES or xid[0] & FORMAT_ID_SIGN:
        return False
    gtrid, bqual = xid[4], xid[5]
    is_sized = 0 < gtrid <= XID_PART_BYTES_MAX and bqual <= XID_PART_BYTES_MAX
    return is_sized and len(xid) == XID_HEAD_BYTES + gtrid + bqual
