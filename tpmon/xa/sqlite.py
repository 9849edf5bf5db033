"""SQLite as a last resource: it cannot prepare, so it is committed before the decision.

When the process dies between that commit and the decision, SQLite keeps its part and the others are
rolled back. Its configuration says that this is acceptable (last_resource = true).
"""

import contextlib
import sqlite3
from typing import Any

from hms.wire.xa_constants import (
    XA_OK,
    XA_RBINTEGRITY,
    XA_RBOTHER,
    XAER_PROTO,
    XAER_RMERR,
    XAER_RMFAIL,
)
from hms.wire.xid import Xid

__all__ = ["SQLite"]

BUSY_TIMEOUT_S = 30.0


class SQLite:
    """One file."""

    is_last_resource = True
    is_freed_by_prepare = False

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path

    def connect(self) -> Any:
        """A session in which nothing begins by itself, for one thread after the other."""
        return sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )

    def check(self, session: Any) -> str:
        """Why it cannot take part."""
        session.execute("SELECT 1 FROM sqlite_master").fetchone()
        return ""

    def close(self, session: Any) -> None:
        """End a session."""
        with contextlib.suppress(sqlite3.Error):
            session.close()

    def is_clean(self, session: Any) -> bool:
        """Whether it is in no transaction."""
        return not session.in_transaction

    def begin(self, session: Any, xid: Xid) -> None:
        """Begin."""
        del xid
        session.execute("BEGIN")

    def prepare(self, session: Any, xid: Xid) -> int:
        """It cannot."""
        del session, xid
        raise sqlite3.NotSupportedError("SQLite cannot prepare a transaction")

    def commit_one_phase(self, session: Any, xid: Xid) -> int:
        """Commit."""
        del xid
        if not session.in_transaction:
            return XA_RBOTHER
        try:
            session.execute("COMMIT")
        except sqlite3.Error:
            session.rollback()
            raise
        return XA_OK

    def roll_back(self, session: Any, xid: Xid) -> None:
        """Roll back."""
        del xid
        session.rollback()

    def commit_prepared(self, session: Any, xid: Xid) -> None:
        """There is none."""
        del session, xid
        raise sqlite3.NotSupportedError("SQLite has no prepared transactions")

    def roll_back_prepared(self, session: Any, xid: Xid) -> None:
        """There is none."""
        del session, xid
        raise sqlite3.NotSupportedError("SQLite has no prepared transactions")

    def prepared(self, session: Any, after: Xid | None, count: int) -> list[Xid]:
        """There are none."""
        del session, after, count
        return []

    def code_of(self, fault: Exception) -> int | None:
        """The code of an error of sqlite3's."""
        if isinstance(fault, sqlite3.NotSupportedError):
            return XAER_PROTO
        if isinstance(fault, sqlite3.IntegrityError):
            return XA_RBINTEGRITY
        if isinstance(fault, sqlite3.OperationalError) and "unable to open" in str(fault):
            return XAER_RMFAIL
        return XAER_RMERR if isinstance(fault, sqlite3.Error) else None
