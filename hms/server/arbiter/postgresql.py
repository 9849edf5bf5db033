"""An arbiter in PostgreSQL: one row for each node, leases by the server's clock (extra sql).

Every call is one statement, so it is done as a whole or not at all. A server that may lose what it
has committed is no arbiter: fsync = off is refused, and synchronous_commit is switched on.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from hms.errors.catalogue import ArbiterDriverMissing, ArbiterUnavailable, ArbiterUnsuitable
from hms.server.arbiter.interface import (
    Configuration,
    Leader,
    Seen,
    Standing,
    encode,
    has_ended,
    led_by,
    next_epoch,
)
from hms.server.arbiter.watching import watch_with

__all__ = ["PostgresqlArbiter", "Statements"]

_TABLE: Final = """CREATE TABLE IF NOT EXISTS hms_arbiter (
    domain text, node text, version bigint NOT NULL, value bytea NOT NULL,
    leader text, epoch bigint, lease_until timestamptz,
    preferred text, preferred_until timestamptz, PRIMARY KEY (domain, node))"""
_READ: Final = """SELECT value,
    CASE WHEN lease_until > clock_timestamp() THEN leader END, epoch,
    CASE WHEN preferred_until > clock_timestamp() THEN preferred END
    FROM hms_arbiter WHERE domain = %s AND node = %s"""
_BEGIN: Final = """INSERT INTO hms_arbiter (domain, node, version, value) VALUES (%s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING version"""
_CHANGE: Final = """UPDATE hms_arbiter SET version = %s, value = %s
    WHERE domain = %s AND node = %s AND version = %s RETURNING version"""
_FORCE: Final = """UPDATE hms_arbiter SET version = %s, value = %s, preferred = NULL
    WHERE domain = %s AND node = %s AND version = %s
    AND (lease_until IS NULL OR lease_until <= clock_timestamp() OR leader = %s)
    RETURNING version"""
_CAMPAIGN: Final = """UPDATE hms_arbiter SET version = %s, value = %s, leader = %s, epoch = %s,
    lease_until = clock_timestamp() + %s * interval '1 second',
    preferred = CASE WHEN preferred LIKE '*%%' THEN preferred END
    WHERE domain = %s AND node = %s AND version = %s
    AND (lease_until IS NULL OR lease_until <= clock_timestamp())
    AND (preferred IS NULL OR preferred = %s OR preferred LIKE '*%%'
        OR preferred_until <= clock_timestamp())
    RETURNING version"""
_RENEW: Final = """UPDATE hms_arbiter SET lease_until = clock_timestamp() + %s * interval '1 second'
    WHERE domain = %s AND node = %s AND leader = %s AND epoch = %s RETURNING version"""
_RESIGN: Final = """UPDATE hms_arbiter SET lease_until = NULL, leader = NULL, preferred = %s,
    preferred_until = clock_timestamp() + %s * interval '1 second'
    WHERE domain = %s AND node = %s AND leader = %s AND epoch = %s RETURNING version"""
_DUPLICATE_TABLE: Final = ("42P07", "23505")
"""Two that make the table at once: the other one has."""


class PostgresqlArbiter:
    """See hms.server.arbiter.Arbiter. address: as of libpq; calls end after lease_s / 3, and after
    twice that where the server stands still: it ends no statement then, and no connection."""

    def __init__(
        self, address: str, domain: str, node: str, lease_s: float, password: str | None = None
    ) -> None:
        self._given = (address, domain, node, lease_s, password)
        self._key, self._lease_s = (domain, node), lease_s
        self._statements = Statements(address, lease_s, password)
        self._one = self._statements.one
        self._seen = Seen()
        self._granted: Leader | None = None

    def read(self) -> Standing | None:
        """See Arbiter."""
        row = self._one(_READ, self._key)
        if row is None:
            return None
        value, leader, epoch, preferred = row
        now = self._seen.decode(bytes(value), self._statements.shown)
        return Standing(now, None if leader is None else Leader(leader, epoch), preferred or "")

    def begin(self, first: Configuration) -> bool:
        """See Arbiter."""
        return self._one(_BEGIN, (*self._key, first.version, encode(first))) is not None

    def change(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        standing = self.read()
        if standing is None or standing.configuration.version != expected_version:
            return False
        if not led_by(standing.configuration, new, self._granted):
            return False
        said = (new.version, encode(new), *self._key, expected_version)
        return self._one(_CHANGE, said) is not None

    def force(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        said = (new.version, encode(new), *self._key, expected_version, new.members[0].name)
        return self._one(_FORCE, said) is not None

    def campaign(self, expected_version: int, replica: str, start: int) -> Configuration | None:
        """See Arbiter."""
        standing = self.read()
        if standing is None or standing.configuration.version != expected_version:
            return None
        won = next_epoch(standing.configuration, replica, start)
        said = (won.version, encode(won), replica, won.epoch, self._lease_s)
        if self._one(_CAMPAIGN, (*said, *self._key, expected_version, replica)) is None:
            return None
        self._granted = Leader(replica, won.epoch)
        return won

    def renew(self) -> bool:
        """See Arbiter."""
        granted = self._granted
        if granted is None:
            return False
        said = (self._lease_s, *self._key, granted.replica, granted.epoch)
        return self._one(_RENEW, said) is not None

    def resign(self, to: str = "") -> None:
        """See Arbiter."""
        granted = self._granted
        if granted is not None:
            who = (*self._key, granted.replica, granted.epoch)
            self._one(_RESIGN, (to or None, self._lease_s, *who))
        self._granted = None  # not before: asked again, it is done again

    def ended(self, granted: Leader) -> bool:
        """See Arbiter."""
        who = (*self._key, granted.replica, granted.epoch)
        return self._one(_RESIGN, (has_ended(granted.epoch), self._lease_s, *who)) is not None

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See Arbiter."""
        own = PostgresqlArbiter(*self._given)
        return watch_with(own, callback, self._lease_s / 5)

    def close(self) -> None:
        """See Arbiter."""
        self._statements.close()


class Statements:
    """One statement after the other, over one session. address: as of libpq; shown: without who
    asks. Every call raises ArbiterUnavailable; the first one ArbiterUnsuitable, too."""

    def __init__(self, address: str, lease_s: float, password: str | None) -> None:
        self._address, self._lease_s, self._password = address, lease_s, password
        self._limit_s = max(lease_s / 3, 0.5)
        self._connection: Any = None
        self._lock = threading.Lock()
        self.shown = address.partition("@")[2] or address

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row that it gives, or None."""
        psycopg = _driver()
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connected(psycopg)
                with _ended_after(2 * self._limit_s, self._connection):
                    return self._connection.execute(statement, values).fetchone()
            except (psycopg.Error, OSError) as error:
                self._drop()
                detail = " ".join(str(error).split()) or type(error).__name__
                raise ArbiterUnavailable(endpoint=self.shown, detail=detail) from error

    def close(self) -> None:
        """Let go of the session; the next call has another one."""
        with self._lock:
            self._drop()

    def _connected(self, psycopg: Any) -> Any:
        limit_ms = int(self._limit_s * 1000)
        made = psycopg.connect(
            self._address,
            password=self._password,
            autocommit=True,
            connect_timeout=max(2, int(self._lease_s / 3)),
            tcp_user_timeout=limit_ms,
            options=f"-c statement_timeout={limit_ms} -c synchronous_commit=on",
        )
        try:
            with _ended_after(2 * self._limit_s, made):
                self._prepare(psycopg, made)
        except BaseException:
            made.close()
            raise
        return made

    def _prepare(self, psycopg: Any, made: Any) -> None:
        if made.execute("SHOW fsync").fetchone()[0] != "on":
            detail = "fsync is off: it may lose what it has said to be so"
            raise ArbiterUnsuitable(endpoint=self.shown, detail=detail)
        try:
            made.execute(_TABLE)
        except psycopg.Error as error:
            if error.sqlstate not in _DUPLICATE_TABLE:
                raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@contextmanager
def _ended_after(limit_s: float, connection: Any) -> Iterator[None]:
    """A call that waits for an answer over a connection by then is told that it has ended."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:

        def end() -> None:
            with suppress(OSError):  # it has ended
                same.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ArbiterDriverMissing(driver="psycopg", extra="sql") from error
    return psycopg
