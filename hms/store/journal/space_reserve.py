"""The reserve: files of a segment's size that were given to the disk in advance.

What waits has to be delivered and acknowledged, the log cleaned, and the node booted, on a full
disk too: all of that writes. The reserve has room for it, so that none of it needs new space. Its
files hold nothing; one that is needed is renamed, and reads as zeros before it is used.
"""

import re
from pathlib import Path
from typing import Final

from hms.store.journal.disk import CREATE, Disk

RESERVE_SUFFIX: Final = ".reserve"
_NAME: Final = re.compile(r"(\d{4,})\.reserve")


class Reserve:
    """The files that are there; one thread at a time."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int) -> None:
        self._disk, self._directory, self._size = disk, directory, segment_bytes
        self.numbers: list[int] = []
        """Of the files."""
        self._is_known = False

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self.numbers)

    def look(self) -> None:
        """Find what the last boot left; one that was not finished is finished now, or removed."""
        if self._is_known:
            return
        self._is_known = True
        for name in sorted(self._disk.list_dir(self._directory)):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            if self._disk.size_and_age(self._directory / name)[0] == self._size:
                self.numbers.append(int(match[1]))
            else:
                self._disk.unlink(self._directory / name)

    def add(self) -> None:
        """One more; OSError, and nothing has changed, when the disk has no space for it."""
        number = self._free_number()
        file = self._file(number)
        fd = self._disk.open(file, CREATE)
        try:
            self._disk.allocate(fd, self._size)
            self._disk.fsync(fd)
        except OSError:
            self._disk.close(fd)
            self._disk.unlink(file)
            raise
        self._disk.close(fd)
        self._disk.fsync_dir(self._directory)
        self.numbers.append(number)

    def keep(self, file: Path) -> None:
        """Take over a file of the right size that nobody needs."""
        number = self._free_number()
        self._disk.rename(file, self._file(number))
        self.numbers.append(number)

    def give(self, path: Path) -> None:
        """Move a file to where it is needed."""
        self._disk.rename(self._file(self.numbers[-1]), path)
        self.numbers.pop()

    def drop(self) -> None:
        """Remove a file that is no longer needed."""
        self._disk.unlink(self._file(self.numbers[-1]))
        self.numbers.pop()

    def _free_number(self) -> int:
        return next(n for n in range(1, len(self.numbers) + 2) if n not in self.numbers)

    def _file(self, number: int) -> Path:
        return self._directory / f"{number:04d}{RESERVE_SUFFIX}"
