"""The disk as the journal sees it: few calls, so that a test or a simulator can be the disk."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from hms.store.journal.descriptor_wait import with_descriptor

Buffers = Sequence[bytes | memoryview]
READ: Final = os.O_RDONLY | os.O_CLOEXEC
UPDATE: Final = os.O_RDWR | os.O_CLOEXEC
CREATE: Final = UPDATE | os.O_CREAT
_NOT_SYNCED_ALONE: Final = {errno.EACCES, errno.EPERM, errno.EINVAL}
"""A parent that may not be opened, or whose file system syncs no directories."""
BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")


class Identity(Protocol):
    """What the system says of a file."""

    @property
    def st_dev(self) -> int:
        """The device that has it."""

    @property
    def st_ino(self) -> int:
        """Its number there."""


class Disk(Protocol):
    """The calls that the journal makes; each raises OSError when it fails."""

    def make_dir(self, path: Path) -> None:
        """Make a directory and its parents, when it is not there; durable in either case."""

    def list_dir(self, path: Path) -> list[str]:
        """The names in a directory."""

    def open(self, path: Path, flags: int) -> int:
        """A file descriptor."""

    def close(self, fd: int) -> None:
        """Close it; nothing is synced by that."""

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file; False when another process has it."""

    def size(self, fd: int) -> int:
        """Bytes in an open file."""

    def stat(self, what: Path | str | int, /) -> Identity:
        """What tells a path or an open file from every other."""

    def size_and_age(self, path: Path) -> tuple[int, float]:
        """Bytes in a file, and seconds since it was written last."""

    def name(self, fd: int) -> str:
        """What the system calls an open file now; another once it is removed, moved or replaced."""

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pwritev(self, fd: int, buffers: Buffers, offset: int, /) -> int:
        """Write at most BUFFERS_MAX buffers; how many bytes were taken."""

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut or extend a file; its age stays."""

    def allocate(self, fd: int, size: int) -> None:
        """Give a file space up to this size, which it has from then on; what is new reads as
        zeros."""

    def fdatasync(self, fd: int, /) -> None:
        """Return when what was written, and the file's size, is on the disk."""

    def fsync(self, fd: int) -> None:
        """Return when the file is safe with all that belongs to it, as after cutting it."""

    def fsync_dir(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a target that exists is replaced in one step."""

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing when it is not there."""

    def monotonic(self) -> float:
        """Seconds on a clock that is never set."""


_PWRITEV: Callable[[int, Buffers, int], int] = os.pwritev
_FDATASYNC: Callable[[int], None] = os.fdatasync
_STAT: Callable[[Path | str | int], Identity] = os.stat


class RealDisk:
    """The machine's own disk."""

    FILE_MODE = 0o640
    FOLDER_MODE = 0o750
    pwritev, fdatasync = staticmethod(_PWRITEV), staticmethod(_FDATASYNC)
    stat: Callable[[Path | str | int], Identity] = staticmethod(_STAT)
    """The system's own: four calls of Python less for each commit."""

    def make_dir(self, path: Path) -> None:
        """Make a directory and its parents, when it is not there; durable in either case.

        Who made it may have died before its name was synced, so that is done once more.
        """
        if not path.is_dir():
            self.make_dir(path.parent)
            path.mkdir(mode=self.FOLDER_MODE, exist_ok=True)
        try:
            self.fsync_dir(path.parent)
        except OSError as error:
            if error.errno not in _NOT_SYNCED_ALONE:
                raise
            os.sync()

    def list_dir(self, path: Path) -> list[str]:
        """The names in a directory."""
        return with_descriptor(lambda: [entry.name for entry in path.iterdir()])

    def open(self, path: Path, flags: int) -> int:
        """A file descriptor."""
        return with_descriptor(lambda: os.open(path, flags, self.FILE_MODE))

    def close(self, fd: int) -> None:
        """Close it; nothing is synced by that."""
        os.close(fd)

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of an open file; False when another process has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def size(self, fd: int) -> int:
        """Bytes in an open file."""
        return os.fstat(fd).st_size

    def size_and_age(self, path: Path) -> tuple[int, float]:
        """Bytes in a file, and seconds since it was written last."""
        found = path.stat()
        return found.st_size, time.time() - found.st_mtime

    def name(self, fd: int) -> str:
        """What the system calls an open file now; another once it is removed, moved or replaced.

        Not asked with stat: since Linux 6.13 that makes the next write give the file a new fine
        time stamp, and the sync after it a third slower (0.13 instead of 0.09 ms).
        """
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - Path is slower here

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(fd, size, offset)
        while data and len(data) < size:
            more = os.pread(fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut or extend a file; its age stays: the history is kept from its last write on."""
        found = os.fstat(fd)
        os.ftruncate(fd, size)
        with suppress(PermissionError):  # another user's file
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))

    def allocate(self, fd: int, size: int) -> None:
        """Give a file space up to this size, which it has from then on; what is new reads as
        zeros. Where the file system cannot, the C library writes a byte to each block."""
        os.posix_fallocate(fd, 0, size)

    def fsync(self, fd: int) -> None:
        """Return when the file is safe with all that belongs to it, as after cutting it."""
        os.fsync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""
        fd = with_descriptor(lambda: os.open(path, READ | os.O_DIRECTORY))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a target that exists is replaced in one step."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a name; nothing when it is not there."""
        path.unlink(missing_ok=True)

    def monotonic(self) -> float:
        """Seconds on a clock that is never set."""
        return time.monotonic()


class PrivateDisk(RealDisk):
    """The same; files and directories are made for the node's own user only."""

    FILE_MODE = 0o600
    FOLDER_MODE = 0o700


REAL_DISK: Final = RealDisk()
PRIVATE_DISK: Final = PrivateDisk()


def write_all(disk: Disk, fd: int, buffers: Buffers, offset: int) -> int:
    """Write every buffer, with as few calls as the system allows; the offset behind them.

    A call that takes less than it was given is continued: that is no failed write (P7).
    """
    for start in range(0, len(buffers), BUFFERS_MAX):
        chunk = buffers[start : start + BUFFERS_MAX]
        size = sum(map(len, chunk))
        written = disk.pwritev(fd, chunk, offset)
        while written < size:
            rest = memoryview(b"".join(chunk))[written:]
            written += disk.pwritev(fd, [rest], offset + written)
        offset += size
    return offset
