"""What is asked of one participant: its vote, its commit, its rollback."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from hms.errors.catalogue import TxHazard, TxMixed
from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.xa import decisions
from tpmon.xa.decisions import Participant
from tpmon.xa.resource import ResourceManager

__all__ = [
    "Branch",
    "Outcome",
    "Pool",
    "Tell",
    "Vote",
    "about",
    "all_at_once",
    "commit_branch",
    "detach",
    "raise_odd",
    "roll_back",
    "vote",
]

_T = TypeVar("_T")
RETRIES_MAX = 50
RETRY_PAUSE_S = 0.02
THREADS_MAX = 32


class Pool:
    """Threads of this process: a forked child has none of its parent's, and would wait for them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=self._name)

    def submit(self, act: Callable[..., _T], *arguments: object) -> "Future[_T]":
        """Have it done by one of them."""
        return self._threads.submit(act, *arguments)


_pool = Pool("hms-xa")
_STATES = {
    xa.XA_OK: decisions.COMMITTED,
    xa.XA_HEURCOM: decisions.COMMITTED,
    xa.XA_HEURRB: decisions.ROLLED_BACK,
    xa.XA_HEURMIX: decisions.MIXED,
    xa.XA_HEURHAZ: decisions.HAZARD,
    xa.XAER_NOTA: decisions.HAZARD,
}


@dataclass(slots=True)
class Branch:
    """One participant; rm None: it is not reached from here. is_prepared: it has said yes;
    is_of_the_log: its commit is written with the decision, by the node that decides."""

    resource: str
    xid: Xid
    rm: ResourceManager | None = None
    is_prepared: bool = False
    is_of_the_log: bool = False

    @property
    def is_last(self) -> bool:
        """Whether it cannot prepare."""
        return self.rm is not None and self.rm.is_last_resource


class Tell(Protocol):
    """Hears what happens in a transaction."""

    def __call__(self, name: str, **said: str) -> None:
        """begin, start, prepare, decision, commit or rollback; said: of which branch, and how it
        ended."""


def about(branch: Branch) -> dict[str, str]:
    """A branch, as a trace names it."""
    return {"resource": branch.resource, "branch": branch.xid.bqual.hex()}


class Vote(NamedTuple):
    """What a branch said to xa_prepare."""

    branch: Branch
    code: int
    reason: str


class Outcome(NamedTuple):
    """How a commit ended; pending: participants that recovery goes on with."""

    participants: list[Participant]

    @property
    def pending(self) -> list[Participant]:
        """Those that are still to be committed."""
        return [one for one in self.participants if not decisions.is_settled(one)]


def commit_branch(branch: Branch) -> tuple[str, str]:
    """Commit a prepared branch: its state then, and what the resource manager said."""
    rm = branch.rm
    if rm is None:
        return decisions.PREPARED, "it is not reached from the process that decided"
    pause, is_lost = threading.Event(), False
    for attempt in range(RETRIES_MAX):
        code = rm.xa_commit(branch.xid)
        if is_lost and code == xa.XAER_NOTA:
            return decisions.COMMITTED, "its answer was lost"
        is_lost = is_lost or code == xa.XAER_RMFAIL
        if code == xa.XAER_RMFAIL and not attempt:
            continue  # a session may have died while it was not used
        if code != xa.XA_RETRY:
            break
        pause.wait(RETRY_PAUSE_S)
    if code == xa.XA_HEURCOM:
        rm.xa_forget(branch.xid)
    said = "" if code == xa.XA_OK else f"{xa.code_name(code)}: {rm.reason}"
    return _STATES.get(code, decisions.PREPARED), said


def vote(branch: Branch) -> Vote:
    """Ask a branch to prepare."""
    assert branch.rm is not None
    code = branch.rm.xa_prepare(branch.xid)
    return Vote(branch, code, "" if code == xa.XA_OK else branch.rm.reason)


def roll_back(branch: Branch) -> int:
    """Roll a branch back: its code."""
    assert branch.rm is not None
    return branch.rm.xa_rollback(branch.xid)


def detach(branches: Sequence[Branch]) -> None:
    """Let go of branches that others end."""
    for branch in branches:
        if branch.rm is not None:
            branch.rm.detach(branch.xid)


def all_at_once(acts: Sequence[Callable[[], _T]]) -> list[_T]:
    """What all of them return; the first runs here, the others beside it."""
    futures = [_pool.submit(act) for act in acts[1:]]
    own = [acts[0]()] if acts else []
    return own + [future.result() for future in futures]


def raise_odd(gtrid: bytes, done: Sequence[Participant]) -> None:
    """TxMixed or TxHazard when a participant did not do what was decided."""
    odd = [p for p in done if p.state not in {decisions.COMMITTED, decisions.PREPARED}]
    if not odd:
        return
    detail = "; ".join(f"{p.resource}: {p.state} ({p.note})" for p in odd)
    is_hazard = all(p.state == decisions.HAZARD for p in odd)
    raise (TxHazard if is_hazard else TxMixed)(gtrid=decisions.printed(gtrid), detail=detail)
