"""The archive's mark moves with the log: every copy has the newest one that any of them was given.

An archive may run at any copy. What it has of the log it notes beside that copy; the copies tell
one another, so that it goes on at another machine where it ended, and none lets go of what no
archive has. A mark is a lower bound: an older one costs nothing but a second look.
"""

from pathlib import Path
from typing import Final

from hms.store.journal.archive_mark import ARCHIVE_MARK, archived_offset, mark_bytes
from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.segment_walk import opened

__all__ = ["ArchiveMarks"]

_NEW: Final = f"{ARCHIVE_MARK}.copied"


class ArchiveMarks:
    """Those of one copy, as its link sees them; one thread."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk, self._folder = disk, folder
        self._told = b""

    def news(self) -> bytes:
        """The mark when it is another than was told last; else nothing."""
        here = mark_bytes(self._disk, self._folder)
        if here == self._told or archived_offset(here) is None:
            return b""
        self._told = here
        return here

    def again(self) -> None:
        """A copy that comes was told nothing yet."""
        self._told = b""

    def take(self, theirs: bytes) -> bool:
        """Keep another copy's when it is newer; whether it was one at all."""
        offset = archived_offset(theirs)
        if offset is None:
            return False
        ours = archived_offset(mark_bytes(self._disk, self._folder))
        if ours is None or ours < offset:
            new = self._folder / _NEW
            self._disk.unlink(new)
            with opened(self._disk, new, CREATE) as fd:
                write_all(self._disk, fd, [theirs], 0)
                self._disk.fsync(fd)
            self._disk.rename(new, self._folder / ARCHIVE_MARK)
            self._disk.fsync_dir(self._folder)
        return True
