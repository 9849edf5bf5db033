"""PostgreSQL: the claim on the tables, reading and writing them.

A claim takes the next epoch, when the lease is over or its holder is known to be dead, and
ends the sessions of the epoch before: a node that was stopped in the midst of a transaction must
not keep the row of meta locked. All clocks compared are the server's.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from psycopg import errors

from hms.errors.catalogue import (
    DatabaseUnavailable,
    StoreFailed,
    StoreFenced,
    StoreLocked,
    StoreUnavailable,
)
from hms.errors.tree import FieldValue
from hms.store.database.backend import Claim, Transaction, Unreachable
from hms.store.database.owner import is_dead
from hms.store.database.pending import PendingRow
from hms.store.database.postgresql_session import Session, Sessions, shown_as
from hms.store.database.postgresql_sql import prepared
from hms.store.database.postgresql_write import array, write
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
    TYPES_POSTGRESQL,
    VERSIONS,
    check_version,
    migration_table,
    statements_from,
)

CLAIM_TIMEOUT_S: Final = 10
CHUNK_ROWS: Final = 1000
CHUNK_BYTES: Final = 4 << 20


class PostgreSQL:
    """Implements hms.store.database.backend.Backend."""

    def __init__(self, conninfo: str, password: str | None, prefix: str) -> None:
        self._prefix = prefix
        self.shown = shown_as(conninfo, prefix)
        self._sql = prepared(prefix)
        self._sessions = Sessions(conninfo, password, self.shown)
        self._claim: Claim
        self._epoch = 0

    # boot

    def claim(self, claim: Claim) -> Meta:
        """Connect, make or upgrade the tables, and take the next epoch."""
        self._claim = claim
        try:
            with self._sessions.writing() as session:
                self._migrate(session)
                return self._take(session)
        except Unreachable as error:
            raise DatabaseUnavailable(path=self.shown, detail=str(error)) from error
        except StoreFailed as error:  # nothing has begun yet that could have failed
            raise DatabaseUnavailable(path=self.shown, detail=error.detail) from error

    def _migrate(self, session: Session) -> None:
        with session.transaction():
            lock = "SELECT pg_advisory_xact_lock(hashtext(%s))"
            session.execute(lock, [f"hms:{self._prefix}"])
            session.execute(migration_table(self._prefix, TYPES_POSTGRESQL))
            version = session.execute(self._sql["VERSION"]).fetchall()[0][0]
            check_version(version, self.shown)
            for statement in statements_from(version, self._prefix, TYPES_POSTGRESQL):
                session.execute(statement)
            for made in range(version, len(VERSIONS)):
                session.execute(self._sql["MIGRATED"], [made + 1])
            session.execute(self._sql["FIRST_META"], [self._claim.node_uid, FIRST_POSITION])

    def _take(self, session: Session) -> Meta:
        """The next epoch, or StoreLocked."""
        state = session.execute(self._sql["STATE"]).fetchall()[0]
        node_uid, epoch, host, pid, mark, until_ms, now_ms, node_ms = state
        if node_uid != self._claim.node_uid:
            detail = f"its tables are those of node {node_uid}, this is node {self._claim.node_uid}"
            raise StoreUnavailable(path=self.shown, detail=detail)
        self._claim.heard(node_ms)
        if until_ms > now_ms and not is_dead(mark):
            raise self._locked(host, pid, until_ms - now_ms)
        session.execute(self._sql["END_SESSIONS"], [self._session_name(epoch)])
        if not self._is_taken(session, epoch, until_ms):
            # Another one was faster, or it is not dead after all.
            raise self._locked(host, pid, self._claim.lease_ms)
        self._epoch = epoch + 1
        self._sessions.name = self._session_name(self._epoch)
        named = "SELECT set_config('application_name', %s, false)"
        session.execute(named, [self._sessions.name])
        return self._meta(session)

    def _is_taken(self, session: Session, epoch: int, until_ms: int) -> bool:
        asked = [*self._claim.owner, self._claim.lease_ms, epoch, until_ms]
        session.execute(f"SET lock_timeout = '{CLAIM_TIMEOUT_S}s'")
        try:
            return session.execute(self._sql["TAKE"], asked).rowcount == 1
        except errors.LockNotAvailable:
            return False
        finally:
            session.execute("SET lock_timeout = 0")

    def _locked(self, host: str, pid: int, left_ms: int) -> StoreLocked:
        ends = f"its lease ends in {max(1, round(left_ms / 1000))} s unless it is renewed"
        return StoreLocked(path=self.shown, pid=f"{pid} on {host}: {ends}")

    def _session_name(self, epoch: int) -> str:
        return f"hms:{self._prefix}:{epoch}"

    def _meta(self, session: Session) -> Meta:
        found = session.execute(self._sql["META"]).fetchone()
        if found is None:
            raise StoreFailed(path=self.shown, detail=f"{self.shown}: the row of meta is gone")
        return Meta(*found)

    # what is there

    def definitions(self) -> list[bytes]:
        """Encoded definitions, topics before their subscriptions."""
        return [
            row[0]
            for name in ("DESTINATIONS", "SUBSCRIPTIONS")
            for row in self._sessions.all(self._sql[name])
        ]

    def ids_below(self) -> list[int]:
        """Bounds of the ids given away, one for each node index."""
        return [row[0] for row in self._sessions.all(self._sql["IDS_BELOW"])]

    def batches(self) -> list[BatchRow]:
        """All batches that are remembered."""
        rows = self._sessions.all(self._sql["ALL_BATCHES"])
        return [BatchRow(*row).converted(unsigned) for row in rows]

    def commits(self) -> list[CommitRow]:
        """All commits that are remembered."""
        rows = self._sessions.all(self._sql["ALL_COMMITS"])
        return [CommitRow(unsigned(uid), *rest) for uid, *rest in rows]

    def pending(self) -> list[PendingRow]:
        """Records that hold, in their order."""
        return [PendingRow(*row) for row in self._sessions.all(self._sql["ALL_PENDING"])]

    def audit_head(self) -> bytes | None:
        """The last record of the audit."""
        return next((row[0] for row in self._sessions.all(self._sql["AUDIT_HEAD"])), None)

    def messages(self) -> Generator[tuple[MessageRow, bytes], None, None]:
        """Every message with its head and body, by position."""
        chunk: list[MessageRow] = []
        room = CHUNK_BYTES
        for values in self._sessions.stream(self._sql["ALL_MESSAGES"]):
            row = MessageRow(*values)
            chunk.append(row)
            room -= row.head_bytes + row.body_bytes
            if room < 0 or len(chunk) == CHUNK_ROWS:
                yield from self._with_payloads(chunk)
                chunk, room = [], CHUNK_BYTES
        if chunk:
            yield from self._with_payloads(chunk)

    def _with_payloads(self, rows: list[MessageRow]) -> Iterator[tuple[MessageRow, bytes]]:
        bounds = (rows[0].position, rows[-1].position)
        found = self._sessions.all(self._sql["PAYLOADS"], *bounds)
        yield from zip(rows, (row[0] for row in found), strict=True)

    def stays(self) -> Generator[StayRow, None, None]:
        """Every message at each of its places, by position."""
        yield from map(StayRow._make, self._sessions.stream(self._sql["ALL_STAYS"]))

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of messages, from any thread; None when some are gone."""
        found = self._sessions.all(self._sql["READ"], position + size, position)
        return covering(found, position, size)

    # writing

    def write(self, transaction: Transaction) -> None:
        """All of it, or nothing; also when it is asked twice."""
        with self._sessions.writing() as session:
            try:
                write(session, self._sql, transaction, self._claim.lease_ms)
            except errors.DivisionByZero:
                session.rollback()
                judge(transaction.before, transaction.after, self._meta(session), self.shown)

    def renew(self, now_ms: int) -> None:
        """Hold the lease a further time; now_ms: by the node's clock."""
        with self._sessions.writing() as session:
            lease = [self._claim.lease_ms, now_ms, self._epoch]
            if not session.execute(self._sql["RENEW"], lease).rowcount:
                theirs = self._meta(session).epoch
                raise StoreFenced(path=self.shown, ours=self._epoch, theirs=theirs)

    def sweep(self, unheld: Sequence[int]) -> None:
        """Delete the rows of messages that nothing holds any more."""
        with self._sessions.writing() as session:
            session.execute(self._sql["SWEEP"], [array(unheld), self._epoch])

    def prune(self, before_ms: int, before_position: int, rows_max: int) -> int:
        """Delete the oldest rows of the history; how many they were."""
        with self._sessions.writing() as session:
            asked = [rows_max, before_ms, before_position, self._epoch]
            return session.execute(self._sql["PRUNE"], asked).rowcount

    def oldest_ms(self) -> tuple[int | None, int | None]:
        """When the first record of the history was written, and the first one of the audit."""
        ((of_history, of_audit),) = self._sessions.all(self._sql["OLDEST"])
        return of_history, of_audit

    def prune_audit(self, before_ms: int) -> None:
        """Delete the records of the audit that are older than this."""
        with self._sessions.writing() as session:
            session.execute(self._sql["PRUNE_AUDIT"], [before_ms, self._epoch])

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
        self._sessions.close()

    def _release(self) -> None:
        """A second time over a new session; after that the lease ends by itself."""
        for _ in range(2):
            with (
                contextlib.suppress(Unreachable, StoreFailed),
                self._sessions.writing() as session,
            ):
                session.execute(self._sql["RELEASE"], [self._epoch])
                return
