"""The mark of shipping: up to which moment a folder of backups has all that a node wrote.

A round in which nothing was written makes no backup. Without a mark the folder of a node that is
gone does not tell whether it was idle since its last backup, or not shipped.
"""

import contextlib
import json
import os
from pathlib import Path

import msgspec

from hms.history.backups.backup_manifest import sync_folder

__all__ = ["MARK", "Mark", "read_mark", "write_mark"]

MARK = "shipped.json"
FORMAT, VERSION = "hms-shipped", 1


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What was confirmed before at_ms, when the round began, is in the backup of that name or in
    those that it follows; lsn: its last record."""

    node: str
    backup: str
    lsn: int
    at_ms: int
    format: str = FORMAT
    version: int = VERSION


def write_mark(folder: Path, mark: Mark) -> None:
    """In place of the one before, synced; OSError leaves that."""
    half = folder / f".{MARK}.half"
    try:
        with half.open("w") as out:
            out.write(json.dumps(msgspec.to_builtins(mark), indent=1) + "\n")
            out.flush()
            os.fsync(out.fileno())
        half.replace(folder / MARK)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def read_mark(folder: Path) -> Mark | None:
    """None when there is none that can be read: nobody knows then."""
    try:
        mark = msgspec.json.decode((folder / MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):
        return None
    return mark if (mark.format, mark.version) == (FORMAT, VERSION) else None
