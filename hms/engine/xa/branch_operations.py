"""Branch operations: what an operator sees of branches, and the outcome that one may order.

An operator who ends a prepared branch does what only its transaction manager should (a heuristic
decision): it is recorded, the transaction manager hears of it when it comes with its own, and it is
kept until that one, or an operator, forgets it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hms.engine.effects import Effects
from hms.engine.queue.queue_send import check_effect, transaction_bytes
from hms.engine.queue.settlement import Return
from hms.engine.session.transactions import by_place, end_without_effect
from hms.engine.state import State
from hms.engine.xa.branch import Branch, BranchState, Ending
from hms.engine.xa.branch_records import heuristic_record
from hms.engine.xa.completion import effect_of, finish, forget
from hms.engine.xa.decisions import IDENTITY
from hms.engine.xa.xa_codes import Code
from hms.errors.catalogue import (
    BranchNotFound,
    BranchStateWrong,
    InvalidArgument,
    NodeFull,
    TransactionTooLong,
)
from hms.wire import operations as ops


def branch_rows(state: State, _: ops.Nothing) -> Iterator[dict[str, Any]]:
    """All branches, those in doubt first, as long as they are there."""
    for branch in [*state.branches.in_doubt(), *state.branches.live.values()]:
        if state.branches.by_xid.get(branch.xid) is branch:
            yield describe_branch(state, branch)


def count_in_doubt(state: State) -> dict[str, Any]:
    """For the node's status: what waits for a transaction manager, and what was decided for it."""
    in_doubt = state.branches.in_doubt()
    prepared = [b for b in in_doubt if b.state is BranchState.PREPARED]
    return {
        "branches_in_doubt": len(prepared),
        "branches_heuristic": len(in_doubt) - len(prepared),
        "decisions": len(state.decisions.decided) - (IDENTITY in state.decisions.decided),
    }


def transactions(state: State) -> dict[str, Any]:
    """For metrics: branches by state, and for how long the oldest one has been in doubt."""
    states = dict.fromkeys(BranchState, 0)
    in_doubt, oldest_ms = 0, state.now_ms
    for branch in state.branches.by_xid.values():
        states[branch.state] += 1
        in_doubt += branch.is_recorded
        if branch.state is BranchState.PREPARED:
            oldest_ms = min(oldest_ms, branch.prepared_at_ms)
    return {
        "branches_in_doubt": in_doubt,
        "transactions": {one.value: count for one, count in states.items()},
        "transaction_endings": {one.value: n for one, n in state.branches.endings.items()},
        "in_doubt_oldest_s": (state.now_ms - oldest_ms) / 1000,
    }


def show_branch(state: State, asked: ops.NameBranch, _: Effects) -> dict[str, Any]:
    """One branch, and what it did where."""
    branch = _named(state, asked)
    sends: dict[str, int] = {}
    for batch in branch.work.sends:
        producer = batch.producer
        name = f"{producer.destination.kind}:{producer.topic or producer.destination.name}"
        sends[name] = sends.get(name, 0) + batch.count
    receipts = {f"{p.kind}:{p.name}": len(messages) for p, messages in by_place(branch.work)}
    return describe_branch(state, branch) | {"sends": sends, "receipts": receipts}


def describe_branch(state: State, branch: Branch) -> dict[str, Any]:
    """What a list says of it."""
    since_ms = branch.prepared_at_ms or branch.began_ms
    return {
        "xid": branch.xid.hex(),
        "state": branch.state.value,
        "since_ms": since_ms,
        "age_s": (state.now_ms - since_ms) / 1000,
        "connection": branch.owner,
        "sessions": len(branch.sessions) + len(branch.suspended),
        "sent": sum(batch.count for batch in branch.work.sends),
        "received": len(branch.work.acknowledged),
        "bytes": transaction_bytes(state, branch.work),
    }


def commit_branch(state: State, asked: ops.NameBranch, fx: Effects) -> None:
    """Commit a prepared branch in its transaction manager's stead."""
    branch = prepared_branch(state, asked)
    size, limit = transaction_bytes(state, branch.work), state.settings.transaction_bytes_max
    if size > limit:
        branch.work.unready()
        detail = f"it would take {size} bytes, max_transaction_bytes is {limit}"
        raise _wrong(branch, detail)
    try:
        check_effect(state, branch.work)
    except (NodeFull, TransactionTooLong) as error:
        branch.work.unready()
        raise _wrong(branch, str(error)) from error
    effect = effect_of(state, branch, fx)
    _completed(state, branch, BranchState.COMMITTED)
    finish(state, [effect], fx, first=[heuristic_record(branch, events=0)])


def rollback_branch(state: State, asked: ops.NameBranch, fx: Effects) -> None:
    """Roll a prepared branch back in its transaction manager's stead."""
    branch = prepared_branch(state, asked)
    _completed(state, branch, BranchState.ROLLED_BACK)
    fx.records.append(heuristic_record(branch))
    end_without_effect(state, branch.work, Return.FAILED, fx)


def _completed(state: State, branch: Branch, outcome: BranchState) -> None:
    branch.state = outcome
    state.branches.endings[Ending(outcome.value)] += 1
    state.branches.let_go(branch)


def forget_branch(state: State, asked: ops.NameBranch, fx: Effects) -> None:
    """Drop the record of a heuristic outcome."""
    branch = _named(state, asked)
    if forget(state, branch.xid, fx).code is not Code.OK:
        raise _wrong(branch, "only a heuristic outcome can be forgotten")


def prepared_branch(state: State, asked: ops.NameBranch) -> Branch:
    """The one that an operator may end."""
    branch = _named(state, asked)
    if branch.state is not BranchState.PREPARED:
        raise _wrong(branch, "only a prepared branch waits for a decision")
    return branch


def _named(state: State, asked: ops.NameBranch) -> Branch:
    text = asked.xid
    try:
        xid = bytes.fromhex(text)
    except ValueError as fault:
        raise InvalidArgument(what="xid", detail=f"{text!r} is no packed xid: {fault}") from fault
    branch = state.branches.by_xid.get(xid)
    if branch is None:
        raise BranchNotFound(xid=text)
    return branch


def _wrong(branch: Branch, detail: str) -> BranchStateWrong:
    return BranchStateWrong(xid=branch.xid.hex(), state=branch.state.value, detail=detail)


COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "transaction.show": show_branch,
    "transaction.commit": commit_branch,
    "transaction.rollback": rollback_branch,
    "transaction.forget": forget_branch,
}
