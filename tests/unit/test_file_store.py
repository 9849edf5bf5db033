"""The folder of files: what comes is whole or begins anew; names, limits, faults."""

import hashlib
import os

import pytest

from field_buffer.catalogue import (
    FileDamaged,
    FileGap,
    FileUnknown,
    InvalidArgument,
    SpoolFailed,
    SpoolFull,
)
from hms.store.files import FileStore

NAME = "0123456789abcdef-00000001"
DATA = bytes(range(256)) * 40
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def files(tmp_path):
    return FileStore(tmp_path / "files", bytes_max=1 << 20)


def _whole(files, name=NAME, data=DATA):
    part = files.begin(name, len(data))
    part.write(0, data)
    return files.finish(part, hashlib.sha256(data).hexdigest())


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
    assert files.used_bytes == 700_000 + len(DATA)


def test_what_stopped_to_come_is_found_and_foreign_files_are_left_alone(files):
    """Only names of ours are given up."""
    files.begin(NAME, 10).close()
    (files.folder / "notes.txt").write_text("mine")
    os.utime(files.folder / f"{NAME}.part", (1000, 1000))
    again = FileStore(files.folder, 1 << 20)
    again.open()

    assert again.abandoned(before_s=2000) == [f"{NAME}.part"]
    assert again.abandoned(before_s=500) == []
    again.remove(f"{NAME}.part")
    assert [p.name for p in files.folder.iterdir()] == ["notes.txt"]


def test_a_file_that_is_gone_is_said_to_be_gone(files):
    """Somebody cleaned up by hand."""
    full = _whole(files)
    (files.folder / full).unlink()

    with pytest.raises(FileUnknown):
        files.read(full, 0, 1)


def test_a_disk_that_fails_is_a_typed_error(files):
    """Here the folder is a file."""
    files.folder.write_text("in the way")

    with pytest.raises(SpoolFailed):
        files.begin(NAME, 1)
