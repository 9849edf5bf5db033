"""Every call of the system fails once, at every place, on a real directory (V05, P7, D07)."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from hms.errors.catalogue import StoreFailed, StoreUnavailable
from hms.store.journal import Journal
from hms.store.journal.disk import RealDisk
from hms.store.journal.segment_manager import LogLimits
from tests.crash.cleaning import NO_HISTORY, busy
from tests.crash.oracle import Oracle
from tests.crash.program import (
    DICTIONARY_KIND,
    NODE,
    SMALL,
    Run,
    Setting,
    dictionary,
    kept,
)
from tests.crash.recording import Noted

CALLS_MAX = 500
CLEANING_ROUNDS = 24
ON_FILES = (
    "pwritev",
    "fdatasync",
    "fsync",
    "ftruncate",
    "allocate",
    "pread",
    "size",
    "name",
    "lock",
)
ON_NAMES = ("open", "rename", "fsync_dir", "list_dir", "make_dir", "size_and_age")
OTHERS = ("unlink", "stat")
SYNCS = {"fdatasync", "fsync", "fsync_dir"}


class FailingDisk(RealDisk):
    """The real disk; the n-th call of a kind fails, a write after half of its bytes.

    What the journal still does to the file whose write or sync failed stands in `retried`. No power
    is cut here, so a sync that does not fail does nothing: that is what would take the time.
    """

    def __init__(self, kind, nth, code):
        self._kind, self._left, self._code = kind, nth, code
        self._broken = set()
        self.has_failed = False
        self.retried = []
        self.steps = []

    def note(self, what, value):
        """What a Run knows, for the oracle."""
        self.steps.append(Noted(what, value))

    def restart(self):
        """A new process, which recovers the file."""
        self._broken.clear()

    def _check(self, kind, fd=None):
        inode = os.fstat(fd).st_ino if isinstance(fd, int) else None
        if inode in self._broken and kind in {"pwritev", "fdatasync", "fsync"}:
            self.retried.append(kind)
        if kind != self._kind or self.has_failed:
            return False
        self._left -= 1
        if self._left:
            return False
        self.has_failed = True
        if kind in {"pwritev", "fdatasync", "fsync"}:
            self._broken.add(inode)
        return True

    def _fail(self, path=None):
        raise OSError(self._code, os.strerror(self._code), *([str(path)] if path else []))

    def pwritev(self, fd, buffers, offset):
        if self._check("pwritev", fd):
            data = b"".join(buffers)
            os.pwrite(fd, data[: len(data) // 2], offset)
            self._fail()
        return super().pwritev(fd, buffers, offset)

    def unlink(self, path):
        if self._check("unlink"):
            self._fail(path)
        if path.exists():
            self._broken.discard(path.stat().st_ino)  # the number may be the next file's
        super().unlink(path)

    def stat(self, what):
        if self._check("stat"):
            self._fail(what)
        return super().stat(what)


def well():
    """A disk on which nothing fails."""
    return FailingDisk("", 1, 0)


def _on_file(kind):
    def call(self, fd, *rest):
        if self._check(kind, fd):
            self._fail()
        return None if kind in SYNCS else getattr(RealDisk, kind)(self, fd, *rest)

    return call


def _on_name(kind):
    def call(self, path, *rest):
        if self._check(kind):
            self._fail(path)
        return None if kind in SYNCS else getattr(RealDisk, kind)(self, path, *rest)

    return call


for _kind in ON_FILES[1:]:
    setattr(FailingDisk, _kind, _on_file(_kind))
for _kind in ON_NAMES:
    setattr(FailingDisk, _kind, _on_name(_kind))


class Life:
    """What one process sent and was told."""

    def __init__(self, path, disk):
        self.path, self.disk = path, disk
        self.found, self.sent, self.confirmed = None, [], 0
        self.error = None

    def run(self, tag):
        """Boot and send until the end or a failure; a journal that failed confirms nothing more."""
        journal = None
        try:
            journal = Journal.open(self.path, segment_bytes=SMALL, node_uid=NODE, disk=self.disk)
            self.found = bodies(journal)
            journal.start(dictionary)
            self._send(journal, tag)
        except (StoreFailed, StoreUnavailable) as error:
            self.error = error
            if journal is not None and self.sent:
                with pytest.raises(StoreFailed):
                    journal.commit()
        finally:
            if journal is not None:
                journal.close()

    def _send(self, journal, tag):
        for n in range(6):
            for _ in range(n % 3 + 1):
                body = b"%s%05d" % (tag, len(self.sent)) * (40 + 30 * n)
                journal.append(3, 1, (body,))
                self.sent.append(body)
            journal.commit()
            self.confirmed = len(self.sent)
            journal.maintain()


def bodies(journal):
    """What recovery gives, without the dictionaries."""
    return [bytes(data) for _, kind, _, data, *_ in journal.recover() if kind != DICTIONARY_KIND]


def check(path, lives):
    """Nothing confirmed is missing and nothing else is there, after one more boot."""
    journal = Journal.open(path, segment_bytes=SMALL, node_uid=NODE, disk=well())
    left = bodies(journal)
    journal.close()
    for life in lives:
        kept = [body for body in left if body in set(life.sent)]
        assert life.confirmed <= len(kept)
        assert kept == life.sent[: len(kept)]
        left = left[len(kept) :]
    assert left == []


def open_files(folder):
    """What of a folder this process has open, removed files too; others come and go meanwhile."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(folder))]


CASES = [(kind, errno.EIO) for kind in (*ON_FILES, *ON_NAMES, *OTHERS)]
CASES += [
    (kind, errno.ENOSPC)
    for kind in ("open", "pwritev", "allocate", "fdatasync", "rename", "make_dir")
]


@pytest.mark.parametrize(("kind", "code"), CASES)
def test_a_call_that_fails_at_any_place_stops_the_journal_and_loses_nothing(tmp_path, kind, code):
    """No hang, no silent loss, no leak, and no second sync of a file whose sync had failed."""
    passes = 0
    for nth in range(1, CALLS_MAX):
        path, disk = tmp_path / f"{nth}", FailingDisk(kind, nth, code)
        first, second = Life(path, disk), Life(path, disk)
        first.run(b"a")
        disk.restart()
        second.run(b"b")
        assert disk.retried == [], (kind, nth)
        if path.exists():
            check(path, [first, second])
        assert open_files(tmp_path) == [], (kind, nth)
        if not disk.has_failed:
            assert first.error is None
            assert second.error is None
            break
        passes += 1
    print(f"{kind}: {passes} places")
    assert passes < CALLS_MAX - 1
    assert passes >= 1 or kind in {"unlink", "lock"}


SHORT_HISTORY = Setting(SMALL, LogLimits(history_bytes_max=SMALL))
CLEANING = [(kind, SHORT_HISTORY) for kind in ("unlink", "rename", "fsync_dir", "size_and_age")]
CLEANING += [(kind, NO_HISTORY) for kind in ("rename", "fsync_dir", "open", "pwritev")]


@pytest.mark.parametrize(("kind", "setting"), CLEANING)
def test_a_call_that_fails_while_the_log_is_cleaned_loses_nothing(tmp_path, kind, setting):
    """Segments are moved, let go, used again and removed: each step may be the one that fails."""
    passes = 0
    for nth in range(1, CALLS_MAX):
        path, disk, oracle = tmp_path / f"{nth}", FailingDisk(kind, nth, errno.EIO), Oracle()
        clean(path, disk, setting, busy(CLEANING_ROUNDS))
        disk.restart()
        clean(path, disk, setting, busy(2))
        for step in disk.steps:
            oracle.apply(step)
        journal = Journal.open(path, segment_bytes=SMALL, node_uid=NODE, disk=well())
        assert oracle.fault(kept(journal)) is None, (kind, nth)
        journal.close()
        assert disk.retried == [], (kind, nth)
        assert open_files(tmp_path) == [], (kind, nth)
        if not disk.has_failed:
            break
        passes += 1
    print(f"{kind}: {passes} places")
    assert 1 <= passes < CALLS_MAX - 1


def clean(path, disk, setting, work):
    """One process that cleans its log, until the end or a failure."""
    journal = None
    try:
        journal = Journal.open(
            path, segment_bytes=SMALL, node_uid=NODE, disk=disk, limits=setting.limits
        )
        work(Run(disk, setting, journal))
    except (StoreFailed, StoreUnavailable):
        assert disk.has_failed
    finally:
        if journal is not None:
            journal.close()
