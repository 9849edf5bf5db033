"""Each fault of a disk at each kind of work: refused or stopped with the reason, and after the cure
nothing that was confirmed is missing (P1, P7, P10).

Rows: no space, input/output errors, read-only, stalls of 2 s, the directory gone, syncs that are
slow and do nothing. Columns: append, change of segments, cleaning, history, file messages, boot.
"""

import contextlib
import errno
import hashlib
import os
import random
import re

import pytest

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import (
    SpoolFailed,
    SpoolFull,
    StoreCorrupt,
    StoreFailed,
    StoreUnavailable,
)
from hms.server.broker import INTERNAL, TICK
from hms.store.files import FileStore
from hms.store.journal.disk import RealDisk
from hms.store.journal.segment_manager import LogLimits
from tests.crash.legal import Legal
from tests.crash.program import batches as batches_of
from tests.crash.program import kept, live, opened
from tests.crash.recording import Noted, RecordingDisk
from tests.support.journal_node import JournalNode

SEGMENT = 12 << 10
SETTINGS = EngineSettings(
    message_bytes_max=1500,
    transaction_bytes_max=5000,
    frames_in_flight_max=4,
    destinations=(DestinationSettings("queue", "orders"), DestinationSettings("topic", "news")),
)
HISTORIES = {"cleaning": 0, "history": 2 * SEGMENT}
FAILURES = (StoreFailed, StoreUnavailable, SpoolFailed, SpoolFull)
ROUNDS_MAX = 60


class Disk(RealDisk):
    """The real disk; once it is broken, each call meets the fault. No sync is needed here: nobody
    cuts the power."""

    def __init__(self, fault):
        self._fault = fault
        self.is_broken = False
        self.hits = 0
        self.now_s = 0.0

    def _meet(self, call, grows=False):
        if self.is_broken and self._fault is not None:
            self._fault(self, call, grows)

    def refuse(self, code):
        self.hits += 1
        raise OSError(code, os.strerror(code))

    def open(self, path, flags):
        if flags & (os.O_RDWR | os.O_CREAT):
            self._meet("open", grows=not path.exists())
        return super().open(path, flags)

    def pwritev(self, fd, buffers, offset):
        size = offset + sum(map(len, buffers))
        self._meet("pwritev", grows=size > os.fstat(fd).st_size)
        return super().pwritev(fd, buffers, offset)

    def allocate(self, fd, size):
        self._meet("allocate", grows=size > os.fstat(fd).st_size)
        super().allocate(fd, size)

    def ftruncate(self, fd, size):
        self._meet("ftruncate")
        super().ftruncate(fd, size)

    def rename(self, source, target):
        self._meet("rename")
        super().rename(source, target)

    def unlink(self, path):
        self._meet("unlink")
        super().unlink(path)

    def make_dir(self, path):
        if not path.is_dir():
            self._meet("make_dir", grows=True)
            path.mkdir(parents=True, exist_ok=True)

    def fdatasync(self, _fd):
        self._meet("fdatasync")

    def fsync(self, _fd):
        self._meet("fsync")

    def fsync_dir(self, path):
        self._meet("fsync_dir")
        path.stat()

    def monotonic(self):
        self.now_s += 0.3
        return self.now_s


def no_space(disk, _call, grows):
    """Nothing grows any more; what was given to the disk before can be written."""
    if grows:
        disk.refuse(errno.ENOSPC)


def io_errors(disk, call, _grows):
    """Writes and syncs fail."""
    if call in ("pwritev", "fdatasync", "fsync", "fsync_dir"):
        disk.refuse(errno.EIO)


def read_only(disk, call, _grows):
    """Remounted read-only by the kernel."""
    if call not in ("fdatasync", "fsync", "fsync_dir"):
        disk.refuse(errno.EROFS)


def stalls(disk, _call, _grows):
    """Each call takes two seconds."""
    disk.hits += 1
    disk.now_s += 2


def directory_gone(disk, call, _grows):
    """Moved away when the fault begins (see Store.break_it), and nobody may make it anew."""
    if call == "make_dir":
        disk.refuse(errno.ENOENT)


def lazy_syncs(disk, call, _grows):
    """Each sync takes long and does nothing."""
    if "sync" in call:
        disk.hits += 1
        disk.now_s += 5


FAULTS = (no_space, io_errors, read_only, stalls, directory_gone, lazy_syncs)
HARMLESS = (stalls, lazy_syncs)
REASONS = {
    no_space: "No space left|the disk is full",
    io_errors: "Input/output error",
    read_only: "Read-only file system",
    directory_gone: "removed|moved|No such file",
}


class Store:
    """A node with its files on a disk, what was confirmed, and how its work ended."""

    def __init__(self, folder, fault, work):
        self.folder, self.fault = folder / "store", fault
        self.disk = Disk(fault)
        self.limits = LogLimits(history_bytes_max=HISTORIES.get(work, 1 << 30))
        self.sent, self.gone, self.files = {}, set(), {}
        self.sequence = 1
        self.refusal = self.failure = None
        self.boot()

    def boot(self):
        self.node = JournalNode(self.folder, SETTINGS, SEGMENT, disk=self.disk, limits=self.limits)
        self.store_of_files = FileStore(self.folder / "files", 1 << 20, self.disk)
        self.store_of_files.open()
        self.node.open_client()

    def send(self):
        """One message, confirmed when this returns without a refusal."""
        self.refusal = self.node.store.sends_refused()
        if self.refusal is None:
            body = b"%06d " % self.sequence * 80
            self.node.publish(self.sequence, [body])
            assert self.node.store.durable_lsn == self.node.store.last_lsn
            self.sent[self.sequence] = body
            self.sequence += 1

    def take(self, count):
        """Receive and acknowledge some, but every sixth, which is given back."""
        node = self.node
        out = node.consume(9, count)
        wanted = [m for m in out if m.seq % 6]
        bodies = node.broker._bodies.of_all(wanted)
        if wanted:
            node.acknowledge(wanted, 9)
        self.gone.update(bodies[i][wanted[i].head_bytes :] for i in range(len(wanted)))
        node.run(lambda fx, now: node.engine.close_consumer(1, 9, now, fx))

    def tick(self):
        self.node.now_ms += 1000
        self.node.broker.handle(INTERNAL, [TICK])
        self.node.step()
        self.node.store.maintain()

    def send_file(self, number):
        """A file message's file."""
        data = random.Random(number).randbytes(3000)
        name = f"{1:016x}-{number:08x}"
        part = self.store_of_files.begin(name, len(data))
        self.store_of_files.write(part, 0, data)
        full = self.store_of_files.finish(part, hashlib.sha256(data).hexdigest())
        self.files[full] = data

    def break_it(self):
        self.disk.is_broken = True
        if self.fault is directory_gone:
            self.folder.rename(self.folder.with_name("elsewhere"))

    def cure(self):
        self.disk.is_broken = False
        if self.fault is directory_gone:
            self.folder.with_name("elsewhere").rename(self.folder)

    def run(self, work):
        """Work until it fails, is refused, or is done."""
        try:
            work(self)
        except FAILURES as failure:
            self.failure = failure
            with contextlib.suppress(*FAILURES):
                self.send_file(9999)
                self.files.popitem()

    def check(self):
        """After the cure and a boot."""
        with contextlib.suppress(*FAILURES):
            self.node.close()
        self.boot()
        there = {body for _, body, _, _ in self.node.waiting()}
        wanted = {body for body in self.sent.values() if body not in self.gone}
        assert wanted <= there, f"{len(wanted - there)} of {len(wanted)} are missing"
        assert not there & self.gone, "what was acknowledged is there again"
        for full, data in self.files.items():
            assert self.store_of_files.read(full, 0, 1 << 20) == data
        for _ in range(4):
            self.tick()
        self.send()
        assert self.refusal is None
        self.node.close()


def append(store):
    """A few messages, each synced."""
    for _ in range(3):
        store.send()


def change_of_segments(store):
    """So many that segments are begun."""
    for _ in range(ROUNDS_MAX):
        store.send()


def cleaning(store):
    """Messages come and go, a sixth stays and is moved."""
    for _ in range(ROUNDS_MAX // 3):
        for _ in range(4):
            store.send()
        store.take(8)
        store.tick()


def files(store):
    """Some files."""
    for number in range(100, 103):
        store.send_file(number)


def boot(store):
    """A boot, and some work behind it."""
    store.node.close()
    store.boot()
    append(store)


WORKS = {
    "append": append,
    "change of segments": change_of_segments,
    "cleaning": cleaning,
    "history": cleaning,
    "files": files,
    "boot": boot,
}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_the_disk_refuses_or_stops_and_loses_nothing(tmp_path, fault, work):
    """No other error, no confirmation of what is not there, and all of it after the cure."""
    store = Store(tmp_path, fault, work)
    for number in range(3):
        change_of_segments(store) if number == 0 else append(store)
        store.send_file(number)
    store.take(20)

    store.break_it()
    store.run(WORKS[work])

    if fault in HARMLESS:
        assert store.failure is None
        assert store.disk.hits
    elif store.failure is not None:
        assert re.search(REASONS[fault], str(store.failure))
    elif fault is not no_space:
        assert store.refusal
    store.cure()
    store.check()


def test_every_fault_shows_somewhere():
    """A matrix in which nothing fails would prove nothing; see the cells' own asserts."""
    assert set(REASONS) | set(HARMLESS) == set(FAULTS)


def test_a_disk_that_only_says_it_synced_never_makes_up_records(monkeypatch):
    """When the power goes, what such a disk has dropped is gone; what is left must be the beginning
    of what was written, or be refused."""
    for sync in ("fdatasync", "fsync", "fsync_dir"):
        monkeypatch.setattr(RecordingDisk, sync, lambda _self, _what: None)
    disk, chance = RecordingDisk(), random.Random(1)
    legal = Legal(disk)
    sizes = [tuple(100 + 90 * (n % 5) for n in range(k % 4 + 1)) for k in range(8)]
    live(disk, batches_of(*sizes))
    appended, outcomes = [], set()
    for step in disk.steps:
        legal.apply(step)
        if isinstance(step, Noted):
            if step.what == "appended":
                appended.append(step.value)
            continue
        for state in legal.states(chance, 4):
            try:
                found = kept(opened(RecordingDisk(state)))
            except (StoreCorrupt, StoreUnavailable):
                outcomes.add("refused")
                continue
            assert found == appended[: len(found)]
            outcomes.add("shorter" if len(found) < len(appended) else "whole")
    assert outcomes == {"refused", "shorter", "whole"}
