"""PostgreSQL: connections, the claim on the tables, and reading them.

Whoever claims takes the next epoch, when the lease is over or its holder is known to be dead, and
ends the sessions of the epoch before: a node that was stopped in the midst of a transaction must
not keep the row of meta locked. All clocks compared are the server's.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from field_buffer.catalogue import (
    DatabaseUnavailable,
    StoreFailed,
    StoreFenced,
    StoreLocked,
    StoreUnavailable,
)
from field_buffer.errors import FieldValue
from hms.store.database.backend import Claim, Transaction, Unreachable
from hms.store.database.owner import is_dead
from hms.store.database.postgresql_sql import DEFINITIONS, prepared
from hms.store.database.postgresql_write import array, write
from hms.store.database.rows import (
    BatchRow,
    CommitRow,
    MessageRow,
    Meta,
    StayRow,
    covering,
    unsigned,
)
from hms.store.database.schema import (
    FIRST_POSITION,
    TYPES_POSTGRESQL,
    VERSIONS,
    check_version,
    migration_table,
    statements_from,
)

Rows = list[tuple[Any, ...]]
Session = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S: Final = 5
CLAIM_TIMEOUT_S: Final = 10
STREAM_ROWS: Final = 1000
STREAM_BYTES: Final = 4 << 20
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
_SETTINGS: Final = (
    # The tables grow from nothing to millions of rows while plans are kept: always by index.
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    " SET jit = off; SET client_min_messages = error"
)


class PostgreSQL:
    """Implements hms.store.database.backend.Backend."""

    def __init__(self, conninfo: str, password: str | None, prefix: str) -> None:
        self._conninfo, self._password, self._prefix = conninfo, password, prefix
        self.shown = _shown(conninfo, prefix)
        self._sql = prepared(prefix)
        self._definitions = [text.format(p=prefix) for text in DEFINITIONS]
        self._claim: Claim
        self._epoch = 0
        self._writer: Session | None = None
        self._reader: Session | None = None
        self._reading = threading.Lock()

    # boot

    def claim(self, claim: Claim) -> Meta:
        """Connect, make or upgrade the tables, and take the next epoch."""
        self._claim = claim
        try:
            self._writer = self._connect()
            _check_server(self._writer, self.shown)
            self._migrate(self._writer)
            return self._take(self._writer)
        except psycopg.Error as error:
            raise DatabaseUnavailable(path=self.shown, detail=_said(error)) from error

    def _migrate(self, session: Session) -> None:
        with session.transaction():
            lock = "SELECT pg_advisory_xact_lock(hashtext(%s))"
            session.execute(lock, [f"hms:{self._prefix}"])
            session.execute(migration_table(self._prefix, TYPES_POSTGRESQL))
            table = f"{self._prefix}migration"
            found = session.execute(
                psycopg.sql.SQL("SELECT coalesce(max(version), 0) FROM {}").format(
                    psycopg.sql.Identifier(table)
                )
            ).fetchone()
            assert found is not None
            check_version(found[0], f"{self.shown} {table}")
            for statement in statements_from(found[0], self._prefix, TYPES_POSTGRESQL):
                session.execute(statement)
            for version in range(found[0], len(VERSIONS)):
                session.execute(
                    psycopg.sql.SQL(
                        "INSERT INTO {} SELECT %s, extract(epoch FROM now()) * 1000"
                    ).format(psycopg.sql.Identifier(table)),
                    [version + 1],
                )
            session.execute(self._sql["FIRST_META"], [self._claim.node_uid, FIRST_POSITION])

    def _take(self, session: Session) -> Meta:
        """The next epoch, or StoreLocked."""
        session.execute(f"SET lock_timeout = '{CLAIM_TIMEOUT_S}s'")
        state = session.execute(self._sql["STATE"]).fetchone()
        assert state is not None
        node_uid, epoch, host, pid, mark, until_ms, now_ms = state
        if node_uid != self._claim.node_uid:
            detail = f"its tables are those of node {node_uid}, this is node {self._claim.node_uid}"
            raise StoreUnavailable(path=self.shown, detail=detail)
        if until_ms > now_ms and not is_dead(mark):
            raise self._locked(host, pid, until_ms - now_ms)
        session.execute(self._sql["END_SESSIONS"], [self._session_name(epoch)])
        owner = self._claim.owner
        asked = [*owner, self._claim.lease_ms, epoch, until_ms]
        try:
            taken = session.execute(self._sql["TAKE"], asked).fetchone()
        except errors.LockNotAvailable:
            taken = None
        if taken is None:  # another one was faster, or it is not dead after all
            raise self._locked(host, pid, self._claim.lease_ms)
        self._epoch = taken[0]
        session.execute("SET lock_timeout = 0")
        self._name(session)
        return self._meta(session)

    def _locked(self, host: str, pid: int, left_ms: int) -> StoreLocked:
        ends = f"its lease ends in {max(1, round(left_ms / 1000))} s unless it is renewed"
        return StoreLocked(path=self.shown, pid=f"{pid} on {host}: {ends}")

    # what is there

    def definitions(self) -> list[bytes]:
        """Encoded definitions, topics before their subscriptions."""
        return [row[0] for text in self._definitions for row in self._all(text)]

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

    def messages(self) -> Generator[tuple[MessageRow, bytes], None, None]:
        """Every message with its head and body, by position."""
        chunk: list[MessageRow] = []
        room = STREAM_BYTES
        for values in self._stream("ALL_MESSAGES"):
            row = MessageRow(*values)
            chunk.append(row)
            room -= row.head_bytes + row.body_bytes
            if room < 0 or len(chunk) == STREAM_ROWS:
                yield from self._with_payloads(chunk)
                chunk, room = [], STREAM_BYTES
        if chunk:
            yield from self._with_payloads(chunk)

    def _with_payloads(self, rows: list[MessageRow]) -> Iterator[tuple[MessageRow, bytes]]:
        found = self._all(self._sql["PAYLOADS"], rows[0].position, rows[-1].position)
        yield from zip(rows, (row[0] for row in found), strict=True)

    def stays(self) -> Generator[StayRow, None, None]:
        """Every message at each of its places, by position."""
        yield from map(StayRow._make, self._stream("ALL_STAYS"))

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of a message, from any thread; None when it is gone."""
        return covering(self._all(self._sql["READ"], position + size, position), position, size)

    # writing

    def write(self, transaction: Transaction) -> None:
        """All of it, or nothing; also when it is asked twice."""
        with self._written() as session:
            try:
                write(session, self._sql, transaction, self._claim.lease_ms)
            except errors.DivisionByZero:
                session.rollback()
                self._judge(transaction, self._meta(session))

    def _judge(self, transaction: Transaction, found: Meta) -> None:
        """The fence did not hold: it was committed before, or the store is another's."""
        before, after = transaction.before, transaction.after
        if found.epoch != before.epoch:
            raise StoreFenced(path=self.shown, ours=before.epoch, theirs=found.epoch)
        if found.last_lsn != after.last_lsn:
            detail = f"its last sequence number is {found.last_lsn}, not {before.last_lsn}"
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: {detail}")

    def renew(self) -> None:
        """Hold the lease a further time."""
        with self._written() as session:
            lease = [self._claim.lease_ms, self._epoch]
            if not session.execute(self._sql["RENEW"], lease).rowcount:
                theirs = self._meta(session).epoch
                raise StoreFenced(path=self.shown, ours=self._epoch, theirs=theirs)

    def sweep(self, unheld: Sequence[int]) -> None:
        """Delete the rows of messages that nothing holds any more."""
        with self._written() as session:
            session.execute(self._sql["UNHELD"], [array(unheld)])

    def prune(self, before_ms: int, before_position: int, rows_max: int) -> int:
        """Delete the oldest rows of the history; how many they were."""
        with self._written() as session:
            asked = [rows_max, before_ms, before_position, self._epoch]
            return session.execute(self._sql["PRUNE"], asked).rowcount

    def shortage(self) -> str | None:
        """The server knows its disks, we do not."""
        return None

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""
        return {"epoch": self._epoch}

    def close(self, *, is_released: bool) -> None:
        """Let go of the connections, and of the lease."""
        if is_released and self._epoch:
            self._release()
        self._drop("_writer")
        with self._reading:
            self._drop("_reader")

    def _release(self) -> None:
        """A second time over a new session; after that the lease ends by itself."""
        for _ in range(2):
            with contextlib.suppress(Unreachable, StoreFailed), self._written() as session:
                session.execute(self._sql["RELEASE"], [self._epoch])
                return

    # connections

    def _connect(self) -> Session:
        session = psycopg.connect(
            self._conninfo,
            password=self._password,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            prepare_threshold=0,
            application_name=self._session_name(self._epoch),
        )
        try:
            session.execute(_SETTINGS, prepare=False)
        except BaseException:
            session.close()
            raise
        return session

    def _session_name(self, epoch: int) -> str:
        return f"hms:{self._prefix}:{epoch}"

    def _name(self, session: Session) -> None:
        asked = [self._session_name(self._epoch)]
        session.execute("SELECT set_config('application_name', %s, false)", asked)

    def _meta(self, session: Session) -> Meta:
        found = session.execute(self._sql["META"]).fetchone()
        if found is None:
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: the row of meta is gone")
        return Meta(*found)

    @contextmanager
    def _written(self) -> Iterator[Session]:
        """The session that writes, made anew when it was lost."""
        try:
            if self._writer is None:
                self._writer = self._connect()
                _check_server(self._writer, self.shown)
            yield self._writer
        except _PASSING as error:
            self._drop("_writer")
            raise Unreachable(_said(error)) from error
        except psycopg.Error as error:
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: {_said(error)}") from error

    def _all(self, text: str, *arguments: int) -> Rows:
        with self._reading:
            return self._read(lambda session: session.execute(text, arguments, binary=True))

    def _read(self, ask: Callable[[Session], psycopg.Cursor[tuple[Any, ...]]]) -> Rows:
        try:
            if self._reader is None:
                self._reader = self._connect()
            return ask(self._reader).fetchall()
        except _PASSING as error:
            self._drop("_reader")
            raise Unreachable(_said(error)) from error
        except psycopg.Error as error:
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: {_said(error)}") from error

    def _stream(self, name: str) -> Generator[tuple[Any, ...], None, None]:
        """All rows of a query, over a session of its own."""
        try:
            with (
                self._connect() as session,
                session.transaction(),
                session.cursor(name="rows") as cursor,
            ):
                cursor.itersize = STREAM_ROWS
                yield from cursor.execute(self._sql[name], binary=True)
        except _PASSING as error:
            raise Unreachable(_said(error)) from error

    def _drop(self, name: str) -> None:
        session = getattr(self, name)
        setattr(self, name, None)
        if session is not None:
            session.close()


def _check_server(session: Session, shown: str) -> None:
    """What it confirms must be safe (P1)."""
    found = session.execute(
        "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    )
    fsync, mode = found.fetchone() or ("off", "off")
    if fsync == "off":
        raise DatabaseUnavailable(path=shown, detail="it runs with fsync = off and would lose data")
    if mode == "off":
        session.execute("SET synchronous_commit = on")


def _shown(conninfo: str, prefix: str) -> str:
    """Where it is, without what is secret."""
    known = conninfo_to_dict(conninfo)
    host = known.get("host") or known.get("hostaddr") or ""
    port = f":{known['port']}" if known.get("port") else ""
    return f"postgresql://{host}{port}/{known.get('dbname', '')} ({prefix}*)"


def _said(error: Exception) -> str:
    """The first line of what the server or the library said at first."""
    while isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return (str(error).strip() or type(error).__name__).splitlines()[0]
