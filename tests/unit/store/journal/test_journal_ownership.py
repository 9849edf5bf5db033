"""The directory is this process's alone, and it must not be taken away from it (F-I3)."""

import errno
import os
import signal
import subprocess
import sys

import pytest
from journal_support import FaultyDisk, booted, opened, segments

from hms.errors.catalogue import StoreFailed, StoreLocked, StoreUnavailable
from hms.store.journal.disk import RealDisk
from tests.crash.recording import Killed


def move_directory(path):
    path.rename(path.with_name("moved"))


def remove_files(path):
    for file in path.iterdir():
        file.unlink()


def remove_segment(path):
    segments(path)[-1].unlink()


def replace_segment(path):
    file = segments(path)[-1]
    copy = path / "copy"
    copy.write_bytes(file.read_bytes())
    copy.replace(file)


def rename_segment(path):
    segments(path)[-1].rename(path / "other")


def replace_lock(path):
    (path / "LOCK").unlink()
    (path / "LOCK").write_text("1")


def exchange_directory(path):
    move_directory(path)
    path.mkdir()
    (path / "LOCK").touch()


@pytest.mark.parametrize(
    "harm",
    [
        move_directory,
        remove_files,
        remove_segment,
        replace_segment,
        rename_segment,
        replace_lock,
        exchange_directory,
    ],
)
def test_a_directory_or_file_that_is_taken_away_is_noticed_before_anything_is_confirmed(
    tmp_path, harm
):
    """Writes to a removed file succeed; confirmed messages would be gone with the process."""
    path = tmp_path / "store"
    journal, _ = booted(path)
    durable = journal.commit()
    harm(path)
    journal.append(3, 1, (b"a",))

    with pytest.raises(StoreFailed, match=r"removed|replaced|moved"):
        journal.commit()
    assert journal.durable_lsn == durable
    with pytest.raises(StoreFailed):
        journal.append(3, 1, (b"b",))
    journal.close()


def test_a_lock_that_is_taken_away_during_the_sync_is_noticed_before_a_confirmation(
    tmp_path,
):
    """Another node may have booted meanwhile and ended our segment before our records."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)
    disk.before_sync = lambda: replace_lock(tmp_path)

    with pytest.raises(StoreFailed, match="LOCK was replaced"):
        journal.commit()
    assert journal.durable_lsn == 0
    journal.close()


HOLDER = """
import sys
from hms.store.journal import Journal
journal = Journal.open(sys.argv[1], node_uid=77)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first_until_it_is_gone(tmp_path):
    """Two nodes on one store would destroy it (F-I3); the lock ends with its holder, however."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLocked) as caught:
            opened(tmp_path)
        assert caught.value.pid == str(holder.pid)
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=60)

    opened(tmp_path).close()


class ParentDisk(RealDisk):
    """Notes which directories are synced; one of them may fail."""

    def __init__(self, where=None, fault=None):
        self.where, self.fault, self.synced = where, fault, []

    def fsync_dir(self, path):
        if path == self.where:
            raise self.fault
        self.synced.append(path)
        super().fsync_dir(path)


@pytest.mark.parametrize("unsafe", ["new", "new/store"])
def test_a_directory_that_was_made_just_before_a_crash_is_made_safe_by_the_next_boot(
    tmp_path, unsafe
):
    """All that is confirmed lies below its name: a power cut must not take the whole store."""
    path, where = tmp_path / "new" / "store", (tmp_path / unsafe).parent
    with pytest.raises(Killed):
        opened(path, ParentDisk(where, Killed()))
    assert (tmp_path / unsafe).is_dir()
    disk = ParentDisk()

    opened(path, disk).close()

    assert where in disk.synced
    assert disk.synced[-1] == path.parent


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL])
def test_a_parent_that_cannot_be_synced_alone_is_synced_with_everything(
    tmp_path, monkeypatch, code
):
    """The operator may keep others from listing the folder; the name below it must be safe."""
    syncs = []
    monkeypatch.setattr("hms.store.journal.disk.os.sync", lambda: syncs.append("all"))

    opened(tmp_path, ParentDisk(tmp_path.parent, OSError(code, os.strerror(code)))).close()

    assert syncs == ["all"]


def test_a_parent_whose_sync_fails_refuses_the_boot(tmp_path):
    """A broken disk shows here first."""
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        opened(tmp_path, ParentDisk(tmp_path.parent, OSError(errno.EIO, os.strerror(errno.EIO))))


def test_a_second_journal_in_the_same_process_is_refused(tmp_path):
    """The lock is of the open file, not of the process."""
    journal = opened(tmp_path)
    with pytest.raises(StoreLocked):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()
