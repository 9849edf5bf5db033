"""HMS as a resource manager: what a session sends and receives in a branch is its work.

The calls themselves stand in xa_resource_steps.py; here are their two shells.
"""

from collections.abc import Callable
from typing import Any

from hms.client.core.operations import Steps
from hms.client.xa_resource_steps import HmsSteps, XaSession
from hms.wire.xa_constants import TMENDRSCAN, TMNOFLAGS, TMSTARTRSCAN, TMSUCCESS
from hms.wire.xid import Xid

__all__ = ["AsyncHmsResource", "HmsResource", "HmsSteps", "XaSession"]


class HmsResource(HmsSteps):
    """A ResourceManager for threads; see tpmon/xa/resource.py."""

    def __init__(
        self, connection: Any, session: XaSession | None = None, name: str = "hms"
    ) -> None:
        super().__init__(connection, session, name)
        self._runs: Callable[[Steps[Any]], Any] = connection.run

    def xa_open(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Ask the node whether it is there; info is the connection's already."""
        del info, rmid, flags
        code: int = self._runs(self.opening())
        return code

    def xa_close(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """XAER_PROTO while a branch that was begun here is not prepared and has not ended."""
        del info, rmid, flags
        return self.closing()

    def xa_start(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """The session works in the branch from now on: a new one, TMJOIN, or TMRESUME."""
        del rmid
        code: int = self._runs(self.starting(xid, flags))
        return code

    def xa_end(self, xid: Xid, rmid: int = 0, flags: int = TMSUCCESS) -> int:
        """It does so no longer: TMSUCCESS, TMFAIL, TMSUSPEND."""
        del rmid
        code: int = self._runs(self.ending(xid, flags))
        return code

    def xa_prepare(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Vote; what is prepared outlives the connection and the node."""
        del rmid, flags
        code: int = self._runs(self.preparing(xid))
        return code

    def xa_commit(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Commit, with TMONEPHASE what is not prepared."""
        del rmid
        code: int = self._runs(self.committing(xid, flags))
        return code

    def xa_rollback(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Roll back; what was received comes again."""
        del rmid, flags
        code: int = self._runs(self.rolling_back(xid))
        return code

    def xa_recover(
        self, count: int, rmid: int = 0, flags: int = TMSTARTRSCAN | TMENDRSCAN
    ) -> list[Xid]:
        """A page of the branches in doubt and of heuristic outcomes; XaError."""
        del rmid
        found: list[Xid] = self._runs(self.recovering(count, flags))
        return found

    def xa_forget(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """The heuristic outcome of a branch is known."""
        del rmid, flags
        code: int = self._runs(self.forgetting(xid))
        return code


class AsyncHmsResource(HmsSteps):
    """The same for the tasks of an event loop."""

    def __init__(
        self, connection: Any, session: XaSession | None = None, name: str = "hms"
    ) -> None:
        super().__init__(connection, session, name)
        self._runs: Callable[[Steps[Any]], Any] = connection.run

    async def xa_start(self, xid: Xid, flags: int = TMNOFLAGS) -> int:
        """The session works in the branch from now on: a new one, TMJOIN, or TMRESUME."""
        code: int = await self._runs(self.starting(xid, flags))
        return code

    async def xa_end(self, xid: Xid, flags: int = TMSUCCESS) -> int:
        """It does so no longer: TMSUCCESS, TMFAIL, TMSUSPEND."""
        code: int = await self._runs(self.ending(xid, flags))
        return code

    async def xa_prepare(self, xid: Xid) -> int:
        """Vote; what is prepared outlives the connection and the node."""
        code: int = await self._runs(self.preparing(xid))
        return code

    async def xa_commit(self, xid: Xid, flags: int = TMNOFLAGS) -> int:
        """Commit, with TMONEPHASE what is not prepared."""
        code: int = await self._runs(self.committing(xid, flags))
        return code

    async def xa_rollback(self, xid: Xid) -> int:
        """Roll back; what was received comes again."""
        code: int = await self._runs(self.rolling_back(xid))
        return code

    async def xa_recover(self, count: int, flags: int = TMSTARTRSCAN | TMENDRSCAN) -> list[Xid]:
        """A page of the branches in doubt and of heuristic outcomes; XaError."""
        found: list[Xid] = await self._runs(self.recovering(count, flags))
        return found

    async def xa_forget(self, xid: Xid) -> int:
        """The heuristic outcome of a branch is known."""
        code: int = await self._runs(self.forgetting(xid))
        return code
