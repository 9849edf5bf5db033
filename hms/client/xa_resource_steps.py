"""What HMS does as a resource manager, for threads and for asyncio alike.

xa_start and xa_end belong to an XA session, the other calls to any connection; without a session a
resource manager can complete and recover branches only. An answer that was lost with the connection
is asked for again, so what takes effect once is told truly.
"""

import threading
from typing import Any, Protocol

from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import AnyConnection
from hms.errors.catalogue import ConnectionLost, XaError
from hms.errors.tree import HmsError
from hms.wire import branch_requests as wire
from hms.wire.xa_constants import (
    TMENDRSCAN,
    TMNOFLAGS,
    TMONEPHASE,
    TMSTARTRSCAN,
    XA_OK,
    XA_RBCOMMFAIL,
    XA_RDONLY,
    XAER_INVAL,
    XAER_NOTA,
    XAER_PROTO,
    XAER_RMFAIL,
    code_name,
    is_rolled_back,
)
from hms.wire.xid import Xid

__all__ = ["HmsSteps", "XaSession"]

PAGE = 500
Coded = tuple[int, str]


LOGS_MAX = 10_000
"""For how many uncommitted branches it is remembered which log has them."""


class XaSession(Protocol):
    """What works in branches."""

    def xa_starting(self, xid: bytes, flags: int, timeout_ms: int) -> Steps[Coded]:
        """Begin to."""

    def xa_ending(self, xid: bytes, flags: int) -> Steps[Coded]:
        """End it."""

    def xa_rolled_back(self, xid: bytes) -> Steps[None]:
        """What was received in the branch comes again."""


class HmsSteps:
    """The calls of XA, each written once. timeout_s: a branch that is not prepared by then is
    rolled back by the node; 0 never."""

    is_last_resource = False

    def __init__(
        self, connection: AnyConnection, session: XaSession | None = None, name: str = "hms"
    ) -> None:
        self.name = name
        self.timeout_s = 0.0
        self._connection = connection
        self._requests = connection.requests
        self._session = session
        self._said = threading.local()
        self._working: set[Xid] = set()
        self._logs: dict[Xid, bytes | None] = {}
        """In which log each branch is that was begun here: another one knows nothing of it, and
        its word that there is no such branch would have the decision forgotten."""
        self._position: int | None = None

    @property
    def reason(self) -> str:
        """What the node said of this thread's last code that was not XA_OK."""
        return getattr(self._said, "reason", "")

    @property
    def node_uid(self) -> int | None:
        """The node whose branches these are, when it has answered."""
        welcome = self._requests.link.welcome
        return None if welcome is None else welcome.node_uid

    @property
    def is_working(self) -> bool:
        """Whether a branch that was begun here is not prepared and has not ended."""
        return bool(self._working)

    @property
    def node(self) -> AnyConnection:
        """The connection to its node."""
        return self._connection

    def connection(self, _xid: Xid) -> Any:
        """The session that works in the branch."""
        return self._session

    def detach(self, xid: Xid) -> None:
        """Others end the branch: the session is free for the next transaction."""
        self._working.discard(xid)

    # ---- association

    def opening(self) -> Steps[int]:
        """xa_open."""
        return (yield from self._guarded(self._reached()))

    def _reached(self) -> Steps[Coded]:
        yield from self._requests.asking(wire.ListActive())
        return XA_OK, ""

    def closing(self) -> int:
        """xa_close."""
        if self._working:
            return self._say(XAER_PROTO, f"{len(self._working)} branches have not ended")
        return XA_OK

    def starting(self, xid: Xid, flags: int) -> Steps[int]:
        """xa_start."""
        if self._session is None:
            return self._say(XAER_PROTO, "without an XA session nothing can be done in a branch")
        timeout_ms = round(self.timeout_s * 1000)
        code = yield from self._guarded(self._session.xa_starting(xid.pack(), flags, timeout_ms))
        if code == XA_OK:
            self._working.add(xid)
            self._logs[xid] = self._requests.link.log
            if len(self._logs) > LOGS_MAX:  # prepared here, and committed elsewhere
                del self._logs[next(iter(self._logs))]
        return code

    def ending(self, xid: Xid, flags: int) -> Steps[int]:
        """xa_end."""
        if self._session is None:
            return self._say(XAER_PROTO, "without an XA session nothing can be done in a branch")
        return (yield from self._guarded(self._session.xa_ending(xid.pack(), flags)))

    # ---- outcome

    def preparing(self, xid: Xid) -> Steps[int]:
        """xa_prepare. What is not there any more after an outage was rolled back."""
        code = yield from self._twice(
            xid,
            wire.XaPrepare(xid.pack()),
            wire.XaPrepare(xid.pack(), is_again=True),
            {XAER_NOTA: (XA_RBCOMMFAIL, "it was rolled back when the connection was lost")},
        )
        is_over = code in (XA_OK, XA_RDONLY) or is_rolled_back(code)
        return self._over(xid, code, is_over, is_prepared=code == XA_OK)

    def committing(self, xid: Xid, flags: int) -> Steps[int]:
        """xa_commit."""
        if flags not in (TMNOFLAGS, TMONEPHASE):
            return self._say(XAER_INVAL, f"flags {flags:#x} of xa_commit")
        is_one_phase = flags == TMONEPHASE
        code = yield from self._twice(
            xid,
            wire.XaCommit(xid.pack(), is_one_phase),
            wire.XaCommit(xid.pack(), is_one_phase, is_again=True),
            {},
        )
        return self._over(xid, code, code in (XA_OK, XAER_NOTA) or is_rolled_back(code))

    def rolling_back(self, xid: Xid) -> Steps[int]:
        """xa_rollback. What is not there any more after an outage is rolled back."""
        request = wire.XaRollback(xid.pack())
        code = yield from self._twice(xid, request, request, {XAER_NOTA: (XA_OK, "")})
        if code == XA_OK and self._session is not None:
            yield from self._session.xa_rolled_back(xid.pack())
        return self._over(xid, code, code in (XA_OK, XAER_NOTA))

    def forgetting(self, xid: Xid) -> Steps[int]:
        """xa_forget."""
        request = wire.XaForget(xid.pack())
        return (yield from self._twice(xid, request, request, {XAER_NOTA: (XA_OK, "")}))

    def _over(self, xid: Xid, code: int, is_over: bool, *, is_prepared: bool = False) -> int:
        if is_over:
            self._working.discard(xid)
            if not is_prepared:
                self._logs.pop(xid, None)
        return code

    # ---- recovery

    def recovering(self, count: int, flags: int) -> Steps[list[Xid]]:
        """xa_recover."""
        position = 0 if flags & TMSTARTRSCAN else self._position
        if flags & ~(TMSTARTRSCAN | TMENDRSCAN) or count < 1:
            raise self._failed(XAER_INVAL, f"count {count}, flags {flags:#x} of xa_recover")
        if position is None:
            raise self._failed(XAER_INVAL, "no scan was begun: TMSTARTRSCAN")
        found: list[Xid] = []
        has_more = True
        while has_more and len(found) < count:
            asked = wire.XaRecover(position, min(PAGE, count - len(found)))
            reply = yield from self._page(asked)
            position, has_more = reply["position"], reply["has_more"]
            found += map(Xid.unpack, reply["xids"])
        is_over = len(found) < count or flags & TMENDRSCAN
        self._position = None if is_over else position
        return found

    def _page(self, asked: wire.XaRecover) -> Steps[dict[str, Any]]:
        try:
            reply: dict[str, Any] = yield from self._requests.asking(asked)
        except HmsError as fault:
            raise self._failed(XAER_RMFAIL, str(fault)) from fault
        return reply

    def _failed(self, code: int, reason: str) -> XaError:
        self._say(code, reason)
        return XaError(
            operation="xa_recover",
            resource=self.name,
            xid="",
            xa_code=code,
            answer=code_name(code),
            reason=reason,
        )

    # ---- asking

    def _twice(
        self,
        xid: Xid,
        first: wire.TransactionRequest,
        again: wire.TransactionRequest,
        meaning: dict[int, Coded],
    ) -> Steps[int]:
        """Ask, and when the answer was lost ask again; meaning: of the codes of the second one."""
        return (yield from self._guarded(self._asked(xid, first, again, meaning)))

    def _asked(
        self,
        xid: Xid,
        first: wire.TransactionRequest,
        again: wire.TransactionRequest,
        meaning: dict[int, Coded],
    ) -> Steps[Coded]:
        link = self._requests.link
        reason = "the branch is in the log of a node that does not answer, another one does"
        strange = ConnectionLost(address=link.address, reason=reason)
        pending = Pending(
            type(first).__name__, OnLoss.FAIL, error_if_strange=strange, is_bound=True
        )
        pending.log = self._logs.get(xid)
        link.request(first, pending)
        try:
            yield from self._requests.answer_to(pending)
        except HmsError:
            if pending.is_answered or not pending.is_done:  # refused, or too late
                raise
            second = Pending(
                type(again).__name__, OnLoss.REPEAT, error_if_strange=strange, is_bound=True
            )
            second.log = pending.log
            link.request(again, second)
            yield from self._requests.answer_to(second)
            reply = second.value()
            code = int(reply["code"])
            return meaning.get(code, (code, str(reply["reason"])))
        reply = pending.value()
        return int(reply["code"]), str(reply["reason"])

    def _guarded(self, steps: Steps[Coded]) -> Steps[int]:
        """The code; XAER_RMFAIL when the node cannot be asked."""
        try:
            code, reason = yield from steps
        except HmsError as fault:
            return self._say(XAER_RMFAIL, str(fault))
        return self._say(code, reason)

    def _say(self, code: int, reason: str) -> int:
        if code != XA_OK:
            self._said.reason = reason
        return code
