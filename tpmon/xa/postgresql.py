"""PostgreSQL as a resource manager, by PREPARE TRANSACTION and psycopg 3.

The name of a prepared transaction is written as other transaction managers write it: the format
id, then gtrid and bqual in base64. Names that are no xids belong to somebody else.
"""

import base64
import binascii
import contextlib
from typing import Any

from hms.wire.xa_constants import (
    XA_OK,
    XA_RBDEADLOCK,
    XA_RBINTEGRITY,
    XA_RBOTHER,
    XA_RBROLLBACK,
    XA_RBTRANSIENT,
    XA_RDONLY,
    XA_RETRY,
    XAER_DUPID,
    XAER_NOTA,
    XAER_RMERR,
    XAER_RMFAIL,
)
from hms.wire.xid import Xid
from tpmon.xa.driver_packages import import_driver

__all__ = ["PostgreSQL", "gid_of", "xid_of"]

_GIDS = """
    SELECT gid FROM pg_prepared_xacts
    WHERE database = current_database() AND gid COLLATE "C" > %s
    ORDER BY gid COLLATE "C" LIMIT %s
"""
_CODES = {
    "42704": XAER_NOTA,  # undefined_object
    "42710": XAER_DUPID,  # duplicate_object
    "55000": XA_RETRY,  # another session is finishing it
    "40001": XA_RBTRANSIENT,
    "40P01": XA_RBDEADLOCK,
    "25P02": XA_RBROLLBACK,  # a statement before it failed
    "57014": XA_RBOTHER,
}


class PostgreSQL:
    """One database; url as libpq has it, password apart so that no text holds both."""

    is_last_resource = False
    is_freed_by_prepare = True

    def __init__(self, name: str, url: str, password: str | None = None) -> None:
        self._driver = import_driver(name, "psycopg")
        self._url = url
        self._password = password

    def connect(self) -> Any:
        """A session in which nothing begins by itself."""
        known = {"password": self._password} if self._password is not None else {}
        return self._driver.connect(self._url, autocommit=True, connect_timeout=10, **known)

    def check(self, session: Any) -> str:
        """Why it cannot take part."""
        (most,) = session.execute("SHOW max_prepared_transactions").fetchone()
        if int(most):
            return ""
        return "max_prepared_transactions is 0: set it in postgresql.conf and restart PostgreSQL"

    def close(self, session: Any) -> None:
        """End a session."""
        with contextlib.suppress(self._driver.Error):
            session.close()

    def is_clean(self, session: Any) -> bool:
        """Whether it is in no transaction."""
        is_idle = session.info.transaction_status == self._driver.pq.TransactionStatus.IDLE
        return is_idle and not session.closed and bool(session.autocommit)

    def begin(self, session: Any, xid: Xid) -> None:
        """Begin; the name is needed only when it is prepared."""
        del xid
        self._run(session, "BEGIN")

    def prepare(self, session: Any, xid: Xid) -> int:
        """Prepare, or end what wrote nothing."""
        if not self._is_in_transaction(session):
            return XA_RBOTHER
        written = self._run(session, "SELECT pg_current_xact_id_if_assigned()")
        if written.get_value(0, 0) is None:
            self._run(session, "COMMIT")
            return XA_RDONLY
        # A transaction that failed meanwhile answers ROLLBACK, and no error.
        done = self._run(session, f"PREPARE TRANSACTION '{gid_of(xid)}'").command_status
        return XA_OK if done == b"PREPARE TRANSACTION" else XA_RBROLLBACK

    def commit_one_phase(self, session: Any, xid: Xid) -> int:
        """Commit."""
        del xid
        if not self._is_in_transaction(session):
            return XA_RBOTHER
        done = self._run(session, "COMMIT").command_status
        return XA_OK if done == b"COMMIT" else XA_RBROLLBACK

    def roll_back(self, session: Any, xid: Xid) -> None:
        """Roll back."""
        del xid
        self._run(session, "ROLLBACK")

    def commit_prepared(self, session: Any, xid: Xid) -> None:
        """Commit what is prepared."""
        self._run(session, f"COMMIT PREPARED '{gid_of(xid)}'")

    def roll_back_prepared(self, session: Any, xid: Xid) -> None:
        """Roll back what is prepared."""
        self._run(session, f"ROLLBACK PREPARED '{gid_of(xid)}'")

    def prepared(self, session: Any, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches of this database."""
        found: list[Xid] = []
        last = "" if after is None else gid_of(after)
        while len(found) < count:
            gids = [gid for (gid,) in session.execute(_GIDS, (last, count))]
            found += [xid for xid in map(xid_of, gids) if xid is not None]
            if len(gids) < count:
                break
            last = gids[-1]
        return found[:count]

    def code_of(self, fault: Exception) -> int | None:
        """The code of an error of psycopg's."""
        if not isinstance(fault, self._driver.Error):
            return None
        state = fault.sqlstate or ""
        if state in _CODES:
            return _CODES[state]
        if state.startswith("23"):
            return XA_RBINTEGRITY
        is_lost = not state or state.startswith(("08", "57P"))
        return XAER_RMFAIL if is_lost else XAER_RMERR

    def _run(self, session: Any, statement: str) -> Any:
        """The result of a statement without values; by libpq itself, as a cursor of psycopg's takes
        longer than the database needs to answer."""
        result, status = session.pgconn.exec_(statement.encode()), self._driver.pq.ExecStatus
        if result.status in {status.COMMAND_OK, status.TUPLES_OK}:
            return result
        raise self._driver.errors.error_from_result(result, session.info.encoding)

    def _is_in_transaction(self, session: Any) -> bool:
        """Whether nobody has ended it behind our back."""
        return bool(session.info.transaction_status != self._driver.pq.TransactionStatus.IDLE)


def gid_of(xid: Xid) -> str:
    """The name of a prepared transaction; only letters, digits and `+/=_`, 188 at most."""
    gtrid, bqual = (base64.b64encode(part).decode() for part in (xid.gtrid, xid.bqual))
    return f"{xid.format_id}_{gtrid}_{bqual}"


def xid_of(gid: str) -> Xid | None:
    """The xid in such a name, None when it is somebody else's."""
    parts = gid.split("_")
    try:
        format_id, gtrid, bqual = parts
        decoded = [base64.b64decode(part, validate=True) for part in (gtrid, bqual)]
        xid = Xid(int(format_id), *decoded)
    except (ValueError, binascii.Error):
        return None
    return xid if gid_of(xid) == gid else None
