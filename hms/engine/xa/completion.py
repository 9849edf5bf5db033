"""Completion: a branch votes, and is committed or rolled back (xa_prepare … xa_recover).

A vote is durable before it is told (P1): the PREPARED record has all that the branch sent and
received. The commit's record has the messages again, as that of a local transaction has them, so
nobody who reads the log has to look back for the vote.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hms.engine.effects import Effects
from hms.engine.flow.limits import obstacle_to_commit
from hms.engine.flow.overflow_policy import make_room
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.queue.dispatch import dispatch
from hms.engine.queue.queue_send import check_effect, transaction_bytes
from hms.engine.queue.settlement import Return
from hms.engine.session.session_objects import Producer, Work
from hms.engine.session.transactions import end_without_effect, take_effect
from hms.engine.state import State
from hms.engine.xa.branch import Branch, BranchState, Call, Ending
from hms.engine.xa.branch_records import Outcome, ended_record, prepared_record, stand_in
from hms.engine.xa.xa_codes import DONE, UNKNOWN, Answer, Code
from hms.errors.catalogue import NodeFull, TransactionTooLong
from hms.errors.tree import HmsError
from hms.records import Encoded, Record, group

PAGE_MAX = 1000


class Effect(NamedTuple):
    """What a commit brings: its records, which belong together, and the places to dispatch."""

    records: list[Record | Encoded]
    touched: list[Queue | Subscription]


def prepare(state: State, xid: bytes, fx: Effects, *, is_again: bool = False) -> Answer:
    """A branch votes: OK, RDONLY when it did nothing and has ended, or an RB code. is_again: the
    answer to the first request was lost, so it may have voted already."""
    branch = state.branches.by_xid.get(xid)
    if is_again and branch is not None and branch.state is BranchState.PREPARED:
        fx.must_wait = True
        return DONE
    refusal = _refusal(branch, Call.PREPARE)
    if branch is None or refusal is not None:
        return refusal or DONE
    fx.must_wait = True
    if branch.state is BranchState.ROLLBACK_ONLY:
        return _end_rolled_back(state, branch)
    if not branch.work.is_any:
        state.branches.forget(branch, Ending.READ_ONLY)
        return Answer(Code.RDONLY)
    return _vote(state, branch, fx)


def _vote(state: State, branch: Branch, fx: Effects) -> Answer:
    """Promise to commit what fits into a record, into memory until then, and where it goes to."""
    work, settings = branch.work, state.settings
    size, limit = transaction_bytes(state, work), settings.transaction_bytes_max
    too_large = _too_large(size, limit)
    if too_large:
        return _refuse(state, branch, Code.RBOTHER, too_large, fx)
    obstacle = obstacle_of(state, work)
    if not obstacle and state.resident_bytes + size > settings.memory_bytes_max:
        obstacle = f"its {size} bytes do not fit into max_memory_bytes beside what waits"
    if obstacle:
        return _refuse(state, branch, Code.RBTRANSIENT, obstacle, fx)
    branch.state, branch.prepared_at_ms = BranchState.PREPARED, state.now_ms
    branch.serial, branch.owner = state.branches.next_serial, 0
    state.branches.hold(branch, size)
    fx.records.append(prepared_record(branch))
    return DONE


def _refusal(branch: Branch | None, call: Call) -> Answer | None:
    """Why the branch may not do this; None when it may."""
    if branch is None:
        return UNKNOWN
    code = branch.may(call)
    if code is Code.OK:
        return None
    working = len(branch.sessions) + len(branch.suspended)
    detail = f", {working} sessions work in it" if working else ""
    return Answer(code, f"the branch is {branch.state.value}{detail}")


def _end_rolled_back(state: State, branch: Branch) -> Answer:
    state.branches.forget(branch, Ending.ROLLED_BACK)
    return Answer(branch.why, "the branch was rolled back before")


def obstacle_of(state: State, work: Work) -> str:
    """A limit or a pause at one of the destinations, in words. Only before the vote: what was
    promised is kept, though others may have filled the place since."""
    if not state.is_guarded:
        return ""
    try:
        found = obstacle_to_commit(state, work)
    except HmsError as error:
        return str(error)
    return str(found.refusal) if found is not None else ""


def _refuse(state: State, branch: Branch, code: Code, detail: str, fx: Effects) -> Answer:
    """The branch cannot be prepared, so it is rolled back."""
    state.branches.forget(branch, Ending.ROLLED_BACK)
    end_without_effect(state, branch.work, Return.FAILED, fx)
    return Answer(code, detail)


def commit(state: State, xid: bytes, fx: Effects, *, is_one_phase: bool, is_again: bool) -> Answer:
    """Make a branch's work effective. is_again: the answer to the first request was lost, so a
    branch that is not there may be one that was committed then."""
    branch = state.branches.by_xid.get(xid)
    if branch is None and is_again and xid in state.branches.committed:
        fx.must_wait = True
        return DONE
    refusal = _refusal(branch, Call.ONE_PHASE if is_one_phase else Call.COMMIT)
    if branch is None or refusal is not None:
        return refusal or DONE
    fx.must_wait = True
    if branch.state is BranchState.ROLLBACK_ONLY:
        return _end_rolled_back(state, branch)
    size, limit = transaction_bytes(state, branch.work), state.settings.transaction_bytes_max
    too_large = _too_large(size, limit) or _too_much(state, branch.work)
    if branch.is_recorded and too_large:  # more subscribe than did when it voted
        return Answer(Code.RETRY, too_large)
    obstacle = "" if branch.is_recorded else too_large or obstacle_of(state, branch.work)
    if obstacle:
        return _refuse(state, branch, Code.RBOTHER if too_large else Code.RBTRANSIENT, obstacle, fx)
    finish(state, [take_all(state, branch, fx)], fx)
    return DONE


def _too_large(size: int, limit: int) -> str:
    return f"it holds {size} bytes, max_transaction_bytes is {limit}" if size > limit else ""


def _too_much(state: State, work: Work) -> str:
    try:
        check_effect(state, work)
    except (TransactionTooLong, NodeFull) as error:
        return str(error)
    return ""


def take_all(state: State, branch: Branch, fx: Effects) -> Effect:
    """A branch's work takes effect, and the branch is gone; its records with their end first."""
    has_work = branch.work.is_any or branch.is_recorded
    records, touched = effect_of(state, branch, fx)
    state.branches.forget(branch, Ending.COMMITTED)
    state.branches.remember(branch.xid)
    if has_work:
        records.insert(0, ended_record(state, branch.xid, Outcome.COMMITTED, events=0))
    return Effect(records, touched)


def effect_of(state: State, branch: Branch, fx: Effects) -> Effect:
    """A branch's work takes effect. Its producers may be closed, or of another life of the node."""
    producers: dict[Producer, Producer] = {}
    for batch in branch.work.sends:
        producer = batch.producer
        found = producers.get(producer)
        if found is None:
            found = producers[producer] = stand_in(state, producer)
        batch.producer = found
    return Effect(*take_effect(state, branch.work, fx))


def finish(
    state: State, effects: Sequence[Effect], fx: Effects, first: Sequence[Record] = ()
) -> None:
    """Write what belongs together as one record, then deliver; first: what stands before it."""
    records = [*first, *(record for effect in effects for record in effect.records)]
    if records:
        fx.records.append(group(0, 0, 0, state.now_ms, records))
    touched = list({id(p): p for effect in effects for p in effect.touched}.values())
    for place in touched:
        dispatch(state, place, fx)
    if state.is_guarded:
        make_room(state, touched, fx)


def rollback(state: State, xid: bytes, fx: Effects) -> Answer:
    """Undo a branch's work."""
    branch = state.branches.by_xid.get(xid)
    refusal = _refusal(branch, Call.ROLLBACK)
    if branch is None or refusal is not None:
        return refusal or DONE
    fx.must_wait = True
    if branch.is_recorded:
        fx.records.append(ended_record(state, xid, Outcome.ROLLED_BACK))
    state.branches.forget(branch, Ending.ROLLED_BACK)
    end_without_effect(state, branch.work, Return.FAILED, fx)
    return DONE


def forget(state: State, xid: bytes, fx: Effects) -> Answer:
    """The transaction manager knows of a heuristic outcome: so need nobody else."""
    branch = state.branches.by_xid.get(xid)
    refusal = _refusal(branch, Call.FORGET)
    if branch is None or refusal is not None:
        return refusal or DONE
    fx.must_wait = True
    fx.records.append(ended_record(state, xid, Outcome.FORGOTTEN))
    state.branches.forget(branch)
    return DONE


def recover(state: State, after: int, count_max: int, fx: Effects) -> dict[str, object]:
    """A page of the branches in doubt and of heuristic outcomes, in the order of their votes."""
    fx.must_wait = True
    found = [b for b in state.branches.in_doubt() if b.serial > after]
    page = found[: max(1, min(count_max, PAGE_MAX))]
    return {
        "xids": [branch.xid for branch in page],
        "position": page[-1].serial if page else after,
        "has_more": len(found) > len(page),
    }
