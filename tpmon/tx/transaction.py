"""Transaction: one global transaction as the process sees that began it, or that was called in it.

Resource managers join by themselves when they are first used. Branches that a called service has
left prepared come back with its reply. The one who began it ends it; a service only prepares its
part.
"""

import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Protocol

import msgspec

from field_buffer.catalogue import TransactionRolledBack, TxProtocolError, XaError
from field_buffer.errors import HmsError
from tpmon.asked import OnLoss, Pending
from tpmon.link import Link
from tpmon.protocol.transactions import BeginGlobal
from tpmon.tx.codes import TransactionState
from tpmon.tx.coordinator import Branch, Coordinator, Outcome
from tpmon.tx.log import DecisionLog
from tpmon.xa import constants as xa
from tpmon.xa import decisions
from tpmon.xa.decisions import Participant
from tpmon.xa.resource import ResourceManager, check
from tpmon.xa.xid import Xid

__all__ = ["Place", "Transaction"]


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


class Transaction:
    """See the module. timeout_s 0: none. gtrid: that of the caller, in a service.

    on_step is told of every step of its end, for tests that let the process die there.
    """

    def __init__(
        self,
        place: Place,
        timeout_s: float = 0,
        gtrid: bytes = b"",
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        self._place = place
        self._is_initiator = not gtrid
        self.gtrid = gtrid or decisions.new_gtrid(place.log.node_uid)
        self.timeout_s = timeout_s
        self.is_ended = False
        self._deadline = monotonic() + timeout_s if timeout_s else None
        self._veto = ""
        self._is_registered = not self._is_initiator
        self._branches: dict[int, Branch] = {}
        self._remote: list[Participant] = []
        self._calls = 0
        self._suspended: list[Branch] = []
        self._on_step = on_step or (lambda _: None)
        self._coordinator = Coordinator(place.log, self.gtrid, on_step)
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
        """Until it can only be rolled back; None for ever."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def set_rollback_only(self, reason: str = "the application wants it") -> None:
        """It can only be rolled back from now on."""
        self._veto = self._veto or reason

    # ---- who takes part

    def rm(self, name: str) -> Any:
        """The connection to the resource manager of that name, with its work in this transaction.

        ResourceUnknown, ResourceUnavailable, XaError, TransactionRolledBack.
        """
        rm = self._place.working(name)
        return rm.connection(self.enlist(rm))

    def enlist_all(self, resources: Iterable[Any]) -> None:
        """Let all of them take part, or end it."""
        try:
            for resource in resources:
                self.enlist(resource)
        except HmsError:
            self.rollback()
            raise

    def enlist(self, resource: Any) -> Xid:
        """Let a resource manager, or an XA session, take part; again is no error. The branch."""
        rm = self._place.usable(resource)
        with self._lock:
            self._check_open()
            known = self._branches.get(id(rm))
            if known is not None:
                return known.xid
            return self._begin_branch(rm).xid

    def _begin_branch(self, rm: ResourceManager) -> Branch:
        if rm.is_last_resource and any(b.is_last for b in self._branches.values()):
            detail = f"{rm.name} cannot prepare, and neither can one that takes part already"
            raise TxProtocolError(what="enlist", detail=detail)
        xid = decisions.xid_of(self.gtrid, decisions.new_bqual(rm.name))
        if hasattr(rm, "timeout_s"):
            rm.timeout_s = self.time_left_s or 0
        self._on_step("before start")
        code = rm.xa_start(xid)
        self._on_step("after start")
        check(rm, "xa_start", code, xid)
        branch = Branch(rm.name, xid, rm, is_of_the_log=self._place.is_of_the_log(rm))
        self._branches[id(rm)] = branch
        return branch

    def _check_open(self) -> None:
        if self.is_ended:
            raise TxProtocolError(what="the transaction", detail="it has ended")
        if self.state is TransactionState.TIMEOUT_ROLLBACK_ONLY:
            raise TransactionRolledBack(reason=f"it took longer than {self.timeout_s:g} s")
        if self._suspended:
            raise TxProtocolError(what="the transaction", detail="it is suspended")

    # ---- services

    def carry(self, link: Link) -> bytes:
        """Its name, to go with a call over that link, whose lock is held.

        The node hears of the transaction before it hears of the call, so nobody has to wait.
        TxProtocolError over another connection than the one that began it.
        """
        self._check_open()
        if not self._is_registered:
            if link is not self._place.link:
                detail = "a service is called in it by the connection that began it only"
                raise TxProtocolError(what="the transaction", detail=detail)
            link.request(self._log_request(), Pending("BeginGlobal", OnLoss.DONE))
            self._is_registered = True
        self._calls += 1
        return self.gtrid

    def answered(self, branches: Iterable[bytes], veto: str = "") -> None:
        """The reply to such a call: what it left prepared, and whether it says no."""
        self._calls -= 1
        try:
            for one in branches:
                self._remote += decisions.decode(one)
        except msgspec.MsgspecError:
            self.set_rollback_only("the reply of a service cannot be read")
        if veto:
            self.set_rollback_only(veto)

    def _register(self) -> None:
        if not self._is_registered:
            request = self._log_request()
            self._place.log.begin(request.gtrid, request.timeout_ms)
            self._is_registered = True

    def _log_request(self) -> BeginGlobal:
        left_s = self.time_left_s
        return BeginGlobal(self.gtrid, 0 if left_s is None else max(1, round(left_s * 1000)))

    def prepare_part(self) -> list[Participant]:
        """In a service, at its end: prepare what was done here, for the caller to decide.

        TransactionRolledBack, with all of it rolled back, when it cannot be.
        """
        try:
            self._check_ready()
            self._end_work()
        except HmsError:
            self.roll_back_part()
            raise
        branches = list(self._branches.values())
        done = self._coordinator.prepare_part(branches)
        self.is_ended = True
        for branch in done:
            if branch.rm is not None and branch.is_prepared:
                branch.rm.detach(branch.xid)
        return [*(Participant(b.resource, b.xid.bqual) for b in done), *self._remote]

    def roll_back_part(self) -> None:
        """In a service that failed: roll back what was done here."""
        self._end_work(xa.TMFAIL)
        self.is_ended = True
        self._coordinator.roll_back_part(list(self._branches.values()))

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

    def commit(self, *, is_waited: bool = True) -> Outcome:
        """Commit it; is_waited: return when it is done everywhere, else when it is decided.

        TransactionRolledBack, TxMixed, TxHazard, TxFatal; TxProtocolError changes nothing.
        """
        self._check_initiator("commit")
        try:
            self._check_ready()
            self._end_work()
        except HmsError as error:
            self._roll_back_for(error)
        self.is_ended = True
        branches = [*self._branches.values(), *map(self._of_service, self._remote)]
        return self._coordinator.commit(branches, self._register, is_waited=is_waited)

    def rollback(self) -> None:
        """Roll it back; TxHeuristicCommit, TxMixed, TxHazard."""
        self._check_initiator("rollback", may_call=True)
        self._end_work(xa.TMFAIL)
        self.is_ended = True
        branches = [*self._branches.values(), *map(self._of_service, self._remote)]
        self._coordinator.roll_back(branches)

    def _roll_back_for(self, error: HmsError) -> None:
        reason = error.fields.get("reason", str(error))
        self.rollback()
        raise TransactionRolledBack(reason=reason) from error

    def _check_initiator(self, what: str, *, may_call: bool = False) -> None:
        if self.is_ended:
            raise TxProtocolError(what=what, detail="the transaction has ended")
        if not self._is_initiator:
            detail = "only the one who began the transaction may end it"
            raise TxProtocolError(what=what, detail=detail)
        if self._calls and not may_call:
            detail = f"{self._calls} calls of services have not been answered"
            raise TxProtocolError(what=what, detail=detail)

    def _check_ready(self) -> None:
        self._check_open()
        if self._veto:
            raise TransactionRolledBack(reason=self._veto)

    def _end_work(self, flags: int = xa.TMSUCCESS) -> None:
        """No participant works any more; XaError when one has failed."""
        failed: XaError | None = None
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

    def _of_service(self, participant: Participant) -> Branch:
        """A branch that a service left; recovery finishes those that are not reached from here."""
        xid = decisions.xid_of(self.gtrid, participant.bqual)
        try:
            rm: ResourceManager | None = self._place.resource(participant.resource)
        except HmsError:
            rm = None
        is_of_the_log = rm is not None and self._place.is_of_the_log(rm)
        return Branch(participant.resource, xid, rm, not is_of_the_log, is_of_the_log)
