"""The file of a store on SQLite, before it is used: is it what a node left there?

SQLite takes a file of no bytes for a new database and throws its -wal away, and takes any database
for one that has no tables yet. So a node makes a new file under another name, with a first table in
it, and then gives it its own: whatever else is found there is refused, and not written to.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreNotWhole
from hms.store.database.schema import TYPES_SQLITE, migration_table

__all__ = ["check_file", "check_size", "check_tables", "make_file"]

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_LARGEST_PAGE: Final = 1 << 16
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"


def make_file(path: Path, prefix: str) -> None:
    """A new file, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    with closing(sqlite3.connect(new, isolation_level=None)) as session:
        session.execute("PRAGMA synchronous = FULL")
        session.execute(migration_table(prefix, TYPES_SQLITE))
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check_file(path: Path, shown: str) -> bool:
    """Whether there is a file; StoreNotWhole for one that cannot be a store's."""
    wal_bytes = _size(Path(f"{path}-wal")) or 0
    size = _size(path)
    if size is None:
        if wal_bytes:
            detail = f"it is gone, and its -wal of {wal_bytes} bytes is there"
            raise StoreNotWhole(path=shown, detail=detail)
        return False
    if not size:
        raise StoreNotWhole(path=shown, detail="the file has no bytes")
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC):
        raise StoreNotWhole(path=shown, detail="the file is no SQLite database")
    if not wal_bytes:
        _check_pages(header, size, shown)
    return True


def check_size(session: sqlite3.Connection, path: Path, shown: str) -> None:
    """The same when what its -wal had is in it."""
    is_busy, _, _ = session.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    (pages,), (page_bytes,) = (
        session.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
    )
    size = _size(path) or 0
    if not is_busy and size < pages * page_bytes:
        raise StoreNotWhole(path=shown, detail=_short(size, pages * page_bytes))


def check_tables(path: Path, prefix: str, shown: str) -> None:
    """A database whose tables are none of this store's is somebody else's; it is only read."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as session:
        names = sorted(name for (name,) in session.execute(_TABLES))
    if f"{prefix}migration" in names:
        return
    others = f"it has {len(names)} others, as {names[0]}" if names else "it has none"
    detail = f"the database has no table {prefix}migration; {others}"
    raise StoreNotWhole(path=shown, detail=detail)


def _check_pages(header: bytes, size: int, shown: str) -> None:
    if len(header) < _HEADER_BYTES:
        raise StoreNotWhole(path=shown, detail=f"the file has {size} bytes")
    page_bytes, counter, pages, counted_at = (
        int.from_bytes(header[at : at + length], "big")
        for at, length in ((16, 2), (24, 4), (28, 4), (92, 4))
    )
    wanted = pages * (_LARGEST_PAGE if page_bytes == 1 else page_bytes)
    if counter == counted_at and size < wanted:
        raise StoreNotWhole(path=shown, detail=_short(size, wanted))


def _short(size: int, wanted: int) -> str:
    return f"the file has {size} of {wanted} bytes"


def _size(path: Path) -> int | None:
    """None when it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
