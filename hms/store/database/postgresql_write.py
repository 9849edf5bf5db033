"""PostgreSQL: one commit is one pipelined transaction.

BEGIN, the fence, the rows and COMMIT leave together and nobody waits in between, so a commit costs
one round trip, and a node that is stopped leaves a transaction open only while bytes are under way.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from hms.errors.catalogue import StoreFailed
from hms.store.database.backend import Transaction
from hms.store.database.pending import PendingRows
from hms.store.database.rows import DefinitionRow, MemoryChanges

Session = psycopg.Connection[tuple[Any, ...]]
Statements = dict[str, str]


def write(session: Session, sql: Statements, transaction: Transaction, lease_ms: int) -> None:
    """Commit it. Raises DivisionByZero when the fence does not hold."""
    with session.pipeline():
        session.execute("BEGIN")
        _fence(session, sql, transaction, lease_ms)
        _leave(session, sql, transaction)
        _insert(session, sql, transaction)
        _many(session, sql["STAYS"], transaction.changes.stays())
        _many(session, sql["CHANGE"], transaction.changes.stay_changes())
        _define(session, sql, transaction)
        _remember(session, sql, transaction.memory.stored())
        _hold(session, sql, transaction.pending)
        for row in transaction.audit:
            session.execute(sql["AUDIT"], [str(row.number), str(row.at_ms), row.record])
        done = session.execute("COMMIT")
    if done.statusmessage != "COMMIT":
        raise StoreFailed(path="the database", detail=f"COMMIT was answered {done.statusmessage}")


def _fence(session: Session, sql: Statements, transaction: Transaction, lease_ms: int) -> None:
    after, before = transaction.after, transaction.before
    asked = [after.last_lsn, after.next_position, after.next_number, after.next_seq, after.now_ms]
    asked_too = [after.event, after.event_ms, lease_ms, before.epoch, before.last_lsn]
    session.execute(sql["FENCE"], [*map(str, asked), *map(str, asked_too)])


def _leave(session: Session, sql: Statements, transaction: Transaction) -> None:
    for number in transaction.changes.places_gone:
        for name in ("END_MESSAGES", "END_STAYS", "END_SUBSCRIPTION"):
            session.execute(sql[name], [str(number)])
    gone = transaction.changes.gone()
    _many(session, sql["LEAVE"], gone)
    if transaction.unheld:
        session.execute(sql["UNHELD"], [array(transaction.unheld)])


def _insert(session: Session, sql: Statements, transaction: Transaction) -> None:
    """The history's rows and the messages take their bytes from one value."""
    first = 1 - transaction.base
    asked: dict[str, Any] = {"blob": transaction.blob, "at_ms": str(transaction.at_ms)}
    rows = [(*row, row.position + first) for row in transaction.changes.messages()]
    if rows:
        asked |= {f"m{i}": array(column) for i, column in enumerate(zip(*rows, strict=True))}
    if transaction.keeps_history:
        asked |= _log_columns(transaction, first)
        session.execute(sql["LOG_AND_MESSAGES" if rows else "LOG"], asked)
    elif rows:
        session.execute(sql["MESSAGES"], asked)


def _log_columns(transaction: Transaction, first: int) -> dict[str, str]:
    rows = [
        (one.lsn, one.kind, one.events, one.position, one.position + first, one.length)
        for one in transaction.entries
    ]
    return {f"l{i}": array(column) for i, column in enumerate(zip(*rows, strict=True))}


def _define(session: Session, sql: Statements, transaction: Transaction) -> None:
    for row in transaction.changes.definitions.values():
        _place(session, sql, row)
    for index, below in transaction.changes.ids_below.items():
        session.execute(sql["IDS"], [str(index), str(below)])


def _place(session: Session, sql: Statements, row: DefinitionRow) -> None:
    if row.kind == "subscription":
        asked = [str(row.number), row.name, str(row.topic), row.client_id, row.selector]
        session.execute(sql["SUBSCRIPTION"], [*asked, row.definition])
    else:
        asked = [str(row.number), row.kind, row.name]
        session.execute(sql["DESTINATION"], [*asked, row.definition])


def _remember(session: Session, sql: Statements, memory: MemoryChanges) -> None:
    _many(session, sql["BATCHES_GONE"], memory.batches_gone)
    _many(session, sql["BATCHES"], memory.batches)
    _many(session, sql["FORGOTTEN"], memory.forgotten)
    _many(session, sql["COMMITS_GONE"], memory.commits_gone)
    _many(session, sql["COMMITS"], memory.commits)


def _hold(session: Session, sql: Statements, pending: PendingRows) -> None:
    for kind, name in pending.gone():
        session.execute(sql["PENDING_GONE"], [str(kind), name])
    for row in pending.rows():
        session.execute(sql["PENDING"], [str(row.kind), row.name, str(row.lsn), row.record])


def _many(session: Session, text: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """One statement for all rows, a column each."""
    if rows:
        session.execute(text, [array(column) for column in zip(*rows, strict=True)])


def array(values: Iterable[object]) -> str:
    """An array as the server reads it; the values are numbers and truths."""
    return f"{{{','.join(map(str, values))}}}"
