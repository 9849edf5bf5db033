"""One process per store directory (F-I3)."""

import os
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreFailed, StoreLocked
from hms.store.journal.disk import CREATE, Disk, write_all

LOCK_NAME: Final = "LOCK"
PID_BYTES: Final = 19


class DirectoryLock:
    """The lock of a store directory, held as long as the process lives or until release()."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / LOCK_NAME
        self._name = str(self._path)  # a Path is made a name by two calls each time
        self._fd = disk.open(self._path, CREATE)
        try:
            self._take(directory)
            found = disk.stat(self._path)
            self._device, self._inode = found.st_dev, found.st_ino
        except BaseException:
            disk.close(self._fd)
            raise

    def _take(self, directory: Path) -> None:
        is_ours = self._disk.lock(self._fd)
        if is_ours:
            held, named = self._disk.stat(self._fd), self._disk.stat(self._path)
            is_ours = (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
        if not is_ours:
            holder = self._disk.pread(self._fd, PID_BYTES, 0).strip().decode("ascii", "replace")
            raise StoreLocked(path=str(directory), pid=holder or "unknown")
        # Not cut first: on a full disk the file might not get its block back.
        write_all(self._disk, self._fd, [b"%-*d\n" % (PID_BYTES, os.getpid())], 0)

    def check(self) -> None:
        """Raise StoreFailed when the path no longer names our lock: another may have its own.

        This also notices a directory that was removed, moved or mounted over.
        """
        try:
            found = self._disk.stat(self._name)
        except OSError as error:
            detail = f"{self._path} was removed or moved ({error.strerror})"
            raise StoreFailed(detail=detail, path=str(self._path.parent)) from error
        if found.st_ino != self._inode or found.st_dev != self._device:
            raise StoreFailed(detail=f"{self._path} was replaced", path=str(self._path.parent))

    def release(self) -> None:
        """Let the next one in."""
        self._disk.close(self._fd)
