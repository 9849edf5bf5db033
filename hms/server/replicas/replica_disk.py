"""The disk of a primary: what the log and the files write goes to the other copies too.

The journal knows nothing of copies. It writes a batch, syncs, and confirms: here the bytes are on
their way to the other copies before the sync begins, and the sync returns when enough copies have
them. So its durable position is the confirmed one, and with one copy the synced one.
"""

from pathlib import Path
from typing import Protocol

from hms.store.files import is_whole_file
from hms.store.journal.disk import UPDATE, Buffers, PrivateDisk, RealDisk
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.segment_walk import LOG_SUFFIX, SUFFIXES

__all__ = ["Copies", "FilesDisk", "ReplicaDisk"]


class Copies(Protocol):
    """Who sends it."""

    def begun(self, number: int, header: bytes, size: int) -> None:
        """A segment has its name."""

    def written(self, number: int, offset: int, data: bytes) -> None:
        """Bytes of a segment; they are read back from the file by who lacks them."""

    def synced(self) -> None:
        """All written so far is synced here: return when enough copies have it. StoreFenced."""

    def kept(self) -> None:
        """Segments have left the log, or the history."""

    def file_there(self, name: str) -> None:
        """A file is there in full."""

    def file_gone(self, name: str) -> None:
        """A file was removed."""


class ReplicaDisk(RealDisk):
    """The journal's."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._paths: dict[int, Path] = {}
        """Of files that are open for writing."""
        self._numbers: dict[int, int] = {}
        """Of those that are segments."""

    def open(self, path: Path, flags: int) -> int:
        """A file descriptor."""
        fd = super().open(path, flags)
        if flags & UPDATE == UPDATE:
            self._paths[fd] = path
            if path.suffix == LOG_SUFFIX and path.stem.isdigit():
                self._numbers[fd] = int(path.stem)
        return fd

    def close(self, fd: int) -> None:
        """Close it; nothing is synced by that."""
        self._paths.pop(fd, None)
        self._numbers.pop(fd, None)
        super().close(fd)

    def pwritev(self, fd: int, buffers: Buffers, offset: int) -> int:
        """Write at most BUFFERS_MAX buffers; how many bytes were taken."""
        taken = super().pwritev(fd, buffers, offset)
        number = self._numbers.get(fd)
        if number is not None:
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            self._copies.written(number, offset, bytes(data[:taken]))
        return taken

    def fdatasync(self, fd: int) -> None:
        """Return when what was written is safe at enough copies."""
        super().fdatasync(fd)
        if fd in self._numbers:
            self._copies.synced()

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a prepared file that becomes a segment is one from now on."""
        super().rename(source, target)
        if target.suffix == LOG_SUFFIX and target.stem.isdigit():
            for fd in [fd for fd, path in self._paths.items() if path == source]:
                self._paths[fd], self._numbers[fd] = target, int(target.stem)
                header = self.pread(fd, SEGMENT_HEADER_BYTES, 0)
                self._copies.begun(int(target.stem), header, self.size(fd))
        elif source.suffix in SUFFIXES:
            self._copies.kept()

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing when it is not there."""
        super().unlink(path)
        if path.suffix in SUFFIXES:
            self._copies.kept()


class FilesDisk(PrivateDisk):
    """That of the files of messages."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a file with its final name is there in full."""
        super().rename(source, target)
        if is_whole_file(target.name):
            self._copies.file_there(target.name)

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing when it is not there."""
        super().unlink(path)
        if is_whole_file(path.name):
            self._copies.file_gone(path.name)
