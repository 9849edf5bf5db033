"""Files of a log that is rotated: each line is in one of them, whenever a process is killed."""

import gzip
import itertools
import os
import signal

import pytest

from hms.boot.log_search import entries_of, files_of
from hms.boot.rotated_files import RotatedFiles

STEPS = ("open", "rename", "unlink", "fsync", "replace", "utime", "fchmod")
LINES = [f"2026-05-01 08:00:0{n},000 INFO hms.node: line {n}" for n in range(6)]


class _Killed(BaseException):
    pass


@pytest.fixture
def killed_at(monkeypatch):
    """After so many steps no other has an effect, nor has what would clean up."""

    def arm(count):
        left = itertools.count(count, -1)

        def step(real, *arguments, **options):
            if next(left) <= 0:
                raise _Killed
            return real(*arguments, **options)

        for name in STEPS:
            real = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *a, _real=real, **o: step(_real, *a, **o))

    yield arm
    monkeypatch.undo()


def rotate(file):
    files = RotatedFiles(file, 2, lambda: 1_777_622_400.0)
    os.close(files.begin_next())
    files.compress(lambda _seconds: None)
    files.prune()


def lines_of(file):
    return [line for entry in entries_of(files_of(file)) for line in entry.lines]


def test_a_kill_at_any_step_leaves_each_line_once_and_the_next_boot_puts_it_right(
    tmp_path, killed_at, monkeypatch
):
    """Two rotations; a search finds each line in between, too."""
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        folder.mkdir()
        file = folder / "N1.log"
        file.write_text("\n".join(LINES[:3]) + "\n")
        killed_at(steps)
        try:
            rotate(file)
            file.write_text("\n".join(LINES[3:]) + "\n")
            rotate(file)
            is_over = True
        except _Killed:
            is_over = False
        monkeypatch.undo()
        before = lines_of(file)
        assert before in (LINES[:3], LINES), (steps, before)
        with file.open("a") as log:  # a boot
            log.write("")
        files = RotatedFiles(file, 2)
        files.mend()
        assert files.compress(lambda _seconds: None)
        files.prune()
        assert lines_of(file) == before
        names = {path.name for path in folder.iterdir()} - {"N1.log"}
        assert all(name.startswith("N1.log-") and name.endswith(".gz") for name in names), names
        if is_over:
            break
    assert before == LINES
    assert steps > 15


def test_a_compressed_file_has_the_rights_and_the_time_of_the_log(tmp_path):
    """Who may not read the log may not read its past; search orders files by their time."""
    file = tmp_path / "N1.log"
    file.write_text("kept\n")
    file.chmod(0o600)
    os.utime(file, (1000, 2000))
    files = RotatedFiles(file, 10, lambda: 1_777_622_400.0)
    os.close(files.begin_next())
    assert files.compress(lambda _seconds: None)
    path = tmp_path / "N1.log-20260501T080000Z-000001.gz"
    about = path.stat()
    assert (about.st_mode & 0o777, about.st_mtime) == (0o600, 2000)
    assert gzip.decompress(path.read_bytes()) == b"kept\n"
    assert file.read_text() == ""
    assert file.stat().st_mode & 0o137 == 0


def test_what_another_process_still_writes_is_not_compressed(tmp_path):
    """A server that was told to go on in the new file may be in the midst of a line."""
    file = tmp_path / "N1.log"
    file.write_text("a\n")
    handlers = signal.getsignal(signal.SIGIO)
    with file.open("a") as writer:
        files = RotatedFiles(file, 10)
        os.close(files.begin_next())
        assert not files.compress(lambda _seconds: None)
        writer.write("b\n")
    assert files.compress(lambda _seconds: None)
    assert lines_of(file) == ["a", "b"]
    assert signal.getsignal(signal.SIGIO) == handlers


def test_the_oldest_go_and_files_of_others_stay(tmp_path):
    """Numbers tell which are the oldest; what logrotate keeps is its own."""
    file = tmp_path / "N1.log"
    others = {"N1.log.1", "N1.log-20260501", "N1.log-20260502.gz", "N10.log"}
    for name in others:
        (tmp_path / name).write_text(name)
    clock = iter([9e8, 3e8, 7e8, 1e8]).__next__
    files = RotatedFiles(file, 2, clock)
    for n in range(4):
        file.write_text(f"{n}\n")
        os.close(files.begin_next())
        files.prune()
    assert [one.number for one in files.past()] == [3, 4]
    assert others <= {path.name for path in tmp_path.iterdir()}


def test_a_log_that_cannot_be_rotated_keeps_its_name(tmp_path, monkeypatch):
    """The node goes on in the file that it has."""
    file = tmp_path / "N1.log"
    file.write_text("a\n")
    files = RotatedFiles(file, 2)
    real = os.rename
    with monkeypatch.context() as patched:

        def refused(old, new):
            if str(new) == str(file) and str(old).endswith(".new"):
                raise OSError(28, "No space left on device")
            real(old, new)

        patched.setattr(os, "rename", refused)
        with pytest.raises(OSError, match="No space"):
            files.begin_next()
    assert file.read_text() == "a\n"
    assert files.past() == []
