"""A real directory on a disk of so many bytes: what would make its files larger is refused."""

import errno
import os

from hms.store.journal.disk import RealDisk


class SmallDisk(RealDisk):
    """The sizes of all files count; syncs cost nothing, since nothing cuts the power."""

    def __init__(self, folder, capacity):
        self.folder, self.capacity, self.now = folder, capacity, 0.0

    @property
    def used(self):
        """What all files take."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def _grow(self, fd, size):
        more = size - os.fstat(fd).st_size
        if more > 0 and self.used + more > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def allocate(self, fd, size):
        self._grow(fd, size)
        super().allocate(fd, size)

    def pwritev(self, fd, buffers, offset):
        self._grow(fd, offset + sum(map(len, buffers)))
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd):
        """At once."""

    def fsync(self, fd):
        """At once."""

    def fsync_dir(self, path):
        """At once."""

    def monotonic(self):
        self.now += 0.3  # tried again soon
        return self.now
