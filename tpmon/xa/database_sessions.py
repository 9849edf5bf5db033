"""Sessions: those that one process has with a database, and what it says to them.

A session serves one branch after the other; after one was lost, no idle one is to be trusted.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hms.wire.xa_constants import MEANINGS, XAER_RMFAIL
from hms.wire.xid import Xid
from tpmon.xa.driver import Driver

__all__ = ["IDLE_SESSIONS_MAX", "Sessions"]

IDLE_SESSIONS_MAX = 16
"""Sessions that are kept open for the next branch."""


class Sessions:
    """For all threads of a process."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._idle: deque[Any] = deque()
        self._said = threading.local()

    # ---- codes

    @property
    def reason(self) -> str:
        """What the database said of this thread's last code that was not XA_OK."""
        return getattr(self._said, "reason", "")

    def say(self, code: int, reason: str) -> int:
        """The code, for that reason."""
        self._said.reason = reason
        return code

    def tried(self, act: Callable[[], int]) -> int:
        """The code of what is done, with a reason if it is not XA_OK."""
        self._said.reason = ""
        try:
            done = act()
            return done if self.reason else self.say(done, MEANINGS[done])
        except Exception as fault:
            code = self._driver.code_of(fault)
            if code is None:
                raise
            if code == XAER_RMFAIL:
                self.close_idle()
            return self.say(code, str(fault).strip() or type(fault).__name__)

    # ---- sessions

    def take(self) -> Any:
        """A session that is in no transaction."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._driver.connect()

    def begin(self, xid: Xid) -> Any:
        """A session that works in a new branch."""
        try:
            return self._begun(self.take(), xid)
        except Exception as fault:
            if self._driver.code_of(fault) != XAER_RMFAIL:
                raise
            self.close_idle()  # the database may have been started anew since they were used
            return self._begun(self._driver.connect(), xid)

    def _begun(self, session: Any, xid: Xid) -> Any:
        try:
            self._driver.begin(session, xid)
        except Exception:
            self._driver.close(session)
            raise
        return session

    def give_back(self, session: Any) -> None:
        """It is not needed any more; one that is not clean is closed."""
        if session is None:
            return
        is_clean = self._driver.is_clean(session)
        with self._lock:
            if is_clean and len(self._idle) < IDLE_SESSIONS_MAX:
                self._idle.append(session)
                return
        self._driver.close(session)

    def close_idle(self, others: Iterable[Any] = ()) -> None:
        """Close those that wait for work, and these."""
        with self._lock:
            sessions = [*self._idle, *others]
            self._idle.clear()
        for session in sessions:
            if session is not None:
                self._driver.close(session)
