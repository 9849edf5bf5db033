"""SQLite: one file for one node, in WAL mode and synced at every commit.

A lock on a file beside the database is held as long as the process lives, so no lease has to run
out; the epoch is proved nevertheless. What SQLite cannot do for want of space it may try again; an
error of reading or writing is final, as for the journal (P7).
"""

import contextlib
import fcntl
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hms.errors.catalogue import (
    StoreFailed,
    StoreFenced,
    StoreLocked,
    StoreNotWhole,
    StoreUnavailable,
)
from hms.errors.tree import FieldValue
from hms.store.database.backend import Claim, Transaction, Unreachable
from hms.store.database.pending import PendingRow
from hms.store.database.rows import (
    BatchRow,
    CommitRow,
    MessageRow,
    Meta,
    StayRow,
    covering,
    judge,
    unsigned,
)
from hms.store.database.schema import (
    FIRST_POSITION,
    TYPES_SQLITE,
    VERSIONS,
    check_version,
    statements_from,
)
from hms.store.database.sqlite_file import check_file, check_size, check_tables, make_file
from hms.store.database.sqlite_sql import prepared
from hms.store.database.sqlite_write import begun, write

RESERVE_BYTES: Final = 64 << 20
"""With less than this free, new messages are refused, so that acknowledgements still fit."""
WAL_SHARE: Final = 4
_FREE_PAGES: Final = ("PRAGMA freelist_count", "PRAGMA page_size")
BUSY_TIMEOUT_S: Final = 10.0
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_PASSING: Final = frozenset(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED"))


class SQLite:
    """Implements hms.store.database.backend.Backend."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self.shown = f"sqlite:{path} ({prefix}*)"
        self._sql = prepared(prefix)
        self._lock_fd = -1
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._epoch = 0
        self._own: list[tuple[str, tuple[int, int]]] = []
        """The files that are written to, with their devices and inodes."""

    # boot

    def claim(self, claim: Claim) -> Meta:
        """Lock the file, make or upgrade the tables, and take the next epoch."""
        try:
            return self._claim(claim)
        except BaseException:
            self.close(is_released=False)
            raise

    def _claim(self, claim: Claim) -> Meta:
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock_fd = self._locked()
            if check_file(self._path, self.shown):
                check_tables(self._path, self._prefix, self.shown)
            else:
                make_file(self._path, self._prefix)
            self._writer = self._connect()
            check_size(self._writer, self._path, self.shown)
            meta = self._claimed(self._writer, claim)
            names = (str(self._path), f"{self._path}-wal")
            self._own = [(name, _identity(name)) for name in names]
        except (OSError, sqlite3.Error) as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(_DAMAGED):
                raise StoreNotWhole(path=self.shown, detail=f"{error} ({name})") from error
            raise StoreUnavailable(path=self.shown, detail=str(error)) from error
        return meta

    def _locked(self) -> int:
        lock = f"{self._path}.lock"
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 20, 0).strip().decode("ascii", "replace")
            os.close(fd)
            raise StoreLocked(path=self.shown, pid=holder or "unknown") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return fd

    def _claimed(self, session: sqlite3.Connection, claim: Claim) -> Meta:
        with begun(session):
            (found,) = session.execute(self._sql["VERSION"]).fetchone()
            check_version(found, self.shown)
            for statement in statements_from(found, self._prefix, TYPES_SQLITE):
                session.execute(statement)
            for version in range(found, len(VERSIONS)):
                session.execute(self._sql["MIGRATED"], [version + 1, _now_ms()])
            if not found:
                session.execute(self._sql["FIRST_META"], [claim.node_uid, FIRST_POSITION])
            known = self._meta(session)
            if known.node_uid != claim.node_uid:
                whose = f"its tables are those of node {known.node_uid}, not {claim.node_uid}"
                raise StoreUnavailable(path=self.shown, detail=whose)
            session.execute(self._sql["TAKE"], [*claim.owner, _now_ms() + claim.lease_ms])
            meta = self._meta(session)
        self._epoch = meta.epoch
        return meta

    # what is there

    def definitions(self) -> list[bytes]:
        """Encoded definitions, topics before their subscriptions."""
        return [
            row[0]
            for name in ("DESTINATIONS", "SUBSCRIPTIONS")
            for row in self._all(self._sql[name])
        ]

    def ids_below(self) -> list[int]:
        """Bounds of the ids given away, one for each node index."""
        return [row[0] for row in self._all(self._sql["IDS_BELOW"])]

    def batches(self) -> list[BatchRow]:
        """All batches that are remembered."""
        rows = self._all(self._sql["ALL_BATCHES"])
        return [BatchRow(*row).converted(unsigned) for row in rows]

    def commits(self) -> list[CommitRow]:
        """All commits that are remembered."""
        rows = self._all(self._sql["ALL_COMMITS"])
        return [CommitRow(unsigned(uid), *rest) for uid, *rest in rows]

    def pending(self) -> list[PendingRow]:
        """Records that hold, in their order."""
        return [PendingRow(*row) for row in self._all(self._sql["ALL_PENDING"])]

    def audit_head(self) -> bytes | None:
        """The last record of the audit."""
        return next((row[0] for row in self._all(self._sql["AUDIT_HEAD"])), None)

    def messages(self) -> Generator[tuple[MessageRow, bytes], None, None]:
        """Every message with its head and body, by position."""
        for values in self._stream("ALL_MESSAGES"):
            head, body = values[8:]
            yield MessageRow._make((*values[:8], len(head), len(body))), head + body

    def stays(self) -> Generator[StayRow, None, None]:
        """Every message at each of its places, by position."""
        for values in self._stream("ALL_STAYS"):
            yield StayRow._make((*values[:6], bool(values[6])))

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of a message, from any thread; None when it is gone."""
        found = self._all(self._sql["READ"], position + size, position)
        return covering([(at, head + body) for at, head, body in found], position, size)

    # writing

    def write(self, transaction: Transaction) -> None:
        """All of it, or nothing; also when it is asked twice."""
        with self._written() as session:
            after, before = transaction.after, transaction.before
            asked = [*after[2:], before.epoch, before.last_lsn]
            if session.execute(self._sql["FENCE"], asked).rowcount:
                write(session, self._sql, transaction)
                return
            found = self._meta(session)
        judge(before, after, found, self.shown)

    def renew(self, now_ms: int) -> None:  # noqa: ARG002 - a standby has the same clock
        """The lock is held as long as the process lives; the epoch is checked nevertheless."""
        with self._written() as session:
            (found,) = session.execute(self._sql["EPOCH"]).fetchone()
        if found != self._epoch:
            raise StoreFenced(path=self.shown, ours=self._epoch, theirs=found)

    def sweep(self, unheld: Sequence[int]) -> None:
        """Delete the rows of messages that nothing holds any more."""
        with self._written() as session:
            session.executemany(self._sql["UNHELD"], [(id_,) for id_ in unheld])

    def prune(self, before_ms: int, before_position: int, rows_max: int) -> int:
        """Delete the oldest rows of the history; how many they were."""
        with self._written() as session:
            asked = [rows_max, before_ms, before_position]
            return session.execute(self._sql["PRUNE"], asked).rowcount

    def oldest_ms(self) -> tuple[int | None, int | None]:
        """When the first record of the history was written, and the first one of the audit."""
        ((of_history, of_audit),) = self._all(self._sql["OLDEST"])
        return of_history, of_audit

    def prune_audit(self, before_ms: int) -> None:
        """Delete the records of the audit that are older than this."""
        with self._written() as session:
            session.execute(self._sql["PRUNE_AUDIT"], [before_ms])

    def shortage(self) -> str | None:
        """Too little space, on the disk and in the file, which never becomes smaller.

        What is written passes through the WAL before it fills the file, so the disk has a part.
        """
        try:
            free = shutil.disk_usage(self._path.parent).free
        except OSError as error:
            return f"{self._path.parent}: {error.strerror}"
        if free >= RESERVE_BYTES:
            return None
        inside = self._free_bytes()
        if free >= RESERVE_BYTES // WAL_SHARE and free + inside >= RESERVE_BYTES:
            return None
        where = f"on the disk of {self._path}, {inside} in it"
        return f"{free} bytes are free {where}, {RESERVE_BYTES} are reserved"

    def _free_bytes(self) -> int:
        """Pages of the file that hold nothing; 0 while it cannot be asked."""
        with contextlib.suppress(Unreachable):
            ((pages,),), ((page_bytes,),) = map(self._all, _FREE_PAGES)
            return int(pages) * int(page_bytes)
        return 0

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""
        return {"epoch": self._epoch}

    def close(self, *, is_released: bool) -> None:
        """Let go of the file."""
        for session in (self._writer, self._reader):
            if session is not None:
                with contextlib.suppress(sqlite3.Error):
                    if is_released and session is self._writer and self._epoch:
                        session.execute(self._sql["RELEASE"], [self._epoch])
                    session.close()
        self._writer = self._reader = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # connections

    def _connect(self) -> sqlite3.Connection:
        session = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        session.execute("PRAGMA journal_mode = WAL")
        session.execute("PRAGMA synchronous = FULL")
        session.execute("PRAGMA secure_delete = ON")  # for hms erase; most are built with it
        return session

    def _meta(self, session: sqlite3.Connection) -> Meta:
        found = session.execute(self._sql["META"]).fetchone()
        if found is None:
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: the row of meta is gone")
        return Meta(*found)

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the one session that writes."""
        assert self._writer is not None, "claim() comes first"
        with self._judged(), begun(self._writer):
            yield self._writer
        self._check_own()

    def _check_own(self) -> None:
        """SQLite writes on into files that were removed or replaced; who boots does not find that.

        Raises StoreFailed, before anything is confirmed that only they have.
        """
        for name, own in self._own:
            try:
                is_own = _identity(name) == own
            except OSError as error:
                detail = f"{name} was removed or moved ({error.strerror})"
                raise StoreFailed(path=self.shown, detail=detail) from error
            if not is_own:
                raise StoreFailed(path=self.shown, detail=f"{name} was replaced")

    @contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name in _PASSING:
                raise Unreachable(f"{error} ({name})") from error
            detail = f"{self.shown}: {error} ({name or type(error).__name__})"
            raise StoreFailed(path=self.shown, detail=detail) from error

    def _all(self, text: str, *arguments: int) -> list[tuple[Any, ...]]:
        with self._reading, self._judged():
            if self._reader is None:
                self._reader = self._connect()
            return self._reader.execute(text, arguments).fetchall()

    def _stream(self, name: str) -> Generator[tuple[Any, ...], None, None]:
        """All rows of a query, over a session of its own."""
        with self._judged(), contextlib.closing(self._connect()) as session:
            yield from session.execute(self._sql[name])


def _identity(name: str) -> tuple[int, int]:
    found = os.stat(name)  # noqa: PTH116 - asked for each commit; Path is slower here
    return found.st_dev, found.st_ino


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
