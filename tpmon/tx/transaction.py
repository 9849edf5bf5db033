"""Transaction: one global transaction as the process sees that began it, or that was called in it.

Resource managers join by themselves when they are first used. Branches that a called service has
left prepared come back with its reply. The one who began it ends it; a service only prepares its
part.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from hms.client.core import current_transaction
from hms.client.core.current_transaction import Then
from hms.client.core.link import Link
from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.catalogue import TransactionRolledBack, TxProtocolError
from hms.errors.tree import HmsError
from hms.wire import xa_constants as xa
from hms.wire.branch_requests import BeginGlobal
from tpmon.tx.branch_work import Place, Work
from tpmon.tx.coordinator import Coordinator
from tpmon.tx.participant_steps import Branch, Outcome, Tell, detach
from tpmon.tx.transactional_calls import CarriedCall
from tpmon.xa import decisions
from tpmon.xa.decisions import Participant
from tpmon.xa.resource import ResourceManager

__all__ = ["Place", "Transaction", "current"]


def current() -> "Transaction | None":
    """The transaction of this thread or task, if it is in one."""
    return cast("Transaction | None", current_transaction.current())


class Transaction(Work):
    """See the module. timeout_s 0: none. gtrid: that of the caller, in a service.

    on_step is called with every step of its end, for tests that let the process die there; tell
    with what a trace has of it.
    """

    def __init__(
        self,
        place: Place,
        timeout_s: float = 0,
        gtrid: bytes = b"",
        on_step: Callable[[str], None] | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._log = place.log
        own = gtrid or decisions.new_gtrid(self._log.node_uid)
        super().__init__(place, own, timeout_s, on_step, tell)
        self._is_initiator = not gtrid
        self._is_registered = not self._is_initiator
        self._registering: Callable[[], object] | None = None
        """Waits for the node's answer that it knows of the transaction."""
        self._remote: list[Participant] = []
        self._calls = 0
        self._coordinator = Coordinator(self._log, own, on_step, tell)
        if tell is not None:
            tell("begin", transaction=decisions.printed(own))

    def enlist_all(self, resources: Iterable[Any]) -> None:
        """Let all of them take part, or end it."""
        try:
            for resource in resources:
                self.enlist(resource)
        except HmsError:
            self.rollback()
            raise

    # ---- services

    def carry(self, link: Link, then: Then) -> tuple[bytes, Then]:
        """Its name, to go with a call over that link, whose lock is held, and who is told the
        answer.

        The node hears of the transaction before it hears of the call, so nobody has to wait.
        TxProtocolError over another connection than the one that began it.
        """
        self._check_open()
        if self._log.log_id != self._place.link.log:
            self.set_rollback_only("the connection goes on at another node")
            raise TransactionRolledBack(reason=self._veto)
        if not self._is_registered:
            if link is not self._place.link:
                detail = "a service is called in it by the connection that began it only"
                raise TxProtocolError(what="the transaction", detail=detail)
            if self._registering is None:
                link.request(self._log_request(), Pending("BeginGlobal", OnLoss.DONE))
            self._is_registered = True
        self._calls += 1
        return self.gtrid, CarriedCall(self.answered, then)

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
            self._begin_registering()()
            self._is_registered = True

    def _begin_registering(self) -> Callable[[], object]:
        if self._registering is None:
            request = self._log_request()
            self._registering = self._log.begin(request.gtrid, request.timeout_ms)
        return self._registering

    def _begin_branch(self, rm: ResourceManager) -> Branch:
        """With a second participant somebody will have to decide: the node's answer comes while
        the transaction works, and its commit has nothing to wait for."""
        if self._branches and not self._is_registered:
            self._begin_registering()
        return super()._begin_branch(rm)

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
        detach(done)
        return [*(Participant(b.resource, b.xid.bqual) for b in done), *self._remote]

    def roll_back_part(self) -> None:
        """In a service that failed: roll back what was done here."""
        self._end_work(xa.TMFAIL)
        self.is_ended = True
        self._coordinator.roll_back_part(list(self._branches.values()))

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
        return self._coordinator.commit(
            branches, self._register, is_waited=is_waited, is_known=self._is_known
        )

    def rollback(self) -> None:
        """Roll it back; TxHeuristicCommit, TxMixed, TxHazard."""
        self._check_initiator("rollback", may_call=True)
        self._end_work(xa.TMFAIL)
        self.is_ended = True
        branches = [*self._branches.values(), *map(self._of_service, self._remote)]
        self._coordinator.roll_back(branches, is_known=self._is_known)

    @property
    def _is_known(self) -> bool:
        """Whether the node has heard of it."""
        return self._is_registered or self._registering is not None

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
        if self._suspended and not may_call:
            raise TxProtocolError(what=what, detail="the transaction is suspended")
        if self._calls and not may_call:
            detail = f"{self._calls} calls of services have not been answered"
            raise TxProtocolError(what=what, detail=detail)

    def _of_service(self, participant: Participant) -> Branch:
        """A branch that a service left; recovery finishes those that are not reached from here."""
        xid = decisions.xid_of(self.gtrid, participant.bqual)
        try:
            rm: ResourceManager | None = self._place.resource(participant.resource)
        except HmsError:
            rm = None
        is_of_the_log = rm is not None and self._place.is_of_the_log(rm)
        return Branch(participant.resource, xid, rm, not is_of_the_log, is_of_the_log)
