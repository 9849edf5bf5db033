"""ResourceManager: what a transaction manager may ask of a database or a broker (X/Open XA §5).

The calls return X/Open's codes and raise nothing for what the resource manager says; `reason` has
its words for the last code that was not XA_OK. `xid` names a branch; any number of branches may be
open at once, in any threads.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from hms.errors.catalogue import XaError
from hms.wire.xa_constants import TMENDRSCAN, TMNOFLAGS, TMSTARTRSCAN, TMSUCCESS, code_name
from hms.wire.xid import Xid

__all__ = ["SCAN_PAGE", "ResourceManager", "check", "scan"]

SCAN_PAGE = 500
"""How many branches a page of a recover scan has."""


@runtime_checkable
class ResourceManager(Protocol):
    """One resource manager.

    is_last_resource: it cannot prepare and is committed in one phase, before the decision.
    """

    name: str
    is_last_resource: bool

    @property
    def reason(self) -> str:
        """The words for this thread's last code that was not XA_OK."""

    def xa_open(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Reach it, and check that it can take part."""

    def xa_close(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Give back what it holds here; XAER_PROTO while work is going on."""

    def xa_start(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Begin a branch, join one (TMJOIN), or go on with a suspended one (TMRESUME)."""

    def xa_end(self, xid: Xid, rmid: int = 0, flags: int = TMSUCCESS) -> int:
        """No more work for now: TMSUCCESS, TMFAIL (it can only be rolled back), TMSUSPEND."""

    def xa_prepare(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Promise to be able to commit; XA_RDONLY when there is nothing to commit."""

    def xa_commit(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Commit a prepared branch, or with TMONEPHASE one that is not prepared."""

    def xa_rollback(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Roll a branch back."""

    def xa_recover(
        self, count: int, rmid: int = 0, flags: int = TMSTARTRSCAN | TMENDRSCAN
    ) -> list[Xid]:
        """A page of the branches that are prepared or were completed by themselves; fewer than
        count ends the scan. XaError."""

    def xa_forget(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Drop what is known of a branch that was completed by itself."""

    def detach(self, xid: Xid) -> None:
        """Let go of a prepared branch, so that another process can finish it."""

    def connection(self, xid: Xid) -> Any:
        """What the application works with inside the branch, while it is active."""


def check(rm: ResourceManager, operation: str, code: int, xid: Xid | None = None) -> int:
    """The code, or XaError when it is an error or a rollback."""
    if code < 0 or code >= 100:  # noqa: PLR2004 - XA_RBBASE
        branch = "" if xid is None else str(xid)
        raise XaError(
            operation=operation,
            resource=rm.name,
            xid=branch,
            xa_code=code,
            answer=code_name(code),
            reason=rm.reason,
        )
    return code


def scan(rm: ResourceManager, page: int = SCAN_PAGE) -> Iterator[Xid]:
    """All branches of a recover scan, page by page; XaError."""
    flags = TMSTARTRSCAN
    while True:
        found = rm.xa_recover(page, flags=flags)
        yield from found
        if len(found) < page:
            return
        flags = TMNOFLAGS
