"""Growing log: the records of a copy, read while its primary goes on writing.

Each is given out once, in order, up to a place that is confirmed: what lies behind it may be cut.
A segment may get another name meanwhile, or go, when nothing in it is needed any more.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hms.errors.catalogue import StoreCorrupt
from hms.store.interface import StoredRecord
from hms.store.journal.confirmed_place import Place
from hms.store.journal.disk import READ, Disk
from hms.store.journal.segment_walk import (
    LOG_SUFFIX,
    LSN_MAX,
    SUFFIXES,
    ReadUpTo,
    SegmentInfo,
    Walk,
    read_info,
    segment_file,
    segment_numbers,
)
from hms.wire.record_runs import NO_RUNS

__all__ = ["GrowingLog", "is_in_log"]

_NO_LIMIT: Final = LSN_MAX


class GrowingLog:
    """See the module. Close it; one thread."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk: Any = _Limited(disk)
        self._folder = folder
        self._info: SegmentInfo | None = None
        self._walk: Walk | None = None
        self._fd = -1

    @property
    def read_up_to(self) -> ReadUpTo | None:
        """Where the records end that were given out; None before the first segment."""
        if self._info is None or self._walk is None:
            return None
        info = self._info
        return ReadUpTo(info.number, self._walk.at, self._walk.lsn, info.salt)

    def records(self, until: Place, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
        """Those before that place that were not given out yet. Raises StoreCorrupt where they do
        not follow on one another, and OSError, such as for a segment that is gone."""
        if self._walk is None:
            self._open(self._oldest())
        while self._info is not None and self._walk is not None:
            number = self._info.number
            if number > until.segment:  # all up to there was let go: what is here is not confirmed
                return
            self._disk.limit = until.offset if number >= until.segment else _NO_LIMIT
            self._walk.forget_window()
            yield from self._walk.records(0, runs_of)
            if number >= until.segment:
                return
            self._open(number + 1)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            self._disk.close(self._fd)
        self._fd = -1

    def _oldest(self) -> int:
        """The first segment that the log needs, as its newest one says."""
        newest = segment_numbers(self._disk, self._folder, LOG_SUFFIX)[-1:]
        if not newest:
            raise FileNotFoundError(f"{self._folder} has no segment")
        file = segment_file(self._folder, newest[0])
        return read_info(self._disk, file, newest[0], is_last=True).oldest

    def _open(self, number: int) -> None:
        info, fd = self._found(number)
        if self._walk is not None and info.first_lsn != self._walk.lsn:
            self._disk.close(fd)
            detail = f"it begins with {info.first_lsn}, but {self._walk.lsn} comes next"
            raise StoreCorrupt(file=str(info.file), offset=0, lsn=self._walk.lsn, detail=detail)
        self.close()
        self._info, self._fd = info, fd
        self._walk = Walk(self._disk, fd, info)

    def _found(self, number: int) -> tuple[SegmentInfo, int]:
        """Under whichever name it has now."""
        self._disk.limit = _NO_LIMIT
        for suffix in SUFFIXES:
            file = segment_file(self._folder, number, suffix)
            try:
                info = read_info(self._disk, file, number, is_last=False)
                return info, self._disk.open(file, READ)
            except FileNotFoundError:
                continue
        raise FileNotFoundError(f"segment {number} is gone")


def is_in_log(disk: Disk, folder: Path, place: ReadUpTo) -> bool:
    """Whether the log of a copy has that place, in the segment that was read."""
    newest = segment_numbers(disk, folder, LOG_SUFFIX)[-1:]
    if not newest:
        return False
    last = read_info(disk, segment_file(folder, newest[0]), newest[0], is_last=True)
    if not last.oldest <= place.number <= last.number:
        return False
    info = read_info(disk, segment_file(folder, place.number), place.number, is_last=False)
    return info.salt == place.salt and place.offset <= info.size


class _Limited:
    """A disk whose files end at `limit` for who reads them."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self.limit = disk, _NO_LIMIT

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """As much as lies before the limit."""
        return self._disk.pread(fd, max(0, min(size, self.limit - offset)), offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)
