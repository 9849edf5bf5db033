"""SQLite: the rows of one transaction, many a call."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from hms.store.database.backend import Transaction
from hms.store.database.rows import DefinitionRow, MemoryChanges

Statements = dict[str, str]


@contextmanager
def begun(session: sqlite3.Connection) -> Iterator[None]:
    """A transaction that is committed at the end of the block, or undone."""
    session.execute("BEGIN IMMEDIATE")
    try:
        yield
        session.execute("COMMIT")
    except BaseException:
        if session.in_transaction:
            session.execute("ROLLBACK")
        raise


def write(session: sqlite3.Connection, sql: Statements, transaction: Transaction) -> None:
    """All rows, in a transaction that the caller has begun."""
    changes = transaction.changes
    for number in changes.places_gone:
        for name in ("END_MESSAGES", "END_STAYS", "END_SUBSCRIPTION"):
            session.execute(sql[name], [number])
    session.executemany(sql["LEAVE"], changes.gone())
    session.executemany(sql["UNHELD"], [(id_,) for id_ in transaction.unheld])
    session.executemany(sql["MESSAGES"], _message_values(transaction))
    session.executemany(sql["STAYS"], changes.stays())
    session.executemany(sql["CHANGE"], changes.stay_changes())
    if transaction.keeps_history:
        session.executemany(sql["LOG"], _log_values(transaction))
    for row in changes.definitions.values():
        _place(session, sql, row)
    session.executemany(sql["IDS"], changes.ids_below.items())
    _remember(session, sql, transaction.memory.stored())
    session.executemany(sql["PENDING_GONE"], transaction.pending.gone())
    session.executemany(sql["PENDING"], transaction.pending.rows())
    session.executemany(sql["AUDIT"], transaction.audit)


def _message_values(transaction: Transaction) -> Iterator[tuple[object, ...]]:
    view, base = memoryview(transaction.blob), transaction.base
    for row in transaction.changes.messages():
        start = row.position - base
        middle = start + row.head_bytes
        yield (*row[:8], view[start:middle], view[middle : middle + row.body_bytes])


def _log_values(transaction: Transaction) -> Iterator[tuple[object, ...]]:
    view, base, at_ms = memoryview(transaction.blob), transaction.base, transaction.at_ms
    for one in transaction.entries:
        start = one.position - base
        payload = view[start : start + one.length]
        yield (one.lsn, one.kind, one.events, at_ms, one.position, payload)


def _place(session: sqlite3.Connection, sql: Statements, row: DefinitionRow) -> None:
    values: tuple[object, ...]
    if row.kind == "subscription":
        values = (row.number, row.name, row.topic, row.client_id, row.selector, row.definition)
        session.execute(sql["SUBSCRIPTION"], values)
    else:
        values = (row.number, row.kind, row.name, row.definition)
        session.execute(sql["DESTINATION"], values)


def _remember(session: sqlite3.Connection, sql: Statements, memory: MemoryChanges) -> None:
    session.executemany(sql["BATCHES_GONE"], memory.batches_gone)
    session.executemany(sql["BATCHES"], memory.batches)
    session.executemany(sql["FORGOTTEN"], memory.forgotten)
    session.executemany(sql["COMMITS_GONE"], memory.commits_gone)
    session.executemany(sql["COMMITS"], memory.commits)
