"""From [rm.NAME] of hms.conf to a resource manager that answers.

The node tells its clients what kind each is and where; a secret it only names. The process that
opens the resource manager reads the secret from its own environment or file, so it never crosses
the wire.
"""

import atexit
import os
import threading
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import ResourceUnavailable
from hms.wire.xa_constants import XA_OK, code_name
from tpmon.xa.kit import DatabaseResource, Driver

__all__ = ["KINDS", "Definition", "close_resources", "make_resource", "open_resource"]

KINDS = ("postgresql", "mariadb", "sqlite")


class Definition(NamedTuple):
    """One [rm.NAME]; password: "env:NAME" or "file:PATH", never the password."""

    name: str
    kind: str
    open: str
    password: str = ""


_opened: dict[Definition, DatabaseResource] = {}
_of_parent: list[DatabaseResource] = []
"""Kept, as a session that is closed says good-bye: its parent's connection would end."""
_lock = threading.Lock()


def _forked() -> None:
    """In a forked child, whose parent goes on speaking through the sessions that it has open."""
    _of_parent.extend(_opened.values())
    _opened.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forked)


def open_resource(definition: Definition) -> DatabaseResource:
    """The one of this process, opened when it is first asked for; ResourceUnavailable,
    ResourceDriverMissing."""
    with _lock:
        known = _opened.get(definition)
    if known is not None:
        return known
    made = make_resource(definition)
    code = made.xa_open()
    if code != XA_OK:
        reason = f"{code_name(code)}: {made.reason}"
        raise ResourceUnavailable(resource=definition.name, reason=reason)
    with _lock:
        return _opened.setdefault(definition, made)


@atexit.register
def close_resources() -> None:
    """Close the sessions that this process keeps open for the next transactions."""
    with _lock:
        opened = list(_opened.values())
        _opened.clear()
    for rm in opened:
        rm.close_idle()


def make_resource(definition: Definition) -> DatabaseResource:
    """A new one that has not been opened; ResourceUnavailable, ResourceDriverMissing."""
    return DatabaseResource(definition.name, _driver(definition))


def _driver(definition: Definition) -> Driver:
    """That of its kind; each is imported only by who has such a database."""
    name, kind, where, reference = definition
    password = _secret(name, reference) if reference else None
    if kind == "postgresql":
        from tpmon.xa.postgresql import PostgreSQL  # noqa: PLC0415

        return PostgreSQL(name, where, password)
    if kind == "mariadb":
        from tpmon.xa.mariadb import MariaDB  # noqa: PLC0415

        return MariaDB(name, where, password)
    if kind == "sqlite":
        from tpmon.xa.sqlite import SQLite  # noqa: PLC0415

        return SQLite(name, where.removeprefix("sqlite:"))
    raise ResourceUnavailable(resource=name, reason=f"its kind {kind!r} is not known here")


def _secret(resource: str, reference: str) -> str:
    """What "env:NAME" or "file:PATH" holds; ResourceUnavailable."""
    how, _, where = reference.partition(":")
    try:
        return os.environ[where] if how == "env" else Path(where).read_text().rstrip("\r\n")
    except KeyError as fault:
        reason = f"the variable {where}, which password names, is not set in this process"
        raise ResourceUnavailable(resource=resource, reason=reason) from fault
    except (OSError, UnicodeDecodeError) as fault:
        reason = f"the file {where}, which password names, cannot be read: {fault}"
        raise ResourceUnavailable(resource=resource, reason=reason) from fault
