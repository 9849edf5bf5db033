"""What the tests of the journal share: a small journal, and disks that fail where a test says."""

import os
import random
from collections.abc import Iterable
from pathlib import Path

from hms.store.journal import Journal, RealDisk

NODE = 77
SMALL = 4096
DICTIONARY = (11, 1, (b"dictionary",))


def dictionary():
    return DICTIONARY


def opened(path, disk=None, segment_bytes=SMALL, node_uid=NODE):
    """A journal before recovery."""
    return Journal.open(
        path, segment_bytes=segment_bytes, node_uid=node_uid, disk=disk or RealDisk()
    )


def booted(path, disk=None, segment_bytes=SMALL, make=dictionary):
    """A journal that was recovered and started, and the records that it held."""
    journal = opened(path, disk, segment_bytes)
    found = [(lsn, kind, count, bytes(payload)) for lsn, kind, count, payload, _ in journal.recover()]
    journal.start(make)
    return journal, found


def recovered(path, disk=None):
    """The records of a store, without the dictionaries."""
    journal = opened(path, disk)
    try:
        return bodies((lsn, kind, count, bytes(p)) for lsn, kind, count, p, _ in journal.recover())
    finally:
        journal.close()


def bodies(records: Iterable[tuple]) -> list[bytes]:
    """Payloads of the records that are no dictionary."""
    return [bytes(payload) for _, kind, _, payload, *_ in records if kind != DICTIONARY[0]]


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a directory, to see that nothing was changed."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "LOCK"}


def segments(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("*.log") if file.name != "spare.log")


def flip(file: Path, offset: int, mask: int = 0x01) -> None:
    """Damage one byte."""
    data = bytearray(file.read_bytes())
    data[offset] ^= mask
    file.write_bytes(data)


class FaultyDisk(RealDisk):
    """The real disk with a clock of its own; fails the calls named in `failing` (call: errno)."""

    def __init__(self):
        self.failing = {}
        self.calls = []
        self.now = 0.0
        self.write_max = None
        self.before_sync = None

    def _call(self, name):
        self.calls.append(name)
        if name in self.failing:
            code = self.failing[name]
            raise OSError(code, os.strerror(code))

    def open(self, path, flags):
        self._call("open " + path.name)
        return super().open(path, flags)

    def pwritev(self, fd, buffers, offset):
        self._call("pwritev")
        self._call("pwritev " + Path(self.name(fd)).name)
        if self.write_max is not None:
            buffers = [b"".join(buffers)[: self.write_max]]
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd):
        self._call("fdatasync")
        self._call("fdatasync " + Path(self.name(fd)).name)
        if self.before_sync:
            self.before_sync()
        super().fdatasync(fd)

    def monotonic(self):
        return self.now


class PowerCut(BaseException):
    """The machine is off."""


class CutDisk(RealDisk):
    """The power goes at the n-th changing call; what was not synced is then whole, absent or torn.

    After the cut `fall()` leaves each file with its synced bytes, and of every later sector of 512
    bytes either the old or the new ones.
    """

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._synced: dict[int, bytes] = {}
        self._renamed = None
        self.switch_on(0)

    def switch_on(self, cut_at: int):
        self._left, self.is_cut = cut_at, False

    def _step(self):
        self._left -= 1
        if self._left < 0:
            self.is_cut = True
        if self.is_cut:
            raise PowerCut

    def open(self, path, flags):
        is_new = not path.exists()
        fd = super().open(path, flags)
        if is_new:
            self._synced[os.fstat(fd).st_ino] = b""
        return fd

    def pwritev(self, fd, buffers, offset):
        done = super().pwritev(fd, buffers, offset)
        self._step()
        return done

    def fdatasync(self, fd):
        self._step()
        self._keep(fd)

    def fsync(self, fd):
        self._step()
        self._keep(fd)

    def ftruncate(self, fd, size):
        self._step()
        super().ftruncate(fd, size)

    def fsync_dir(self, path):
        self._step()
        super().fsync_dir(path)
        self._renamed = None

    def rename(self, source, target):
        self._step()
        replaced = target.read_bytes() if target.exists() else None
        super().rename(source, target)
        self._renamed = source, target, replaced

    def _keep(self, fd):
        info = os.fstat(fd)
        self._synced[info.st_ino] = os.pread(fd, info.st_size, 0)

    def _take_back_rename(self):
        """A name that was not synced may be the old one after the cut."""
        source, target, replaced = self._renamed
        target.rename(source)
        if replaced is not None:
            target.write_bytes(replaced)
            self._synced[target.stat().st_ino] = replaced

    def fall(self, directory: Path):
        if self._renamed and self._random.random() < 0.5:
            self._take_back_rename()
        self._renamed = None
        for file in directory.glob("*.log"):
            new, old = file.read_bytes(), self._synced[file.stat().st_ino]
            size = self._random.choice((len(old), len(new)))
            out = bytearray()
            for at in range(0, max(len(old), len(new)), 512):
                kept = self._random.choice((old, new))[at : at + 512]
                out += kept.ljust(512, b"\0")
            data = bytes(out[:size]).ljust(size, b"\0")
            file.write_bytes(data)
            self._synced[file.stat().st_ino] = data
