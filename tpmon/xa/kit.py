"""The adapter kit: a ResourceManager out of a driver that knows one kind of database.

A driver says how its database begins, prepares, commits and lists branches; the kit keeps the
states, the sessions and the codes. Every branch has a session of its own, so that branches can be
suspended, resumed and joined inside one process whatever the database makes of it; after the end
of its branch a session serves the next one.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tpmon.xa.branches import END_EVENTS, START_EVENTS, Branch, Event, State, next_state
from tpmon.xa.constants import (
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
from tpmon.xa.handle import Handle, end
from tpmon.xa.recovering import Scan
from tpmon.xa.resource import check
from tpmon.xa.xid import Xid

__all__ = ["IDLE_SESSIONS_MAX", "DatabaseResource", "Driver"]

IDLE_SESSIONS_MAX = 16
"""Sessions that are kept open for the next branch."""


class Driver(Protocol):
    """What the kit needs to know of one kind of database.

    Every function may raise what the driver's package raises: code_of() says which X/Open code
    that is. is_freed_by_prepare: another session may finish what this one prepared while this one
    goes on with something else.
    """

    is_last_resource: bool
    is_freed_by_prepare: bool

    def connect(self) -> Any:
        """A new session."""

    def check(self, session: Any) -> str:
        """Why the database cannot take part, "" when it can."""

    def close(self, session: Any) -> None:
        """End a session, whatever state it is in."""

    def is_clean(self, session: Any) -> bool:
        """Whether it is outside any transaction and can serve another branch."""

    def begin(self, session: Any, xid: Xid) -> None:
        """Begin a branch."""

    def prepare(self, session: Any, xid: Xid) -> int:
        """End its work and prepare it: XA_OK, XA_RDONLY or one of XA_RB*."""

    def commit_one_phase(self, session: Any, xid: Xid) -> int:
        """End its work and commit it: XA_OK or one of XA_RB*."""

    def roll_back(self, session: Any, xid: Xid) -> None:
        """End its work and roll it back."""

    def commit_prepared(self, session: Any, xid: Xid) -> None:
        """Commit a branch that is prepared, of whatever session."""

    def roll_back_prepared(self, session: Any, xid: Xid) -> None:
        """Roll a branch back that is prepared, of whatever session."""

    def prepared(self, session: Any, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches behind that one in a fixed order, count at most."""

    def code_of(self, fault: Exception) -> int | None:
        """The XAER or XA_RB code of an error, None when it is none of the driver's."""


class DatabaseResource:
    """A ResourceManager for any database that has a driver; for all threads of a process."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.is_last_resource = driver.is_last_resource
        self._driver = driver
        self._lock = threading.Lock()
        self._idle: deque[Any] = deque()
        self._branches: dict[Xid, Branch] = {}
        self._said = threading.local()
        self._scan = Scan()

    @property
    def reason(self) -> str:
        """What the database said of this thread's last code that was not XA_OK."""
        return getattr(self._said, "reason", "")

    def xa_open(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Reach the database and check that it can take part; info is the driver's already."""
        del info, rmid, flags
        return self._tried(self._open)

    def _open(self) -> int:
        session = self._take()
        fault = self._driver.check(session)
        self._give_back(session)
        return self._say(XAER_RMERR, fault) if fault else XA_OK

    def xa_close(self, info: str = "", rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """End all sessions; XAER_PROTO while a branch that is not prepared lives here."""
        del info, rmid, flags
        with self._lock:
            if any(b.state is not State.PREPARED for b in self._branches.values()):
                return self._say(XAER_PROTO, "branches of this process have not ended")
            sessions = [*self._idle, *(b.session for b in self._branches.values())]
            self._idle.clear()
            self._branches.clear()
        for session in filter(None, sessions):
            self._driver.close(session)
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
            return self._say(XAER_INVAL, f"flags {flags:#x} of xa_start")
        event = START_EVENTS[flags]
        if event is not None:
            return self._moved(xid, event)
        with self._lock:
            if xid in self._branches:
                return self._say(XAER_DUPID, "the branch exists in this process")
            branch = self._branches[xid] = Branch(None)
        code = self._tried(lambda: self._begin(branch, xid))
        if code != XA_OK:
            self._forget(xid)
        return code

    def _begin(self, branch: Branch, xid: Xid) -> int:
        try:
            branch.session = self._begun(self._take(), xid)
        except Exception as fault:
            if self._driver.code_of(fault) != XAER_RMFAIL:
                raise
            self.close_idle()  # the database may have been started anew since they were used
            branch.session = self._begun(self._driver.connect(), xid)
        return XA_OK

    def _begun(self, session: Any, xid: Xid) -> Any:
        try:
            self._driver.begin(session, xid)
        except Exception:
            self._driver.close(session)
            raise
        return session

    def xa_end(self, xid: Xid, rmid: int = 0, flags: int = TMSUCCESS) -> int:
        """End, fail or suspend the work of a branch."""
        del rmid
        if flags not in END_EVENTS:
            return self._say(XAER_INVAL, f"flags {flags:#x} of xa_end")
        return self._moved(xid, END_EVENTS[flags])

    def _moved(self, xid: Xid, event: Event) -> int:
        with self._lock:
            branch = self._branches.get(xid)
            if branch is None:
                return self._say(XAER_NOTA, "this process has no such branch")
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
            return self._say(XAER_INVAL, f"flags {flags:#x} of xa_commit")
        if flags == TMONEPHASE:
            return self._decided(xid, Event.COMMIT_ONE_PHASE, self._driver.commit_one_phase)
        return self._finished(xid, Event.COMMIT, self._driver.commit_prepared)

    def xa_rollback(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """Roll back, before or after it is prepared."""
        del rmid, flags
        branch = self._branches.get(xid)
        if branch is None or branch.state is State.PREPARED:
            return self._finished(xid, Event.ROLLBACK, self._driver.roll_back_prepared)
        return self._decided(xid, Event.ROLLBACK, self._rolled_back)

    def _rolled_back(self, session: Any, xid: Xid) -> int:
        self._driver.roll_back(session, xid)
        return XA_OK

    def _decided(self, xid: Xid, event: Event, act: Callable[[Any, Xid], int]) -> int:
        """Prepare, commit in one phase or roll back what is not prepared, in its own session."""
        with self._lock:
            branch = self._branches.get(xid)
            if branch is None:
                return self._say(XAER_NOTA, "this process has no such branch")
            after = next_state(branch.state, event)
            if after is None:
                return self._out_of_order(branch, event)
            branch.state = after
        code = self._tried(lambda: act(branch.session, xid))
        session = branch.session
        if code != XA_OK or after is not State.PREPARED:
            self._forget(xid)
        elif self._driver.is_freed_by_prepare:
            branch.session = None
        else:
            return code
        self._give_back(session)
        if event is Event.ROLLBACK and (code == XAER_RMFAIL or is_rolled_back(code)):
            return XA_OK  # a session that is gone was rolled back by the database
        return code

    def _finished(self, xid: Xid, event: Event, act: Callable[[Any, Xid], None]) -> int:
        """Commit or roll back what is prepared."""
        branch = self._branches.get(xid)
        if branch is not None and next_state(branch.state, event) is None:
            return self._out_of_order(branch, event)

        def finish() -> int:
            session = (branch.session if branch is not None else None) or self._take()
            try:
                act(session, xid)
            finally:
                self._forget(xid)
                self._give_back(session)
            return XA_OK

        return self._tried(finish)

    # ---- recovery

    def xa_recover(
        self, count: int, rmid: int = 0, flags: int = TMSTARTRSCAN | TMENDRSCAN
    ) -> list[Xid]:
        """A page of the prepared branches of the database, whoever prepared them; XaError."""
        del rmid
        return self._scan.page(self, count, flags)

    def page(self, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches behind that one; XaError."""
        found: list[Xid] = []

        def look() -> int:
            session = self._take()
            try:
                found.extend(self._driver.prepared(session, after, count))
            finally:
                self._give_back(session)
            return XA_OK

        check(self, "xa_recover", self._tried(look))
        return found

    def xa_forget(self, xid: Xid, rmid: int = 0, flags: int = TMNOFLAGS) -> int:
        """A database remembers nothing of what it completed by itself."""
        del xid, rmid, flags
        return self._say(XAER_NOTA, "databases keep no heuristic outcomes")

    # ---- sessions and codes

    def _take(self) -> Any:
        """A session that is in no transaction."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._driver.connect()

    def _give_back(self, session: Any) -> None:
        is_clean = session is not None and self._driver.is_clean(session)
        with self._lock:
            if is_clean and len(self._idle) < IDLE_SESSIONS_MAX:
                self._idle.append(session)
                return
        if session is not None:
            self._driver.close(session)

    def _forget(self, xid: Xid) -> None:
        with self._lock:
            branch = self._branches.pop(xid, None)
            if branch is not None:
                _end_handles(branch)

    def _tried(self, act: Callable[[], int]) -> int:
        """The code of what is done; a lost session is tried once more only by whoever asked."""
        try:
            return act()
        except Exception as fault:
            code = self._driver.code_of(fault)
            if code is None:
                raise
            if code == XAER_RMFAIL:
                self.close_idle()
            return self._say(code, str(fault).strip() or type(fault).__name__)

    def close_idle(self) -> None:
        """Close the sessions that wait for work; after one was lost, no other is to be trusted."""
        with self._lock:
            sessions = list(self._idle)
            self._idle.clear()
        for session in sessions:
            self._driver.close(session)

    def _out_of_order(self, branch: Branch, event: Event) -> int:
        if branch.state is State.DOOMED and event is not Event.ROLLBACK:
            return self._say(XA_RBROLLBACK, "its work failed: it can only be rolled back")
        return self._say(XAER_PROTO, f"{event.value} of a branch that is {branch.state.value}")

    def _say(self, code: int, reason: str) -> int:
        self._said.reason = reason
        return code


def _end_handles(branch: Branch) -> None:
    for handle in branch.handles:
        end(handle)
    branch.handles.clear()
