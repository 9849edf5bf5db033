"""hms store probe --peer: whether two machines can share a folder as one node's store."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.boot.doctor import peer_probe, probing
from hms.boot.doctor.peer_probe import FOLDER, SLOT, Meeting, meet, probe
from hms.errors.catalogue import SharedStoreUnsafe
from hms.store.journal.disk import RealDisk

WAIT_S = 60.0
ROUNDS = 4


def both(path, rounds=ROUNDS):
    """What the two that meet there find, the first one first."""
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(probe, path, rounds, WAIT_S) for _ in range(2)]
        found = [one.result() for one in running]
    return sorted(found, key=lambda said: said["role"])


@pytest.fixture(autouse=True)
def _busy(monkeypatch):
    """What takes a second here is no cache of a mount, but another test's turn."""
    monkeypatch.setattr(peer_probe, "SLOW_MS", 60_000.0)


@pytest.fixture
def pair(tmp_path):
    """Two that have met; each step of one waits for one of the other."""
    with ThreadPoolExecutor(1) as pool:
        met, over = threading.Event(), threading.Event()

        def other():
            with meet(tmp_path, WAIT_S) as meeting:
                found.append(meeting)
                met.set()
                over.wait(WAIT_S)

        found = []
        running = pool.submit(other)
        with meet(tmp_path, WAIT_S) as meeting:
            assert met.wait(WAIT_S)
            yield meeting, found[0]
            over.set()
        running.result(WAIT_S)


def test_two_that_share_a_folder_find_that_it_can_be_shared(tmp_path):
    """Each of them says so, and nothing is left behind."""
    first, second = both(tmp_path)
    assert (first["role"], second["role"]) == ("first", "second")
    for said in (first, second):
        assert said["faults"] == []
        assert (said["stale_reads"], said["stale_names"], said["locks"]) == (0, 0, "hold")
        assert sum(said["renames_won"].values()) == ROUNDS
        assert said["take_over_found"] >= said["take_over_confirmed"] >= 2 * ROUNDS
        assert said["take_over_lost"] == 0
        assert said["is_same_machine"]
    assert list(tmp_path.iterdir()) == []


def test_one_machine_alone_proves_nothing_of_two(monkeypatch, tmp_path):
    """What one kernel does between its processes is no word about a network."""
    sound = {"faults": [], "is_same_machine": True}
    monkeypatch.setattr(peer_probe, "probe", lambda *_: dict(sound))
    assert probing.peer(tmp_path, 1, 1.0)[1] == probing.UNKNOWN
    sound["is_same_machine"] = False
    assert probing.peer(tmp_path, 1, 1.0)[1] == 0
    sound["faults"] = ["two machines had the lock at once"]
    assert probing.peer(tmp_path, 1, 1.0)[1] == probing.DISHONEST


def test_locks_that_do_not_hold_between_two_machines_are_found(monkeypatch, tmp_path):
    """As on a mount with local locks."""
    monkeypatch.setattr(RealDisk, "lock", lambda _self, _fd: True)
    for said in both(tmp_path):
        assert "two machines had the lock at once" in said["faults"]


def test_a_rename_that_two_win_is_found(monkeypatch, tmp_path):
    """A client of a file server that repeats a request may take the other one's for its own."""
    real = Path.rename

    def rename(self, target):
        try:
            return real(self, target)
        except FileNotFoundError:
            if not self.name.startswith("prize."):
                raise
            return target

    monkeypatch.setattr(Path, "rename", rename)
    for said in both(tmp_path):
        assert said["faults"] == [f"{ROUNDS} of {ROUNDS} renames were won by both, or by none"]


def test_names_that_are_cached_are_found(monkeypatch, tmp_path):
    """A mount that keeps names for seconds shows the old owner its folder."""
    seen = {}
    real = Path.exists
    me = threading.get_ident

    def exists(self):
        if not self.name.startswith("seen."):
            return real(self)
        return seen.setdefault((me(), self), real(self))

    monkeypatch.setattr(Path, "exists", exists)
    what = f"{ROUNDS} of {ROUNDS} renames were not seen by the other machine with its next call"
    for said in both(tmp_path):
        assert said["faults"] == [what.replace(str(ROUNDS), str(ROUNDS // 2), 1)]


def test_an_owner_that_does_not_see_that_its_store_was_taken_is_found(monkeypatch, tmp_path):
    """It confirms what is in no log any more."""

    class Caches(RealDisk):
        def __init__(self):
            self._known, self._names = {}, {}

        def stat(self, what, /):
            if isinstance(what, int):
                return super().stat(what)
            if what not in self._known:
                self._known[what] = super().stat(what)
            return self._known[what]

        def name(self, fd):
            return self._names.setdefault(fd, super().name(fd))

        def close(self, fd):
            self._names.pop(fd, None)
            super().close(fd)

    monkeypatch.setattr(peer_probe, "SHARED_DISK", Caches())
    for said in both(tmp_path):
        what = "an owner went on confirming after the other machine had its store"
        assert what in said["faults"]


def test_what_a_mount_says_of_itself_counts_too(monkeypatch, tmp_path):
    """A boot of a standby refuses such a mount."""
    fault = SharedStoreUnsafe(path="x", fstype="nfs", options="rw", failed="it has no leases")

    def check(_path):
        raise fault

    monkeypatch.setattr(peer_probe, "check_mount", check)
    for said in both(tmp_path):
        assert said["faults"] == [str(fault)]


def test_nobody_comes(tmp_path):
    """Both may have run it on folders of their own."""
    with pytest.raises(TimeoutError, match="no other machine came") as caught:
        probe(tmp_path, 1, 0.05)
    assert caught.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_killed_one_left_is_named(tmp_path):
    """It is not taken away: a slow machine may be in it."""
    (tmp_path / FOLDER).mkdir()
    for name in ("first", "second"):
        (tmp_path / FOLDER / name).write_bytes(bytes(3 * SLOT))
    with pytest.raises(TimeoutError, match="remove it") as caught:
        probe(tmp_path, 1, 0.05)
    assert caught.value.filename == str(tmp_path / FOLDER)
    with pytest.raises(FileExistsError, match="two have met there already"):
        probe(tmp_path, 1, 0.05)
    assert [one.name for one in tmp_path.iterdir()] == [FOLDER]


def test_one_that_dies_on_the_way_ends_the_other(pair):
    """Within the time of a step."""
    meeting, _ = pair
    alone = Meeting(meeting.folder, is_first=meeting.is_first, step_s=0.05)
    try:
        alone._told = meeting._told
        with pytest.raises(TimeoutError, match="tells nothing any more"):
            alone.exchange("?")
    finally:
        alone.close()
    meeting._write(1, 0, None)  # what was told twice is not told at all
    meeting._write(0, 0, None)


def test_a_line_that_is_half_written_is_read_again(pair):
    """A reader of a file server may see a part of a write."""
    meeting, other = pair
    other._write(0, 7, "whole")
    slot = os.pread(other._ours, SLOT, 0)
    os.pwrite(other._ours, slot.replace(b"whole", b"whale"), 0)
    assert meeting._read(meeting._theirs, 0) == (0, None)
    os.pwrite(other._ours, slot, 0)
    assert meeting._read(meeting._theirs, 0) == (7, "whole")
    other._write(0, 0, None)


def test_peer_is_a_test_of_its_own(tmp_path):
    """Beside another one it would be unclear what was tried."""
    done = CliRunner().invoke(main, ["store", "probe", str(tmp_path), "locks", "--peer"])
    assert done.exit_code == 2
    assert "a test of its own" in done.output
