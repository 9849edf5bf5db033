"""MariaDB and MySQL as resource managers, by their XA statements and PyMySQL.

A prepared branch stays tied to the session that prepared it until that session ends; to anybody
else it is unknown (XAER_NOTA) although XA RECOVER lists it. Taken for the truth, that answer would
let a decision be forgotten that was never carried out, so it is compared with the list: XA_RETRY.

MariaDB's list is read raw, with the format id and the two lengths beside the bytes: printed as SQL,
an xid is text or hexadecimal, and has one to three arguments. The server keeps the format id but
does not compare it: two xids that differ in nothing else are one to it (XAER_DUPID).
"""

import contextlib
import threading
import time
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from hms.wire.xa_constants import (
    XA_OK,
    XA_RBDEADLOCK,
    XA_RBINTEGRITY,
    XA_RBROLLBACK,
    XA_RBTIMEOUT,
    XA_RETRY,
    XAER_DUPID,
    XAER_INVAL,
    XAER_NOTA,
    XAER_RMERR,
    XAER_RMFAIL,
)
from hms.wire.xid import Xid
from tpmon.xa.driver_packages import import_driver

__all__ = ["MariaDB"]

CONNECT_TIMEOUT_S = 10
END_TIMEOUT_S, END_PAUSE_S = 10, 0.001
_IS_THERE = "SELECT 1 FROM information_schema.processlist WHERE id = %s"
_NOTA, _DUPID, _INVAL, _WRONG_STATE, _ROLLED_BACK = 1397, 1440, 1398, 1399, 1402
_CODES = {
    _NOTA: XAER_NOTA,
    _DUPID: XAER_DUPID,
    _INVAL: XAER_INVAL,
    _WRONG_STATE: XA_RBROLLBACK,  # a deadlock has made it rollback only
    _ROLLED_BACK: XA_RBROLLBACK,
    1613: XA_RBTIMEOUT,
    1614: XA_RBDEADLOCK,
    1213: XA_RBDEADLOCK,
    1205: XA_RBTIMEOUT,
    1062: XA_RBINTEGRITY,
}
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_LOST = frozenset((0, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 2003, 2006, 2013))


class _Attached(Exception):  # noqa: N818 - it never leaves this module
    """Another session still holds the prepared branch."""


class MariaDB:
    """One server; url: mariadb://USER@HOST:PORT/DATABASE, or with ?unix_socket=PATH."""

    is_last_resource = False
    is_freed_by_prepare = False

    def __init__(self, name: str, url: str, password: str | None = None) -> None:
        self._driver = import_driver(name, "pymysql")
        parts = urlsplit(url)
        self._where: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": password or "",
            "database": parts.path.lstrip("/") or None,
            **{key: value for key, value in parse_qsl(parts.query) if key == "unix_socket"},
        }
        if "unix_socket" in self._where or self._where["host"] in _THIS_MACHINE:
            # PyMySQL loads all certificates anew for each session, 30 ms that protect nothing here
            self._where["ssl_disabled"] = True

    def connect(self) -> Any:
        """A session in which nothing begins by itself."""
        return self._driver.connect(
            autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, charset="utf8mb4", **self._where
        )

    def check(self, session: Any) -> str:
        """Why it cannot take part."""
        with session.cursor() as cursor:
            cursor.execute("SELECT engine FROM information_schema.engines WHERE xa = 'YES'")
            return "" if cursor.fetchall() else "no storage engine of it supports XA"

    def close(self, session: Any) -> None:
        """End a session; what it prepared stays prepared, and is free when this returns."""
        number = session.thread_id() if getattr(session, "hms_is_dirty", False) else 0
        with contextlib.suppress(self._driver.Error, OSError):
            session.close()
            if number:
                self._await_end(number)

    def _await_end(self, number: int) -> None:
        """Wait until the server lists a session no more. While it ends, a commit of what it has
        prepared says OK and does nothing; the branch is not listed then until the server boots."""
        until_s, pause = time.monotonic() + END_TIMEOUT_S, threading.Event()
        with contextlib.closing(self.connect()) as looking, looking.cursor() as cursor:
            while cursor.execute(_IS_THERE, (number,)) and time.monotonic() < until_s:
                pause.wait(END_PAUSE_S)

    def is_clean(self, session: Any) -> bool:
        """Whether it lives; a branch is never left open in a session that is given back."""
        return bool(session.open) and not getattr(session, "hms_is_dirty", False)

    def begin(self, session: Any, xid: Xid) -> None:
        """Begin."""
        session.hms_is_dirty = True
        _run(session, "XA START", xid)

    def prepare(self, session: Any, xid: Xid) -> int:
        """End and prepare."""
        _run(session, "XA END", xid)
        _run(session, "XA PREPARE", xid)
        return XA_OK

    def commit_one_phase(self, session: Any, xid: Xid) -> int:
        """End and commit."""
        _run(session, "XA END", xid)
        _run(session, "XA COMMIT", xid, " ONE PHASE")
        session.hms_is_dirty = False
        return XA_OK

    def roll_back(self, session: Any, xid: Xid) -> None:
        """End and roll back; what a deadlock has ended refuses the end, not the rollback."""
        with contextlib.suppress(self._driver.err.OperationalError):
            _run(session, "XA END", xid)
        _run(session, "XA ROLLBACK", xid)
        session.hms_is_dirty = False

    def commit_prepared(self, session: Any, xid: Xid) -> None:
        """Commit what is prepared."""
        self._finish(session, "XA COMMIT", xid)

    def roll_back_prepared(self, session: Any, xid: Xid) -> None:
        """Roll back what is prepared."""
        self._finish(session, "XA ROLLBACK", xid)

    def _finish(self, session: Any, statement: str, xid: Xid) -> None:
        try:
            _run(session, statement, xid)
        except self._driver.Error as fault:
            if _number(fault) == _NOTA and xid in self._listed(session):
                raise _Attached("another session still holds the prepared branch") from fault
            raise
        session.hms_is_dirty = False

    def prepared(self, session: Any, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches of the server, of all its databases."""
        found = sorted(self._listed(session))
        return [xid for xid in found if after is None or xid > after][:count]

    def _listed(self, session: Any) -> set[Xid]:
        """What XA RECOVER tells; MySQL knows no FORMAT."""
        is_mariadb = "mariadb" in session.get_server_info().lower()
        with session.cursor() as cursor:
            cursor.execute("XA RECOVER FORMAT='RAW'" if is_mariadb else "XA RECOVER CONVERT XID")
            rows = cursor.fetchall()
        read = _read_raw if is_mariadb else _read_hexadecimal
        return {xid for xid in map(read, rows) if xid is not None}

    def code_of(self, fault: Exception) -> int | None:
        """The code of an error of PyMySQL's."""
        if isinstance(fault, _Attached):
            return XA_RETRY
        if isinstance(fault, OSError):
            return XAER_RMFAIL
        if not isinstance(fault, self._driver.Error):
            return None
        number = _number(fault)
        return XAER_RMFAIL if number in _LOST else _CODES.get(number, XAER_RMERR)


def _run(session: Any, statement: str, xid: Xid, behind: str = "") -> None:
    name = f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}"
    session.query(f"{statement} {name}{behind}")


def _number(fault: Exception) -> int:
    return fault.args[0] if fault.args and isinstance(fault.args[0], int) else 0


def _read_raw(row: Any) -> Xid | None:
    format_id, gtrid_length, bqual_length, data = row
    raw = data if isinstance(data, bytes) else data.encode()
    return _made(format_id, raw, gtrid_length, bqual_length)


def _read_hexadecimal(row: Any) -> Xid | None:
    format_id, gtrid_length, bqual_length, data = row
    printed = data.decode() if isinstance(data, bytes) else data
    return _made(format_id, bytes.fromhex(printed[2:]), gtrid_length, bqual_length)


def _made(format_id: int, raw: bytes, gtrid_length: int, bqual_length: int) -> Xid | None:
    """None for what X/Open does not call an xid, and so is not ours."""
    try:
        return Xid(format_id, raw[:gtrid_length], raw[gtrid_length:][:bqual_length])
    except ValueError:
        return None
