"""A node on a machine that loses its power when the process is killed.

What the log writes stays in this process until it is synced, so kill -9 takes with it what a power
cut would take with the system's cache. As a system does, it writes some of it back of its own
accord, in no order. As a program's prefix: PYTHON lossy_node.py PYTHON -P -m hms.boot.node OPTIONS…
From when the file LOSSY_LIES is there a sync keeps nothing: that is how a test is tested.
"""

import os
import random
import sys
import threading
from contextlib import suppress
from pathlib import Path

from hms.store.journal.disk import REAL_DISK, RealDisk

WRITTEN_BACK = 0.1


def lies():
    """Whether what is synced is lost too."""
    return Path(os.environ.get("LOSSY_LIES", "/nowhere")).exists()


def _identity(fd):
    found = os.stat(fd)  # noqa: PTH116 - of a descriptor
    return found.st_dev, found.st_ino


class PowerlessDisk(RealDisk):
    """The machine's disk behind a cache that is lost."""

    def prepare(self):
        """Instead of a constructor, as the one disk that all use becomes this one."""
        self._waiting, self._guard = {}, threading.Lock()

    def _of(self, fd):
        return self._waiting.get(_identity(fd), ())

    def size(self, fd):
        """With what waits."""
        with self._guard:
            ends = [offset + len(data) for offset, data in self._of(fd)]
            return max([super().size(fd), *ends])

    def pread(self, fd, size, offset):
        """As a reader sees it: what waits lies over what is there."""
        with self._guard:
            waiting = list(self._of(fd))
            found = bytearray(super().pread(fd, size, offset))
        for at, data in waiting:
            start, end = max(at, offset), min(at + len(data), offset + size)
            if start < end:
                found.extend(bytes(max(0, end - offset - len(found))))
                found[start - offset : end - offset] = data[start - at : end - at]
        return bytes(found)

    def pwritev(self, fd, buffers, offset):
        """Into the cache; some of it goes to the disk by itself."""
        data = b"".join(buffers)
        with self._guard:
            self._waiting.setdefault(_identity(fd), []).append((offset, data))
        if random.random() < WRITTEN_BACK and not lies():
            os.pwrite(fd, data, offset)
        return len(data)

    def ftruncate(self, fd, size):
        """Cut what waits, too."""
        with self._guard:
            kept = [(at, data[: max(0, size - at)]) for at, data in self._of(fd)]
            self._waiting[_identity(fd)] = [(at, data) for at, data in kept if data]
            super().ftruncate(fd, size)

    def fdatasync(self, fd):
        """What waited when it was called is safe."""
        with self._guard:
            taken = list(self._of(fd))
        if lies():
            return
        for offset, data in taken:
            os.pwrite(fd, data, offset)
        super().fdatasync(fd)
        with self._guard:
            waiting = self._waiting.get(_identity(fd), [])
            for one in taken:
                with suppress(ValueError):
                    waiting.remove(one)

    fsync = fdatasync


def main(words):
    """Boot a node on such a disk."""
    from hms.boot import node

    REAL_DISK.__class__ = PowerlessDisk
    REAL_DISK.prepare()
    code = node.main(words)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("hms.boot.node") + 1 :])
