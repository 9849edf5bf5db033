"""The segment that is being written."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from hms.errors.catalogue import StoreFailed
from hms.store.interface import SEGMENT_SHIFT
from hms.store.journal.disk import Disk, write_all
from hms.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Author,
    Entry,
    pack_records,
    pack_seal,
    pack_segment_header,
    unpack_segment_header,
)
from hms.store.journal.segment_walk import segment_file

SPARE_NAME: Final = "spare.log"


class Segment:
    """A segment file, begun and open for writing."""

    def __init__(self, disk: Disk, path: Path, fd: int, number: int, header: bytes) -> None:
        parsed = unpack_segment_header(header)
        assert parsed is not None
        self.number = number
        self._disk, self._path, self._fd = disk, path, fd
        self._salt = parsed.salt
        self._name = disk.name(fd)
        self._end = SEGMENT_HEADER_BYTES
        self.syncs = 0
        """How often records were written and synced."""
        self.sync_s = 0.0
        """How long the last sync took."""

    @classmethod
    def begin(
        cls,
        disk: Disk,
        directory: Path,
        fd: int,
        number: int,
        author: Author,
        lsn: int,
        oldest: int,
    ) -> "Segment":
        """Make the prepared spare file the segment of this number.

        The header is synced before the file gets its name, so a segment never lacks one.
        """
        header = pack_segment_header(author, number, lsn, oldest)
        write_all(disk, fd, [header], 0)
        disk.fdatasync(fd)
        path = segment_file(directory, number)
        disk.rename(directory / SPARE_NAME, path)
        disk.fsync_dir(directory)
        return cls(disk, path, fd, number, header)

    @property
    def end_position(self) -> int:
        """The position behind the last record that is safe."""
        return (self.number << SEGMENT_SHIFT) + self._end

    def write(self, entries: Sequence[Entry]) -> int:
        """Write records and sync them; when this returns they are safe, up to the position that it
        tells."""
        disk = self._disk
        buffers = pack_records(entries, self._salt)
        self._end = write_all(disk, self._fd, buffers, self._end)
        begun_s = perf_counter()
        disk.fdatasync(self._fd)
        self.sync_s = perf_counter() - begun_s
        self.syncs += 1
        # Writes to a removed file succeed and are gone with the process, so ask (P1).
        if disk.name(self._fd) != self._name:
            detail = f"{self._path} was removed, moved or replaced"
            raise StoreFailed(detail=detail, path=str(self._path.parent))
        return (self.number << SEGMENT_SHIFT) + self._end

    def seal(self, next_lsn: int) -> None:
        """Say that the next segment is safe, and close."""
        try:
            seal(self._disk, self._fd, self._end, next_lsn, self._salt)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)


def seal(disk: Disk, fd: int, end: int, next_lsn: int, salt: int) -> None:
    """Write the seal behind the last record."""
    write_all(disk, fd, [pack_seal(next_lsn, salt)], end)
    disk.fdatasync(fd)
