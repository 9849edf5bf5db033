"""A node that records what it does to its disk: PYTHON recorded_node.py PYTHON -P -m hms.boot.node
….

Each step is in the file POWER_TRACE, in the order in which it took effect, before the node goes on.
The test notes there what its clients know, so both are in one order (tests/crash/recording.py).
"""

import os
import pickle
import struct
import sys
import threading
from pathlib import Path

from hms.store.journal.disk import REAL_DISK, RealDisk
from tests.crash.recording import DirSynced, Named, Noted, Resized, Synced, Written

__all__ = ["Trace", "read_trace"]

_LENGTH = struct.Struct("<I")


class Trace:
    """Steps at the end of a file, from any number of processes."""

    def __init__(self, file):
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, step):
        """One write is one step: nobody's gets in between."""
        data = pickle.dumps(step)
        os.write(self._fd, _LENGTH.pack(len(data)) + data)

    def note(self, what, value):
        """What a client knows from here on."""
        self.add(Noted(what, value))


def read_trace(file):
    """All steps; the last one may have been cut off by the end of the process."""
    data, at = Path(file).read_bytes(), 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(data):
            return
        yield pickle.loads(data[at : at + size])
        at += size


def _identity(what):
    found = os.stat(what)  # noqa: PTH116 - or of a descriptor
    return found.st_dev, found.st_ino


class RecordedDisk(RealDisk):
    """The machine's disk; a file has a number of its own, as the system uses an inode again."""

    def prepare(self, file):
        """Instead of a constructor, as the one disk that all use becomes this one."""
        self._trace, self._guard = Trace(file), threading.RLock()
        self._numbers, self._next = {}, 0

    def _number(self, what):
        inode = _identity(what)
        if inode not in self._numbers:
            self._next += 1
            self._numbers[inode] = self._next
        return self._numbers[inode]

    def open(self, path, flags):
        """A new name, if it was not there."""
        with self._guard:
            is_new = not path.exists()
            fd = super().open(path, flags)
            if is_new:
                self._numbers.pop(_identity(fd), None)
                self._trace.add(Named(((str(path), self._number(fd)),)))
            return fd

    def rename(self, source, target):
        """Two names in one step."""
        with self._guard:
            number = self._number(source)
            super().rename(source, target)
            self._trace.add(Named(((str(target), number), (str(source), None))))

    def unlink(self, path):
        """The name is gone."""
        with self._guard:
            is_there = path.exists()
            super().unlink(path)
            if is_there:
                self._trace.add(Named(((str(path), None),)))

    def fsync_dir(self, path):
        """Its names are safe."""
        super().fsync_dir(path)
        with self._guard:
            self._trace.add(DirSynced(str(path)))

    def pwritev(self, fd, buffers, offset):
        """Into the cache."""
        with self._guard:
            done = super().pwritev(fd, buffers, offset)
            self._trace.add(Written(self._number(fd), offset, b"".join(buffers)[:done]))
            return done

    def ftruncate(self, fd, size):
        """Cut or extended."""
        with self._guard:
            super().ftruncate(fd, size)
            self._trace.add(Resized(self._number(fd), size))

    def allocate(self, fd, size):
        """Extended, if it was smaller."""
        with self._guard:
            before = self.size(fd)
            super().allocate(fd, size)
            if size > before:
                self._trace.add(Resized(self._number(fd), size))

    def fdatasync(self, fd):
        """What was written before it was called is safe; the node goes on only now."""
        self._sync(fd, is_whole=False)

    def fsync(self, fd):
        """The same, with the size."""
        self._sync(fd, is_whole=True)

    def _sync(self, fd, *, is_whole):
        with self._guard:  # so nothing is written between the sync and its step
            (super().fsync if is_whole else super().fdatasync)(fd)
            self._trace.add(Synced(self._number(fd), is_whole, is_good=True))


def main(words):
    """Boot a node on such a disk."""
    from hms.boot import node

    REAL_DISK.__class__ = RecordedDisk
    REAL_DISK.prepare(os.environ["POWER_TRACE"])
    code = node.main(words)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("hms.boot.node") + 1 :])
