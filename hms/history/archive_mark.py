"""The mark: a file in the store's directory that says what an archive has of it, and where.

The archive writes it behind each commit. Readers find the archive by it, and a node with archive =
"REQUIRED" lets go of nothing from the named segment on.
"""

import os
import uuid
from pathlib import Path

import msgspec

from hms.errors.catalogue import ArchiveError
from hms.history.archive_place import is_url, local_place, sync
from hms.history.manifest import load_manifest
from hms.history.segments import sealed
from hms.store.journal.archive_mark import ARCHIVE_MARK

__all__ = ["Mark", "archive_lines", "read_mark", "write_mark"]


class Mark(msgspec.Struct, frozen=True):
    """until_segment: those of the log below this number are in the archive, verified. store, boot:
    who wrote what stands before until_offset, see Writer."""

    where: str
    until_offset: int
    until_segment: int
    store: str = ""
    boot: str = ""


def read_mark(store: str | os.PathLike[str]) -> Mark | None:
    """The mark of a store's directory; None without one. ArchiveError when it is damaged."""
    file = Path(store) / ARCHIVE_MARK
    try:
        return msgspec.json.decode(file.read_bytes(), type=Mark)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as fault:
        detail = f"its mark {file} cannot be read ({fault}); hms history archive writes it anew"
        raise ArchiveError(where=str(file.parent), detail=detail) from fault


def write_mark(store: str | os.PathLike[str], mark: Mark) -> None:
    """Replace the mark; safe on the disk when this returns."""
    target = Path(store) / ARCHIVE_MARK
    draft = target.with_name(f"{ARCHIVE_MARK}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(msgspec.json.encode(mark))
        sync(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    sync(target.parent)


def archive_lines(path: str) -> list[str]:
    """What hms history info tells of a store's archive; nothing when there is none."""
    mark = read_mark(path)
    if mark is None:
        return []
    behind = [one.size for one in sealed(path) if one.until_offset > mark.until_offset]
    lines = [f"archive {mark.where}: offsets below {mark.until_offset}"]
    manifest = None if is_url(mark.where) else load_manifest(local_place(mark.where))
    if manifest is not None:
        rows, size = (
            sum(getattr(one, name) for one in manifest.files) for name in ("rows", "size")
        )
        lines[0] += f", {rows} rows in {len(manifest.files)} files of {size} bytes"
        lines += [f"  gone before they were archived: {a} to {b - 1}" for a, b in manifest.gaps]
    if behind:
        lines.append(f"  not archived yet: {len(behind)} sealed segments of {sum(behind)} bytes")
    return lines
