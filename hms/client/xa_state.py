"""An XA session as a client has it: outside a branch like any other, inside one like a transacted
one (F-B6). No socket or clock.

Work of a branch must never be taken for work outside it. What is said before xa_start and xa_end is
said in that order; what was sent in a branch is not sent again after the connection was lost; and a
session that is opened again tells the node that it is still in a branch, which is gone: then its
work is refused until xa_end.
"""

import msgspec

from hms.client.core.link import Link
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.session_state import SessionState
from hms.constants import AckMode
from hms.errors.catalogue import IllegalState
from hms.errors.tree import HmsError
from hms.wire.branch_requests import XaEnd, XaStart

__all__ = ["XaSessionState"]


class XaSessionState(SessionState):
    """See the module. xid: packed, of the branch in which it works, empty outside of one."""

    is_xa = True

    def __init__(self, link: Link) -> None:
        super().__init__(link, AckMode.AUTO, is_transacted=False, is_asynchronous=False)
        self.xid = b""
        self.last_received = b""
        """The last branch in which something was received here."""
        self.opening = msgspec.structs.replace(self.opening, is_xa=True)

    def ask_to_start(self, xid: bytes, flags: int, timeout_ms: int) -> Pending:
        """Ask for a branch, behind all that belongs to no branch."""
        self.settle()
        request = XaStart(self.number, xid, flags, timeout_ms)
        return self.link.request(request, Pending("xa_start", OnLoss.FAIL))

    def ask_to_end(self, xid: bytes, flags: int, on_loss: OnLoss = OnLoss.FAIL) -> Pending:
        """Ask to leave it, behind all that belongs to it."""
        self.settle()
        return self.link.request(XaEnd(self.number, xid, flags), Pending("xa_end", on_loss))

    def enter(self, xid: bytes) -> None:
        """From now on all work is the branch's; what was acknowledged before is safe."""
        self.xid = xid
        self._unsure, self._asked = [], []
        self._work_in_branch(is_it=True)

    def exit(self) -> None:
        """From now on none is."""
        if self.has_work:
            self.last_received = self.xid
        self.xid = b""
        self.has_work = self.is_doomed = False
        self.failed_send = None
        self._work_in_branch(is_it=False)

    def exit_lost(self) -> None:
        """The same without a connection: what was sent in the branch, and what still waits to be
        sent, must not go out later, as work of no branch."""
        self._withdraw_sends("the connection was lost, and the branch with it")
        self.exit()

    def _work_in_branch(self, *, is_it: bool) -> None:
        self.is_transacted = is_it
        self._is_auto = self._is_unanswered = not is_it
        for prefetched in self.prefetch_buffers.values():
            prefetched.allowance = 0
        for sender in self.all_senders:
            sender.is_transacted = is_it

    def restore(self) -> None:
        """Open again what was open; see the module."""
        self.opening = msgspec.structs.replace(self.opening, xid=self.xid)
        super().restore()

    def lost(self, error: HmsError) -> None:
        """The connection took the branch with it."""
        super().lost(error)
        self.is_doomed = bool(self.xid)

    def must_be_transacted(self, what: str, *, wanted: bool = True) -> None:
        """commit() and rollback() are its transaction manager's; so is recover() in a branch."""
        if wanted or self.xid:
            detail = "an XA session's work ends with its distributed transaction"
            raise IllegalState(what=what, detail=detail)
