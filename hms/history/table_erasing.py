"""Erasing from a database store: what waits nowhere any more goes at once, and in the history and
the audit bodies become zeros and heads say nothing, as in a log.

It is done beside the node, some rows at a time, each some in a transaction of its own: nobody waits
for long, and a run that dies is made good by the next one. SQLite overwrites what is deleted, and
its -wal is emptied at the end. A server keeps what was written in dead rows and in its own log
until those who run it remove them: `statement` says how.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hms.errors.catalogue import DatabaseDriverMissing, DatabaseUnavailable
from hms.history.erasing import AUDIT, Content, Erasure
from hms.history.tables import SQLITE
from hms.records import RecordType

__all__ = ["ErasedTables", "erase_tables"]

ROWS = 500
BUSY_S = 60.0
EMPTIED_S = 30.0
PAUSE_S = 0.1
_WITH_MESSAGES = (RecordType.SENT, RecordType.GROUP, RecordType.MOVED, RecordType.PREPARED)
_KINDS = ", ".join(str(int(kind)) for kind in (*_WITH_MESSAGES, RecordType.AUDIT))
_HELD = "EXISTS (SELECT 1 FROM {p}subscription_message s WHERE s.position = {p}message.position)"
_MESSAGES = (
    f"SELECT position, id, timestamp_ms, expires_at_ms, priority, head, {_HELD} FROM {{p}}message"  # noqa: S608
    " WHERE position > ? ORDER BY position LIMIT ?"
)
_GONE = f"DELETE FROM {{p}}message WHERE position = ? AND NOT {_HELD}"  # noqa: S608
_LOG = (
    "SELECT lsn, kind, payload FROM {p}log"  # noqa: S608
    f" WHERE kind IN ({_KINDS}) AND lsn > ? ORDER BY lsn LIMIT ?"
)
_BLANK = "UPDATE {p}log SET payload = ? WHERE lsn = ?"
_AUDIT = "SELECT number, record FROM {p}audit WHERE number > ? ORDER BY number LIMIT ?"
_BLANK_AUDIT = "UPDATE {p}audit SET record = ? WHERE number = ?"
_PENDING = f"SELECT record FROM {{p}}pending WHERE kind = {int(RecordType.PREPARED)}"  # noqa: S608
_REWRITTEN = ("log", "message", "audit", "pending")


class ErasedTables(NamedTuple):
    """found: messages, and records of the audit; left: of these, what waits or is in flight, or all
    while the -wal could not be emptied; statement: the tables of a server to be rewritten."""

    found: int
    left: int
    statement: str


def erase_tables(
    address: str, password: str | None, erasure: Erasure, *, is_dry: bool
) -> ErasedTables:
    """Blank what is chosen. address: as of a history. is_dry: only look. DatabaseUnavailable."""
    plain, _, prefix = address.partition("#")
    is_sqlite = plain.startswith(SQLITE)
    with _session(plain, password) as session:
        tables = _Tables(session, prefix, erasure, is_dry=is_dry, is_sqlite=is_sqlite)
        found, left = tables.run()
        is_emptied = is_dry or not is_sqlite or _emptied(session)
    count = len(found - {AUDIT}) + tables.audited
    names = "" if is_sqlite else ", ".join(prefix + name for name in _REWRITTEN)
    return ErasedTables(count, len(left) if is_emptied else count, names)


class _Tables:
    """Those of one node."""

    def __init__(
        self, session: Any, prefix: str, erasure: Erasure, *, is_dry: bool, is_sqlite: bool
    ) -> None:
        self._session, self._prefix, self._erasure = session, prefix, erasure
        self._is_dry, self._is_sqlite = is_dry, is_sqlite
        self.audited = 0
        """Records of the table of the audit."""

    def run(self) -> tuple[set[int], set[int]]:
        """The ids of messages that were found, and of those that are left."""
        found: set[int] = set()
        left: set[int] = set()
        self._each(_MESSAGES, lambda row: self._message(row, found, left))
        self._each(_LOG, lambda row: self._logged(row, found))
        self._each(_AUDIT, self._audit)
        for (record,) in self._ask(_PENDING):
            left.update(self._erasure.blank_payload(RecordType.PREPARED, bytearray(record)))
        return found | left, left

    def _each(
        self, query: str, change: Callable[[Sequence[Any]], tuple[str, Sequence[Any]]]
    ) -> None:
        """Have rows looked at in their order, and changed as that says; ("", ()) for not."""
        last = -1
        while rows := self._ask(query, last, ROWS):
            last = rows[-1][0]
            changes = [one for one in map(change, rows) if one[0]]
            if changes and not self._is_dry:
                self._session.execute("BEGIN IMMEDIATE" if self._is_sqlite else "BEGIN")
                for text, values in changes:
                    self._execute(text, values)
                self._session.execute("COMMIT")

    def _message(
        self, row: Sequence[Any], found: set[int], left: set[int]
    ) -> tuple[str, Sequence[Any]]:
        position, id_, sent_ms, until_ms, priority, head, is_held = row
        one = Content(id_, sent_ms, until_ms, priority, bytes(head), b"")
        if not self._erasure.chooses(one):
            return "", ()
        (left if is_held else found).add(id_)
        return ("", ()) if is_held else (_GONE, (position,))

    def _logged(self, row: Sequence[Any], found: set[int]) -> tuple[str, Sequence[Any]]:
        lsn, kind, payload = row[0], row[1], bytearray(row[2])
        ids = self._erasure.blank_payload(kind, payload)
        found.update(ids)
        return (_BLANK, (bytes(payload), lsn)) if ids else ("", ())

    def _audit(self, row: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        blank = self._erasure.blank_audit(bytes(row[1]))
        if blank is None:
            return "", ()
        self.audited += 1
        return _BLANK_AUDIT, (blank, row[0])

    def _ask(self, query: str, *values: int) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = self._execute(query, values).fetchall()
        return rows

    def _execute(self, query: str, values: Sequence[Any]) -> Any:
        text = query.format(p=self._prefix)
        return self._session.execute(text if self._is_sqlite else text.replace("?", "%s"), values)


def _emptied(session: Any) -> bool:
    """What the -wal had is in the file, and the -wal has no bytes; readers may be in the way."""
    pause, until = threading.Event(), time.monotonic() + EMPTIED_S
    while session.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() >= until:
            return False
        pause.wait(PAUSE_S)
    return True


@contextmanager
def _session(address: str, password: str | None) -> Iterator[Any]:
    if address.startswith(SQLITE):
        file = Path(address.removeprefix(SQLITE)).absolute()
        try:
            with closing(
                sqlite3.connect(f"{file.as_uri()}?mode=rw", BUSY_S, isolation_level=None, uri=True)
            ) as session:
                session.execute("PRAGMA secure_delete = ON")
                session.execute("PRAGMA synchronous = FULL")
                yield session
        except sqlite3.Error as fault:
            raise DatabaseUnavailable(path=address, detail=str(fault)) from fault
        return
    try:
        import psycopg  # noqa: PLC0415 - an optional package
    except ImportError as fault:
        raise DatabaseDriverMissing(detail=str(fault)) from fault
    try:
        with psycopg.connect(address, password=password, autocommit=True) as session:
            yield session
    except psycopg.Error as fault:
        raise DatabaseUnavailable(path=address.rpartition("@")[2], detail=str(fault)) from fault
