"""The adapter kit: a ResourceManager out of a driver that knows one kind of database.

A driver says how its database begins, prepares, commits and lists branches; the kit keeps the
states, the sessions and the codes. Every branch has a session of its own, so that branches can be
suspended, resumed and joined inside one process whatever the database makes of it.
"""

import threading
from collections.abc import Callable
from typing import Any

from hms.wire.xa_constants import (
    TMENDRSCAN,
    TMNOFLAGS,
    TMONEPHASE,
    TMSTARTRSCAN,
    TMSUCCESS,
    XA_OK,
    XA_RBROLLBACK,
    XAER_DUPID,
    XAER_INVAL,
    XAER_NOTA,
    XAER_PROTO,
    XAER_RMERR,
    XAER_RMFAIL,
    is_rolled_back,
)
from hms.wire.xid import Xid
from tpmon.xa.branches import END_EVENTS, START_EVENTS, Branch, Event, State, next_state
from tpmon.xa.database_sessions import Sessions
from tpmon.xa.driver import Driver
from tpmon.xa.recover_scan import Scan
from tpmon.xa.resource import check
from tpmon.xa.session_handle import Handle, end

__all__ = ["DatabaseResource", "Driver"]


class DatabaseResource:
    """A ResourceManager for any database that has a driver; for all threads of a process."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.is_last_resource = driver.is_last_resource
        self._driver = driver
        self._lock = threading.Lock()
        self._sessions = Sessions(driver)
        self._branches: dict[Xid, Branch] = {}
        self._scan = Scan()

    @property
    def reason(self) -> str:
        """What the database said of this thread's last code that was not XA_OK."""
        return self._sessions.reason

    def xa_open(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Reach the database and check that it can take part; info is the driver's already."""
        del info, rmid, flags
        return self._sessions.tried(self._open)

    def _open(self) -> int:
        session = self._sessions.take()
        fault = self._driver.check(session)
        self._sessions.give_back(session)
        return self._sessions.say(XAER_RMERR, fault) if fault else XA_OK

    def xa_close(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """End all sessions; XAER_PROTO while a branch that is not prepared lives here."""
        del info, rmid, flags
        with self._lock:
            if any(b.state is not State.PREPARED for b in self._branches.values()):
                return self._sessions.say(XAER_PROTO, "branches of this process have not ended")
            sessions = [branch.session for branch in self._branches.values()]
            self._branches.clear()
        self._sessions.close_idle(sessions)
        return XA_OK

    def connection(self, xid: Xid) -> Any:
        """The session of an active branch, without what would end its transaction."""
        with self._lock:
            branch = self._branches[xid]
            handle = Handle(self.name, branch.session)
            branch.handles.append(handle)
        return handle

    # ---- association

    def xa_start(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Begin, join or resume a branch of this process."""
        del rmid
        if flags not in START_EVENTS:
            return self._sessions.say(XAER_INVAL, f"flags {flags:#x} of xa_start")
        event = START_EVENTS[flags]
        if event is not None:
            return self._moved(xid, event)
        with self._lock:
            if xid in self._branches:
                return self._sessions.say(XAER_DUPID, "the branch exists in this process")
            branch = self._branches[xid] = Branch(None)

        def begin() -> int:
            branch.session = self._sessions.begin(xid)
            return XA_OK

        code = self._sessions.tried(begin)
        if code != XA_OK:
            self._forget(xid)
        return code

    def xa_end(self, xid: Xid, rmid: int = 0, flags: int = TMSUCCESS) -> int:
        """End, fail or suspend the work of a branch."""
        del rmid
        if flags not in END_EVENTS:
            return self._sessions.say(XAER_INVAL, f"flags {flags:#x} of xa_end")
        return self._moved(xid, END_EVENTS[flags])

    def _moved(self, xid: Xid, event: Event) -> int:
        with self._lock:
            branch = self._branches.get(xid)
            if branch is None:
                return self._sessions.say(XAER_NOTA, "this process has no such branch")
            after = next_state(branch.state, event)
            if after is None:
                return self._out_of_order(branch, event)
            branch.state = after
            if after is not State.ACTIVE:
                _end_handles(branch)
        return XA_OK

    def detach(self, xid: Xid) -> None:
        """Let go of a prepared branch, so that another process can finish it."""
        with self._lock:
            branch = self._branches.get(xid)
            if branch is None or branch.state is not State.PREPARED:
                return
            del self._branches[xid]
        if branch.session is not None:
            self._driver.close(branch.session)

    # ---- outcome

    def xa_prepare(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Prepare; XA_RDONLY and XA_RB* end the branch."""
        del rmid, flags
        return self._decided(xid, Event.PREPARE, self._driver.prepare)

    def xa_commit(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Commit; a branch that is not of this process is looked for in the database."""
        del rmid
        if flags not in (TMNOFLAGS, TMONEPHASE):
            return self._sessions.say(XAER_INVAL, f"flags {flags:#x} of xa_commit")
        if flags == TMONEPHASE:
            return self._decided(xid, Event.COMMIT_ONE_PHASE, self._driver.commit_one_phase)
        return self._finished(xid, Event.COMMIT, self._driver.commit_prepared)

    def xa_rollback(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Roll back, before or after it is prepared."""
        del rmid, flags
        branch = self._branches.get(xid)
        if branch is None or branch.state is State.PREPARED:
            return self._finished(xid, Event.ROLLBACK, self._driver.roll_back_prepared)
        act = self._driver.roll_back
        return self._decided(xid, Event.ROLLBACK, lambda session, of: act(session, of) or XA_OK)

    def _decided(self, xid: Xid, event: Event, act: Callable[[Any, Xid], int]) -> int:
        """Prepare, commit in one phase or roll back what is not prepared, in its own session."""
        with self._lock:
            branch = self._branches.get(xid)
            if branch is None:
                return self._sessions.say(XAER_NOTA, "this process has no such branch")
            after = next_state(branch.state, event)
            if after is None:
                return self._out_of_order(branch, event)
            branch.state = after
        code = self._sessions.tried(lambda: act(branch.session, xid))
        session = branch.session
        if code != XA_OK or after is not State.PREPARED:
            self._forget(xid)
        elif self._driver.is_freed_by_prepare:
            branch.session = None
        else:
            return code
        self._sessions.give_back(session)
        if event is Event.ROLLBACK and (code == XAER_RMFAIL or is_rolled_back(code)):
            return XA_OK  # a session that is gone was rolled back by the database
        return code

    def _finished(self, xid: Xid, event: Event, act: Callable[[Any, Xid], None]) -> int:
        """Commit or roll back what is prepared."""
        branch = self._branches.get(xid)
        if branch is not None and next_state(branch.state, event) is None:
            return self._out_of_order(branch, event)

        def finish() -> int:
            session = (branch.session if branch is not None else None) or self._sessions.take()
            try:
                act(session, xid)
            finally:
                self._forget(xid)
                self._sessions.give_back(session)
            return XA_OK

        return self._sessions.tried(finish)

    # ---- recovery

    def xa_recover(
        self, count: int, rmid: int = 0, flags: int = TMSTARTRSCAN | TMENDRSCAN
    ) -> list[Xid]:
        """A page of the prepared branches of the database, by any process; XaError."""
        del rmid
        return self._scan.page(self, count, flags)

    def page(self, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches behind that one; XaError."""
        found: list[Xid] = []

        def look() -> int:
            session = self._sessions.take()
            try:
                found.extend(self._driver.prepared(session, after, count))
            finally:
                self._sessions.give_back(session)
            return XA_OK

        check(self, "xa_recover", self._sessions.tried(look))
        return found

    def xa_forget(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """A database remembers nothing of what it completed by itself."""
        del xid, rmid, flags
        return self._sessions.say(XAER_NOTA, "databases keep no heuristic outcomes")

    # ---- what it knows

    def close_idle(self) -> None:
        """Close the sessions that wait for work."""
        self._sessions.close_idle()

    def _forget(self, xid: Xid) -> None:
        with self._lock:
            branch = self._branches.pop(xid, None)
            if branch is not None:
                _end_handles(branch)

    def _out_of_order(self, branch: Branch, event: Event) -> int:
        if branch.state is State.DOOMED and event is not Event.ROLLBACK:
            return self._sessions.say(XA_RBROLLBACK, "its work failed: it can only be rolled back")
        return self._sessions.say(
            XAER_PROTO, f"{event.value} of a branch that is {branch.state.value}"
        )


def _end_handles(branch: Branch) -> None:
    for handle in branch.handles:
        end(handle)
    branch.handles.clear()
