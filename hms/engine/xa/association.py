"""Association: which session works in which branch (xa_start, xa_end).

While a session works in a branch, its sends and acknowledgements are the branch's, together with
those of every other session that has joined it, of this or another connection.
"""

from hms.engine.effects import Effects
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.settlement import Return
from hms.engine.session.session_objects import Consumer, Session, Work
from hms.engine.session.transactions import end_without_effect, undo
from hms.engine.state import State
from hms.engine.xa.branch import BRANCHES_MAX, Branch, BranchState, Call, Ending, gtrid_of
from hms.engine.xa.xa_codes import (
    DONE,
    TMFAIL,
    TMJOIN,
    TMRESUME,
    TMSUCCESS,
    TMSUSPEND,
    Answer,
    Code,
)

TIMEOUT_MS_MAX = 1 << 40


def start(state: State, session: Session, xid: bytes, flags: int, timeout_ms: int) -> Answer:
    """A session begins to work in a branch: a new one, one that exists (TMJOIN), or one that it has
    suspended (TMRESUME)."""
    if flags not in (0, TMJOIN, TMRESUME) or not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        return Answer(Code.INVAL, f"xa_start with flags {flags:#x}, timeout {timeout_ms} ms")
    if not session.is_xa:
        return Answer(Code.PROTO, "the session is no XA session")
    if session.xid:
        return Answer(Code.PROTO, "the session works in a branch already: xa_end() comes first")
    branch = state.branches.by_xid.get(xid)
    if flags == 0:
        return _begin(state, session, xid, branch, timeout_ms)
    if branch is None:
        return Answer(Code.NOTA, "there is no such branch")
    return _resume(state, session, branch) if flags == TMRESUME else _join(session, branch)


def _begin(
    state: State, session: Session, xid: bytes, known: Branch | None, timeout_ms: int
) -> Answer:
    if known is not None:
        return Answer(Code.DUPID, f"the branch exists and is {known.state.value}")
    if gtrid_of(xid) in state.decisions.given_up:
        return Answer(Code.RBROLLBACK, "its transaction has ended without a decision")
    if len(state.branches.by_xid) >= BRANCHES_MAX:
        return Answer(Code.RMERR, f"{BRANCHES_MAX} branches exist, no more are begun")
    deadline_ms = state.now_ms + timeout_ms if timeout_ms else 0
    active = state.decisions.active.get(gtrid_of(xid))
    if active is not None and active.deadline_ms:  # nobody decides for it after that
        deadline_ms = min(deadline_ms or active.deadline_ms, active.deadline_ms)
    branch = Branch(xid, session.connection.number, state.now_ms, deadline_ms)
    state.branches.begin(branch)
    _attach(session, branch)
    return DONE


def _join(session: Session, branch: Branch) -> Answer:
    code = branch.may(Call.JOIN)
    if code is not Code.OK:
        return Answer(code, f"the branch is {branch.state.value}")
    if session in branch.suspended:
        return Answer(Code.PROTO, "the session has suspended this branch: TMRESUME it")
    _attach(session, branch)
    return DONE


def _resume(state: State, session: Session, branch: Branch) -> Answer:
    if session not in branch.suspended:
        return Answer(Code.PROTO, "the session has not suspended this branch")
    del branch.suspended[session]
    if branch.state is BranchState.ROLLBACK_ONLY:
        _forget_orphan(state, branch)
        return Answer(branch.why, "the branch can only be rolled back")
    _attach(session, branch)
    return DONE


def _attach(session: Session, branch: Branch) -> None:
    branch.sessions[session] = None
    branch.uids.add(session.connection.uid)
    branch.state = BranchState.ACTIVE
    session.xid, session.work, session.is_transacted = branch.xid, branch.work, True


def _detach(session: Session) -> None:
    session.xid, session.work, session.is_transacted = b"", Work(), False


def end(state: State, session: Session, xid: bytes, flags: int, fx: Effects) -> Answer:
    """A session's work in a branch is done (TMSUCCESS), or interrupted (TMSUSPEND); TMFAIL: the
    branch can only be rolled back. Also of a suspended branch, whose work then ends there."""
    if flags not in (TMSUCCESS, TMFAIL, TMSUSPEND):
        return Answer(Code.INVAL, f"xa_end with flags {flags:#x}")
    branch = state.branches.by_xid.get(xid)
    if branch is None:
        return _end_lost(session, xid)
    is_suspended = session in branch.suspended
    if session.xid != xid and not is_suspended:
        return Answer(Code.PROTO, "the session does not work in this branch")
    if is_suspended and flags == TMSUSPEND:
        return Answer(Code.PROTO, "the session has suspended this branch already")
    _part(session, branch)
    if flags == TMFAIL:
        give_up(state, branch, Code.RBROLLBACK, Return.FAILED, fx)
    elif flags == TMSUSPEND and branch.state is not BranchState.ROLLBACK_ONLY:
        branch.suspended[session] = None
    if branch.state is BranchState.ACTIVE and not branch.is_attached:
        branch.state = BranchState.IDLE
    _forget_orphan(state, branch)
    if branch.state is BranchState.ROLLBACK_ONLY and flags != TMFAIL:
        return Answer(branch.why, "the branch can only be rolled back")
    return DONE


def _part(session: Session, branch: Branch) -> None:
    branch.sessions.pop(session, None)
    branch.suspended.pop(session, None)
    if session.xid == branch.xid:
        _detach(session)


def _end_lost(session: Session, xid: bytes) -> Answer:
    """A branch that went with the connection that its session was opened again after."""
    if session.xid != xid:
        return Answer(Code.NOTA, "there is no such branch")
    _detach(session)
    return Answer(Code.RBCOMMFAIL, "the branch was lost with the connection")


def attach_lost(session: Session, xid: bytes) -> None:
    """A session is opened again by a client that believes it in this branch, which went with the
    lost connection: what it sends until xa_end must not be taken as work of no branch."""
    session.xid, session.work, session.is_transacted = xid, Work(is_over=True), True


def leave(state: State, session: Session, how: Return, fx: Effects) -> list[Queue | Subscription]:
    """A session closes: its open transaction ends without effect, and so does the branch in which
    it works or has suspended its work. The places that want a dispatch."""
    if not session.is_xa:
        return undo(state, session.work, how, fx)
    for branch in [
        b for b in state.branches.live.values() if session in (*b.sessions, *b.suspended)
    ]:
        _part(session, branch)
        give_up(state, branch, Code.RBCOMMFAIL, how, fx)
        _forget_orphan(state, branch)
    session.is_transacted = False
    return []


def deprived(state: State, consumer: Consumer, fx: Effects) -> None:
    """A consumer is about to be closed by the node: what was received by it in a branch in which
    its session works, or has suspended its work, is not known before xa_end. The branch can only be
    rolled back; one that is ended or prepared keeps what it has."""
    session = consumer.session
    for branch in list(state.branches.live.values()):
        is_attached = session in branch.sessions or session in branch.suspended
        if is_attached and (consumer.out or branch.work.is_any):
            give_up(state, branch, Code.RBROLLBACK, Return.LOST, fx)


def connection_ended(state: State, number: int, fx: Effects) -> None:
    """What a connection began and did not prepare or decide is rolled back (F-H4)."""
    undecided = state.decisions.connection_ended(number)
    for branch in [b for b in state.branches.live.values() if b.owner == number]:
        give_up(state, branch, Code.RBCOMMFAIL, Return.LOST, fx)
        branch.owner = 0
        _forget_orphan(state, branch)
    for gtrid in undecided:
        abandon(state, gtrid, Return.LOST, fx)


def abandon(state: State, gtrid: bytes, how: Return, fx: Effects) -> None:
    """A global transaction has ended without a decision: what services have left in it, or still do
    for it, nobody else would end before their connections do."""
    for branch in list(state.branches.live_of.get(gtrid, {}).values()):
        give_up(state, branch, Code.RBROLLBACK, how, fx)
        branch.owner = 0
        _forget_orphan(state, branch)


def _forget_orphan(state: State, branch: Branch) -> None:
    """A branch whose connection is gone is known only as long as others work in it."""
    if not branch.owner and not branch.is_attached:
        state.branches.forget(branch, Ending.ROLLED_BACK)


def give_up(state: State, branch: Branch, why: Code, how: Return, fx: Effects) -> None:
    """Undo a branch's work; it can only be rolled back from now on."""
    if branch.state is BranchState.ROLLBACK_ONLY:
        return
    branch.state, branch.why = BranchState.ROLLBACK_ONLY, why
    branch.work.is_over = True
    end_without_effect(state, branch.work, how, fx)


def expire(state: State, fx: Effects) -> None:
    """Roll back the branches whose time is over; prepared ones wait for their outcome."""
    branches = state.branches
    if branches.soonest_ms is None or branches.soonest_ms > state.now_ms:
        return
    left: list[int] = []
    for branch in [b for b in branches.live.values() if b.deadline_ms]:
        if branch.deadline_ms <= state.now_ms:
            branch.deadline_ms = 0
            give_up(state, branch, Code.RBTIMEOUT, Return.FAILED, fx)
        else:
            left.append(branch.deadline_ms)
    branches.soonest_ms = min(left, default=None)
