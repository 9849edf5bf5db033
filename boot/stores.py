"""Which store a node has: the log in its directory, or a database."""

import re
from collections.abc import Callable
from pathlib import Path

from hms.boot import compose
from hms.boot.database_kinds import SQLITE
from hms.boot.entries import Config, Node
from hms.boot.secrets_of import password_of
from hms.engine.settings import EngineSettings
from hms.errors.catalogue import DatabaseUnavailable
from hms.store.database import DatabaseSettings, open_database
from hms.store.database.backend import Unreachable
from hms.store.interface import Store
from hms.store.journal import Journal
from hms.store.journal.confirmed_place import forget_place
from hms.store.journal.disk import REAL_DISK
from hms.store.shared import SHARED_DISK

__all__ = ["is_passing", "open_store", "table_prefix", "tables_of"]

PREFIX_MAX = 31


def open_store(
    config: Config, node: Node, heard: Callable[[int], None] = lambda _at_ms: None
) -> Store:
    """Open and claim it; heard: told the node's time by the tables of a database that another one
    has. Raises StoreLocked, StoreUnavailable and the errors of a database."""
    node_uid = compose.node_uid(config, node)
    if node.database is None:
        journal = Journal.open(
            node.store,
            segment_bytes=node.segment_bytes,
            node_uid=node_uid,
            limits=compose.log_limits(node),
            release=compose.release(),
            disk=SHARED_DISK if node.shared else REAL_DISK,
        )
        forget_place(REAL_DISK, node.store)
        return journal
    return open_database(
        _address(config.path.parent, node.database),
        table_prefix=table_prefix(node),
        node_uid=node_uid,
        settings=_settings(node, heard),
        password=_password(config.path.parent, node),
    )


def is_passing(fault: DatabaseUnavailable) -> bool:
    """Whether the database may answer later, as while it is booted; else an operator is needed."""
    return isinstance(fault.__cause__, Unreachable)


def tables_of(config: Config, node: Node) -> tuple[str, str | None]:
    """The address of a node's tables, with their prefix, as of a history, and their password."""
    assert node.database is not None
    address = _address(config.path.parent, node.database)
    return f"{address}#{table_prefix(node)}", _password(config.path.parent, node)


def table_prefix(node: Node) -> str:
    """What the names of its tables begin with."""
    if node.table_prefix is not None:
        return node.table_prefix
    word = re.sub(r"[^a-z0-9]", "_", node.name.lower())
    word = word if word[:1].isalpha() else f"n{word}"
    return f"{word[: PREFIX_MAX - 1]}_"


def _settings(node: Node, heard: Callable[[int], None]) -> DatabaseSettings:
    return DatabaseSettings(
        lease_s=node.database_lease_s,
        retry_s=node.database_retry_s,
        batches_max=node.max_requests,
        entries_max=EngineSettings().producers_remembered,
        history_bytes=node.history_bytes,
        history_age_s=node.history_age_s,
        audit_keep_s=node.audit_keep_s,
        clock_ms=compose.clock_ms,
        heard=heard,
    )


def _address(base: Path, database: str) -> str:
    if not database.startswith(SQLITE):
        return database
    path = Path(database.removeprefix(SQLITE)).expanduser()
    return f"{SQLITE}{base / path}"


def _password(base: Path, node: Node) -> str | None:
    """What database_password refers to."""
    return password_of(
        node.database_password,
        base,
        "database_password",
        lambda why: DatabaseUnavailable(path=node.database, detail=why),
    )
