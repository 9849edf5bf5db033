"""What the tests of the journal share: a small journal, and disks that fail where a test says."""

import os
from collections.abc import Iterable
from pathlib import Path

from hms.store.journal import Journal
from hms.store.journal.disk import RealDisk
from tests.crash.program import Run
from tests.crash.recording import Noted

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
    found = [
        (lsn, kind, count, bytes(payload)) for lsn, kind, count, payload, _ in journal.recover()
    ]
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

    def allocate(self, fd, size):
        self._call("allocate")
        super().allocate(fd, size)

    def fdatasync(self, fd):
        self._call("fdatasync")
        self._call("fdatasync " + Path(self.name(fd)).name)
        if self.before_sync:
            self.before_sync()
        super().fdatasync(fd)

    def monotonic(self):
        return self.now


class NotingDisk(RealDisk):
    """The real disk for a tests.crash.program.Run. Nothing cuts the power, so nothing is synced."""

    def __init__(self):
        self.steps = []

    def note(self, what, value):
        self.steps.append(Noted(what, value))

    def fdatasync(self, fd):
        """At once."""

    def fsync(self, fd):
        """At once."""

    def fsync_dir(self, path):
        """At once."""


def running(path, setting, disk=None):
    """A journal in use, with what an engine would know of it."""
    disk = disk or NotingDisk()
    journal = Journal.open(
        path, segment_bytes=SMALL, node_uid=NODE, disk=disk, limits=setting.limits
    )
    return Run(disk, setting, journal)
