"""Work: the branches of one global transaction in this process, and what they are doing."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from hms.client.core.link import Link
from hms.errors.catalogue import (
    TransactionRolledBack,
    TxOutside,
    TxProtocolError,
    TxTransient,
    XaError,
)
from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.tx.codes import TransactionState
from tpmon.tx.decision_log import DecisionLog
from tpmon.tx.participant_steps import Branch, Tell, about
from tpmon.xa import decisions
from tpmon.xa.resource import ResourceManager, check

__all__ = ["Place", "Work"]


class Place(Protocol):
    """Where a transaction lives: the node's log, and the resource managers of this process."""

    @property
    def log(self) -> DecisionLog:
        """The node's."""

    def resource(self, name: str) -> ResourceManager:
        """The resource manager of that name; ResourceUnknown, ResourceUnavailable."""

    @property
    def link(self) -> Link:
        """That of the connection that the transactions begin on."""

    def working(self, name: str) -> ResourceManager:
        """The same to work with: for "hms" the XA session of this thread."""

    def usable(self, resource: Any) -> ResourceManager:
        """The resource manager of an XA session, or what is one already, for threads."""

    def is_of_the_log(self, rm: ResourceManager) -> bool:
        """Whether its branches are committed by the record of the decision itself."""


class Work:
    """See the module. timeout_s 0: none; on_step is called at every step; tell with what happened,
    and at which branch, where somebody traces."""

    def __init__(
        self,
        place: Place,
        gtrid: bytes,
        timeout_s: float,
        on_step: Callable[[str], None] | None,
        tell: Tell | None = None,
    ) -> None:
        self.gtrid = gtrid
        self.timeout_s = timeout_s
        self.is_ended = False
        self._place = place
        self._deadline = monotonic() + timeout_s if timeout_s else None
        self._veto = ""
        self._branches: dict[int, Branch] = {}
        self._suspended: list[Branch] = []
        self._has_worked = False
        """Its end has begun: nobody joins any more, in another thread neither."""
        self._on_step, self._tell = on_step or (lambda _: None), tell
        self._lock = threading.Lock()

    @property
    def xid(self) -> Xid:
        """Its name."""
        return Xid(decisions.FORMAT_ID, self.gtrid)

    @property
    def state(self) -> TransactionState:
        """What can become of it."""
        if self.is_ended:
            return TransactionState.NOT_ACTIVE
        if self._deadline is not None and monotonic() >= self._deadline:
            return TransactionState.TIMEOUT_ROLLBACK_ONLY
        return TransactionState.ROLLBACK_ONLY if self._veto else TransactionState.ACTIVE

    @property
    def time_left_s(self) -> float | None:
        """Until it can only be rolled back; None for no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def set_rollback_only(self, reason: str = "the application wants it") -> None:
        """It can only be rolled back from now on."""
        self._veto = self._veto or reason

    # ---- who takes part

    def rm(self, name: str) -> Any:
        """The connection to the resource manager of that name, with its work in this transaction.

        ResourceUnknown, ResourceUnavailable, TxTransient, TxOutside, XaError.
        """
        rm = self._place.working(name)
        return rm.connection(self.enlist(rm))

    def enlist(self, resource: Any) -> Xid:
        """Let a resource manager, or an XA session, take part; again is no error. The branch."""
        rm = self._place.usable(resource)
        with self._lock:
            self._check_open()
            if self._has_worked:
                raise TxProtocolError(what="the transaction", detail="it is about to end")
            known = self._branches.get(id(rm))
            if known is not None:
                return known.xid
            return self._begin_branch(rm).xid

    def _begin_branch(self, rm: ResourceManager) -> Branch:
        if rm.is_last_resource and any(b.is_last for b in self._branches.values()):
            detail = f"{rm.name} cannot prepare, and neither can one that takes part already"
            raise TxProtocolError(what="enlist", detail=detail)
        is_of_the_log = self._place.is_of_the_log(rm)
        if hasattr(rm, "node_uid") and not is_of_the_log:
            detail = "the session works at another node, whose branches this node cannot recover"
            raise TxProtocolError(what="enlist", detail=f"{detail}: give it a transaction there")
        xid = decisions.xid_of(self.gtrid, decisions.new_bqual(rm.name))
        if hasattr(rm, "timeout_s"):
            rm.timeout_s = self.time_left_s or 0
        self._on_step("before start")
        code = rm.xa_start(xid)
        self._on_step("after start")
        if code == xa.XAER_OUTSIDE:
            raise TxOutside(what="enlist", resource=rm.name)
        if code in {xa.XAER_RMFAIL, xa.XA_RETRY}:
            raise TxTransient(what=f"work in {rm.name}", detail=rm.reason)
        check(rm, "xa_start", code, xid)
        branch = Branch(rm.name, xid, rm, is_of_the_log=is_of_the_log)
        self._branches[id(rm)] = branch
        if self._tell is not None:
            self._tell("start", **about(branch))
        return branch

    def _check_open(self) -> None:
        if self.is_ended:
            raise TxProtocolError(what="the transaction", detail="it has ended")
        if self.state is TransactionState.TIMEOUT_ROLLBACK_ONLY:
            raise TransactionRolledBack(reason=f"it took longer than {self.timeout_s:g} s")
        if self._suspended:
            raise TxProtocolError(what="the transaction", detail="it is suspended")

    def _check_ready(self) -> None:
        self._check_open()
        if self._veto:
            raise TransactionRolledBack(reason=self._veto)

    # ---- suspend and resume

    def suspend(self) -> None:
        """Its resource managers wait; the thread may do something else."""
        with self._lock:
            self._check_open()
            for branch in self._branches.values():
                assert branch.rm is not None
                code = branch.rm.xa_end(branch.xid, flags=xa.TMSUSPEND)
                check(branch.rm, "xa_end", code, branch.xid)
            self._suspended = list(self._branches.values())

    def resume(self) -> None:
        """They go on."""
        with self._lock:
            for branch in self._suspended:
                assert branch.rm is not None
                code = branch.rm.xa_start(branch.xid, flags=xa.TMRESUME)
                check(branch.rm, "xa_start", code, branch.xid)
            self._suspended = []

    # ---- its end

    def _end_work(self, flags: int = xa.TMSUCCESS) -> None:
        """No participant works any more; XaError when one has failed."""
        failed: XaError | None = None
        with self._lock:
            self._has_worked = True
        for branch in self._branches.values():
            assert branch.rm is not None
            self._on_step("before end")
            code = branch.rm.xa_end(branch.xid, flags=flags)
            self._on_step("after end")
            try:
                check(branch.rm, "xa_end", code, branch.xid)
            except XaError as error:
                failed = failed or error
        if failed is not None and flags == xa.TMSUCCESS:
            raise failed
