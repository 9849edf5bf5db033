"""The folder of files: what comes is whole or begins anew; names, limits, faults."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from hms.errors.catalogue import (
    FileDamaged,
    FileGap,
    FileUnknown,
    InvalidArgument,
    SpoolFailed,
    SpoolFull,
)
from hms.store.files import AHEAD_BYTES, FileStore
from hms.store.journal.disk import PrivateDisk

NAME = "0123456789abcdef-00000001"
DATA = bytes(range(256)) * 40
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def files(tmp_path):
    return FileStore(tmp_path / "files", bytes_max=1 << 20)


def _whole(files, name=NAME, data=DATA):
    part = files.begin(name, len(data))
    files.write(part, 0, data)
    return files.finish(part, hashlib.sha256(data).hexdigest())


def _used(files):
    """What the refusal of one that is far too large says is in use."""
    with pytest.raises(SpoolFull) as refusal:
        files.begin("0123456789abcdef-ffffffff", 1 << 50)
    return refusal.value.used


def test_a_file_that_came_is_read_back_and_known_after_a_boot(files):
    """Its name holds who sent it, and its digest."""
    full = _whole(files)

    assert full == f"{NAME}-{DIGEST}"
    assert files.read(full, 0, 1 << 20) == DATA
    assert files.read(full, len(DATA) - 3, 100) == DATA[-3:]
    assert files.read(full, len(DATA), 100) == b""
    assert FileStore(files.folder, 1 << 20).open() == [full]
    assert files.found(NAME, DIGEST) == full


def test_a_file_goes_on_where_a_crash_has_left_it(files):
    """What is on the disk is read again, so that the digest at the end proves all of it."""
    part = files.begin(NAME, len(DATA))
    part.write(0, DATA[:5000])
    again = FileStore(files.folder, 1 << 20)
    again.open()
    part = again.begin(NAME, len(DATA))

    assert part.written_bytes == 5000
    part.write(4000, DATA[4000:])
    assert again.finish(part, DIGEST) == f"{NAME}-{DIGEST}"


def test_what_a_power_cut_has_garbled_begins_anew(files):
    """The tail may be zeros: the digest says so, and the sender sends all of it again."""
    part = files.begin(NAME, len(DATA))
    part.write(0, bytes(len(DATA)))
    with pytest.raises(FileDamaged):
        files.finish(part, DIGEST)

    assert part.written_bytes == 0
    part.write(0, DATA)
    assert files.finish(part, DIGEST).endswith(DIGEST)


@pytest.mark.parametrize(("offset", "size"), [(1, 10), (0, len(DATA) + 1), (1 << 62, 1)])
def test_bytes_that_do_not_follow_are_refused(files, offset, size):
    """A gap would be zeros; what is beyond the end was not announced."""
    part = files.begin(NAME, len(DATA))
    with pytest.raises(FileGap):
        part.write(offset, bytes(size))
    assert part.written_bytes == 0


def test_bytes_that_come_again_change_nothing(files):
    """A client repeats what was not answered."""
    part = files.begin(NAME, len(DATA))
    part.write(0, DATA[:100])
    part.write(0, DATA[:100])
    part.write(50, DATA[50:200])

    assert part.written_bytes == 200


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", f"{NAME}/..", f"{NAME}.part", NAME.upper(), "a" * 300]
)
def test_no_name_leads_out_of_the_folder(files, name):
    """Names come from clients."""
    with pytest.raises(InvalidArgument):
        files.begin(name, 1)
    with pytest.raises(FileUnknown):
        files.read(name, 0, 1)
    with pytest.raises(FileUnknown):
        files.url(name)


def test_the_limit_counts_what_is_announced_and_what_is_there(files):
    """Two that fit one by one must not fill the disk together."""
    _whole(files)
    files.begin("0123456789abcdef-00000002", 700_000)

    with pytest.raises(SpoolFull, match="max_file_bytes"):
        files.begin("0123456789abcdef-00000003", 700_000)
    files.remove("0123456789abcdef-00000002.part")
    files.begin("0123456789abcdef-00000003", 700_000)
    assert _used(files) == 700_000 + len(DATA)


def test_what_stopped_to_come_is_found_and_foreign_files_are_left_alone(files):
    """Only names of ours are given up."""
    files.begin(NAME, 10).close()
    (files.folder / "notes.txt").write_text("mine")
    os.utime(files.folder / f"{NAME}.part", (1000, 1000))
    again = FileStore(files.folder, 1 << 20)
    again.open()

    assert again.abandoned(life_s=60) == [f"{NAME}.part"]
    assert again.abandoned(life_s=1e12) == []
    again.remove(f"{NAME}.part")
    assert [p.name for p in files.folder.iterdir()] == ["notes.txt"]


def test_a_file_that_is_gone_is_said_to_be_gone(files):
    """Somebody cleaned up by hand."""
    full = _whole(files)
    (files.folder / full).unlink()

    with pytest.raises(FileUnknown):
        files.read(full, 0, 1)


class Faulty(PrivateDisk):
    """The real disk; notes its calls, and fails those that are named, once each."""

    def __init__(self):
        self.calls, self.failing = [], {}

    def _call(self, name):
        self.calls.append(name)
        if name in self.failing:
            code = self.failing.pop(name)
            raise OSError(code, os.strerror(code))

    def pwritev(self, fd, buffers, offset):
        self._call("pwritev")
        return super().pwritev(fd, buffers, offset)

    def fsync(self, fd):
        self._call("fsync")
        super().fsync(fd)

    def rename(self, source, target):
        self._call("rename")
        super().rename(source, target)

    def fsync_dir(self, path):
        self._call(f"fsync_dir {path.name}")
        super().fsync_dir(path)


def test_the_folder_s_own_name_is_safe_before_a_file_is_confirmed(tmp_path):
    """A confirmed file in a folder that a power cut takes away is lost."""
    disk = Faulty()
    _whole(FileStore(tmp_path / "files", 1 << 20, disk))

    assert disk.calls[-5:] == [
        f"fsync_dir {tmp_path.name}",
        "pwritev",
        "fsync",
        "rename",
        "fsync_dir files",
    ]


def _opened_below(folder):
    """How many descriptors; those of other tests are closed when their garbage is collected."""
    known = Path("/proc/self/fd").iterdir()
    return sum(fd.resolve().is_relative_to(folder.resolve()) for fd in known)


def test_a_file_that_cannot_be_read_again_leaves_no_descriptor_behind(tmp_path):
    """Its sender tries again and again."""
    disk = Faulty()
    files = FileStore(tmp_path / "files", 1 << 20, disk)
    part = files.begin(NAME, 10)
    files.write(part, 0, b"some")
    part.close()
    before = _opened_below(tmp_path)

    for _ in range(3):
        disk.failing["pwritev"] = errno.ENOSPC
        with pytest.raises(SpoolFull):
            files.begin(NAME, 10)

    assert _opened_below(tmp_path) == before
    assert files.begin(NAME, 10).written_bytes == 4


@pytest.mark.parametrize("call", ["pwritev", "fsync", "rename"])
def test_after_a_failed_write_or_sync_the_file_is_given_up_and_comes_anew(tmp_path, call):
    """P7: repeated on the same file, a sync reports success and saves nothing."""
    disk = Faulty()
    files = FileStore(tmp_path / "files", 1 << 20, disk)
    disk.failing[call] = errno.EIO
    with pytest.raises(SpoolFailed):
        _whole(files)
    assert list(files.folder.iterdir()) == []
    assert _used(files) == 0
    assert files.found(NAME, DIGEST) is None

    assert files.read(_whole(files), 0, 1 << 20) == DATA


def test_after_a_failed_sync_of_a_name_no_file_is_taken_until_the_next_boot(tmp_path):
    """What else the failed sync has given up, nobody can say."""
    disk = Faulty()
    files = FileStore(tmp_path / "files", 1 << 20, disk)
    files.begin(NAME, 1).close()
    disk.failing["fsync_dir files"] = errno.EIO
    with pytest.raises(SpoolFailed):
        _whole(files)

    assert files.found(NAME, DIGEST) is None
    with pytest.raises(SpoolFailed, match="boots again"):
        _whole(files)
    again = FileStore(tmp_path / "files", 1 << 20)
    assert again.open() == [f"{NAME}-{DIGEST}"]
    assert again.read(f"{NAME}-{DIGEST}", 0, 1 << 20) == DATA


def test_bytes_for_which_there_was_no_space_may_come_again(tmp_path):
    """A full disk passes; what has come need not come again."""
    disk = Faulty()
    files = FileStore(tmp_path / "files", 1 << 20, disk)
    part = files.begin(NAME, len(DATA))
    files.write(part, 0, DATA[:100])
    disk.failing["pwritev"] = errno.ENOSPC
    with pytest.raises(SpoolFull):
        files.write(part, 100, DATA[100:])

    files.write(part, 100, DATA[100:])
    assert files.finish(part, DIGEST) == f"{NAME}-{DIGEST}"


def test_room_is_kept_for_what_comes_next_and_not_for_all_that_was_announced(tmp_path):
    """One request, and not a byte, would else keep everybody's room for a day."""
    files = FileStore(tmp_path / "files", 100 << 20)
    big = files.begin(NAME, 90 << 20)
    assert _used(files) == AHEAD_BYTES
    files.write(big, 0, bytes(20 << 20))
    assert _used(files) == (20 << 20) + AHEAD_BYTES
    files.put_aside(big)

    assert _used(files) == 20 << 20


def test_a_disk_that_fails_is_a_typed_error(files):
    """Here the folder is a file."""
    files.folder.write_text("in the way")

    with pytest.raises(SpoolFailed):
        files.begin(NAME, 1)
