"""PostgreSQL: sessions, made anew when they were lost.

One writes, one reads, and each stream of many rows has its own. What may pass by itself (a lost
connection, a server that stops or has no space) is Unreachable; anything else is final.
"""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from hms.errors.catalogue import DatabaseUnavailable, StoreFailed
from hms.store.database.backend import Unreachable

Session = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S: Final = 5
STREAM_ROWS: Final = 1000
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
_SETTINGS: Final = (
    # The tables grow from nothing to millions of rows while plans are kept: always by index.
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    " SET jit = off; SET client_min_messages = error"
)


class Sessions:
    """The sessions of one store; `name` tells the server whose they are."""

    def __init__(self, conninfo: str, password: str | None, shown: str) -> None:
        self._conninfo, self._password, self._shown = conninfo, password, shown
        self._writer: Session | None = None
        self._reader: Session | None = None
        self._reading = threading.Lock()
        self.name = "hms"

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """The session that writes; for one thread at a time."""
        with self._judged("_writer"):
            if self._writer is None:
                self._writer = self._connect()
                self._check_server(self._writer)
            yield self._writer

    def all(self, text: str, *arguments: int) -> list[tuple[Any, ...]]:
        """All rows of a query, from any thread."""
        with self._reading, self._judged("_reader"):
            if self._reader is None:
                self._reader = self._connect()
            return self._reader.execute(text, arguments, binary=True).fetchall()

    def stream(self, text: str) -> Generator[tuple[Any, ...], None, None]:
        """The rows of a query, fetched in portions over a session of its own."""
        with (
            self._judged(""),
            self._connect() as session,
            session.transaction(),
            session.cursor(name="rows") as cursor,
        ):
            cursor.itersize = STREAM_ROWS
            yield from cursor.execute(text, binary=True)

    def close(self) -> None:
        """End them."""
        self._drop("_writer")
        with self._reading:
            self._drop("_reader")

    def _connect(self) -> Session:
        session = psycopg.connect(
            self._conninfo,
            password=self._password,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            prepare_threshold=0,
            application_name=self.name,
        )
        try:
            session.execute(_SETTINGS, prepare=False)
        except BaseException:
            session.close()
            raise
        return session

    def _check_server(self, session: Session) -> None:
        """What it confirms must be safe (P1)."""
        asked = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        fsync, mode = session.execute(asked).fetchone() or ("off", "off")
        if fsync == "off":
            detail = "it runs with fsync = off and would lose data"
            raise DatabaseUnavailable(path=self._shown, detail=detail)
        if mode == "off":
            session.execute("SET synchronous_commit = on")

    @contextmanager
    def _judged(self, name: str) -> Iterator[None]:
        """Sort what goes wrong; a session of that name that did not answer is dropped."""
        try:
            yield
        except _PASSING as error:
            if name:
                self._drop(name)
            raise Unreachable(said(error)) from error
        except psycopg.Error as error:
            raise StoreFailed(path=self._shown, detail=f"{self._shown}: {said(error)}") from error

    def _drop(self, name: str) -> None:
        session = getattr(self, name)
        setattr(self, name, None)
        if session is not None:
            session.close()


def shown_as(conninfo: str, prefix: str) -> str:
    """Where it is, without what is secret."""
    known = conninfo_to_dict(conninfo)
    host = known.get("host") or known.get("hostaddr") or ""
    port = f":{known['port']}" if known.get("port") else ""
    return f"postgresql://{host}{port}/{known.get('dbname', '')} ({prefix}*)"


def said(error: Exception) -> str:
    """The first line of what the server or the library said at first."""
    while isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return (str(error).strip() or type(error).__name__).splitlines()[0]
