"""Tables: the history of a store in a database, read from its table of records.

The address is that of `database` in hms.conf with the tables' prefix behind a number sign, such as
"sqlite:/srv/hms/store.db#node1_" or "postgresql://hms@host/hms#node1_". A database shows only what
was committed, and all of it in order: there is no live tail to be careful with.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hms.errors.catalogue import DatabaseUnavailable, HistoryError
from hms.history.scope import Scope
from hms.history.segments import LogRecord
from hms.records import Identity, RecordType, decode_identity

__all__ = [
    "Table",
    "audit_below",
    "audit_of_tables",
    "identity_of_tables",
    "is_database",
    "records_of_table",
    "tables_for",
]

SQLITE, POSTGRESQL = "sqlite:", ("postgresql://", "postgres://")
RANGE_OFFSETS = 500_000
"""A part has so many offsets."""
_FETCHED = 2000
_PREFIX_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_ENDS = "SELECT min(lsn), max(lsn + events) FROM {p}log"
_PLACES = (
    "SELECT number, definition FROM {p}destination"
    " UNION ALL SELECT number, definition FROM {p}durable_subscription ORDER BY 1"
)
_AUDIT = "SELECT record FROM {p}audit WHERE number > {above} ORDER BY number"
_AUDIT_PAGE = "SELECT record FROM {p}audit WHERE number < {below} ORDER BY number DESC"
_IDENTITY = "SELECT record FROM {p}pending WHERE kind = 41"
_DEFINED = (
    "SELECT lsn, kind, events, payload FROM {p}log"
    " WHERE kind IN (1, 11) AND lsn < {first} ORDER BY lsn"
)
_RECORDS = (
    "SELECT lsn, kind, events, payload FROM {p}log"
    " WHERE lsn < {until} AND lsn + events > {first} ORDER BY lsn"
)


@dataclass(frozen=True, slots=True)
class Table:
    """The records of a database with offsets from first_offset to until_offset, excluded."""

    address: str
    first_offset: int
    until_offset: int


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the address of a database."""
    return str(path).startswith((SQLITE, *POSTGRESQL))


def tables_for(address: str, scope: Scope) -> list[Table]:
    """The ranges of records that may hold what is asked for. DatabaseUnavailable."""
    first, until = next(iter(_ask(address, _ENDS)))
    if first is None:
        return []
    first = max(first, scope.first_offset)
    until = until if scope.until_offset is None else min(until, scope.until_offset)
    steps = range(first, until, RANGE_OFFSETS)
    return [Table(address, at, min(at + RANGE_OFFSETS, until)) for at in steps]


def identity_of_tables(address: str) -> Identity:
    """Which store it is; an empty one where no boot has told it. DatabaseUnavailable."""
    for (record,) in _ask(address, _IDENTITY):
        return decode_identity(bytes(record)).public
    return Identity()


def records_of_table(table: Table) -> Iterator[LogRecord]:
    """The records of a range, behind the definitions that they refer to."""
    span = {"first": table.first_offset, "until": table.until_offset}
    for _, definition in _ask(table.address, _PLACES):
        yield 0, int(RecordType.DEFINED), 0, bytes(definition), 0
    for query in (_DEFINED, _RECORDS):
        for lsn, kind, events, payload in _ask(table.address, query, None, **span):
            yield lsn, kind, events, bytes(payload), 0


def audit_of_tables(address: str, password: str | None, above: int) -> Iterator[bytes]:
    """The records of the audit with a higher number than that. DatabaseUnavailable."""
    for (record,) in _ask(address, _AUDIT, password, above=above):
        yield bytes(record)


def audit_below(address: str, password: str | None, below: int) -> Iterator[bytes]:
    """Those with a lower number, the highest first; what is not taken is not fetched.
    DatabaseUnavailable."""
    for (record,) in _ask(address, _AUDIT_PAGE, password, below=below):
        yield bytes(record)


def _ask(
    address: str, query: str, password: str | None = None, **numbers: int
) -> Iterator[tuple[Any, ...]]:
    plain, _, prefix = address.partition("#")
    if not prefix or not _PREFIX_CHARACTERS.issuperset(prefix):
        detail = f"{plain!r} needs the prefix of the tables behind a #, such as {plain}#node1_"
        raise HistoryError(detail=detail)
    text = query.format(p=prefix, **numbers)
    if plain.startswith(SQLITE):
        yield from _ask_sqlite(plain, text)
    else:
        yield from _ask_postgresql(plain, text, password)


def _ask_sqlite(address: str, query: str) -> Iterator[tuple[Any, ...]]:
    file = Path(address.removeprefix(SQLITE)).absolute()
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as session:
            cursor = session.execute(query)
            while rows := cursor.fetchmany(_FETCHED):
                yield from rows
    except sqlite3.Error as fault:
        raise DatabaseUnavailable(path=address, detail=str(fault)) from fault


def _ask_postgresql(address: str, query: str, password: str | None) -> Iterator[tuple[Any, ...]]:
    try:
        import psycopg  # noqa: PLC0415 - an optional package
    except ImportError as fault:
        from hms.errors.catalogue import DatabaseDriverMissing  # noqa: PLC0415

        raise DatabaseDriverMissing(detail=str(fault)) from fault
    shown = address.rpartition("@")[2]
    try:
        with (
            psycopg.connect(address, password=password) as session,
            session.cursor("history") as cursor,
        ):
            cursor.itersize = _FETCHED
            cursor.execute(query.encode())
            yield from cursor
    except psycopg.Error as fault:
        raise DatabaseUnavailable(path=shown, detail=str(fault)) from fault
