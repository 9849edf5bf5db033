"""The database store: the same guarantees as the journal, in tables (F-I2).

backend             what a database is asked; postgresql and sqlite implement it
portable_sql        statements that both take; the rest is in postgresql_sql and sqlite_sql
schema, rows        the tables and their versions; their rows
translation         records to changes of rows
row_changes         what one transaction writes, netted
message_steps       deliveries and returns of one message, folded into one change
deduplication_rows  which batches and commits are kept
pending             records that hold until another record ends them
table_records       rows to records, for recovery
commit_backlog      records that wait for the database, with their numbers and positions
owner, outage       who holds a store; how long a database is waited for
departed_messages   rows that nothing holds any more
upkeep              lease, rows that nothing holds, history
store               the Store interface over all of it
"""

from pathlib import Path

from hms.errors.catalogue import DatabaseDriverMissing
from hms.store.database.backend import Backend
from hms.store.database.store import DatabaseStore
from hms.store.database.upkeep import DatabaseSettings

__all__ = ["SQLITE", "DatabaseSettings", "DatabaseStore", "open_database"]

SQLITE = "sqlite:"


def open_database(
    address: str,
    *,
    table_prefix: str,
    node_uid: int,
    settings: DatabaseSettings,
    password: str | None = None,
) -> DatabaseStore:
    """Open "sqlite:PATH" or "postgresql://…" and claim the tables.

    Raises StoreLocked, StoreUnavailable, DatabaseUnavailable, StoreFormatUnknown and
    DatabaseDriverMissing.
    """
    return DatabaseStore(_backend(address, table_prefix, password), settings, node_uid)


def _backend(address: str, table_prefix: str, password: str | None) -> Backend:
    if address.startswith(SQLITE):
        from hms.store.database.sqlite import SQLite  # noqa: PLC0415 - only who uses it loads it

        return SQLite(Path(address.removeprefix(SQLITE)).absolute(), table_prefix)
    try:
        from hms.store.database.postgresql import PostgreSQL  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise DatabaseDriverMissing(detail=str(error)) from error
    return PostgreSQL(address, password, table_prefix)
