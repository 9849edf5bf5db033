"""The database store: the same guarantees as the journal, in tables (F-I2).

rows         the tables' rows            schema       the tables and their versions
steps        deliveries and returns      changes      what one transaction writes, netted
remembered   producers and commits       translation  records to changes
restated     rows to records             backlog      append: numbers and positions
owner        who holds a store           outage       how long a database is waited for
departed     rows that nothing holds     upkeep       lease, rows that nothing holds, history
backend      what is asked of a database, had by postgresql and sqlite
portable_sql statements that both take; what differs is in postgresql_sql and sqlite_sql
store        all of it together
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
