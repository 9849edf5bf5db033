"""What a copy keeps of a segment when its own end is cut, and it is killed just then."""

import shutil
from types import SimpleNamespace
from zlib import crc32

import pytest

from hms.server.replicas.damage import check_segment
from hms.server.replicas.frames import Cut, Keep, PastPart, Segment, Write
from hms.server.replicas.log_copy import NO_LIMITS, LogCopy, aside_names
from hms.server.replicas.primary import Primary
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import SEGMENT_HEADER_BYTES, Author, pack_segment_header
from hms.store.journal.journal import Journal
from hms.store.journal.segment_walk import all_files, last_written, opened

SEGMENT_BYTES = 1 << 20


def _begun(path, epoch):
    journal = Journal(
        path=path,
        segment_bytes=SEGMENT_BYTES,
        node_uid=1,
        disk=REAL_DISK,
        limits=NO_LIMITS,
        epoch=epoch,
        release=(1, 0, 0),
        reaches=(0, 0),
    )
    for _ in journal.recover():
        pass
    journal.start(lambda: (1, 1, [b"dictionary"]))
    return journal


def _append(journal, body):
    journal.append(2, 1, [body])
    journal.commit()


def _kept(path, to):
    """The segments that lie there now."""
    to.mkdir()
    for file in path.glob("[0-9]*.log"):
        shutil.copy(file, to)
    return to


def _header(path, number):
    with opened(REAL_DISK, all_files(REAL_DISK, path)[number]) as fd:
        return REAL_DISK.pread(fd, SEGMENT_HEADER_BYTES, 0)


def test_a_copy_keeps_nothing_of_its_own_at_the_place_of_a_seal(tmp_path):
    """It went further than the one that leads now, which has sealed the segment and begun another:
    32 bytes in the middle of the log would be damage for whoever reads it alone."""
    (tmp_path / "first").mkdir()
    first = _begun(tmp_path / "first", 1)
    _append(first, bytes(100))
    leads = _kept(tmp_path / "first", tmp_path / "leads")
    _append(first, b"x" * 300)
    follows = _kept(tmp_path / "first", tmp_path / "follows")
    first.close()
    journal = _begun(leads, 2)
    old, new = sorted(all_files(REAL_DISK, leads))
    copy = LogCopy(REAL_DISK, follows)
    theirs = dict(copy.joins("id", 1).ends)[old]
    file = all_files(REAL_DISK, leads)[old]
    primary = Primary.__new__(Primary)
    primary._disk, primary._headers = REAL_DISK, {old: (_header(leads, old), SEGMENT_BYTES)}
    with opened(REAL_DISK, file) as fd:
        end = last_written(REAL_DISK, fd, SEGMENT_HEADER_BYTES)
        cut = primary._cut_at(fd, old, theirs, end + -end % 8)

    copy.take(Segment(0, old, SEGMENT_BYTES, ".log"), _header(leads, old))
    copy.take(Cut(old, cut), b"")
    copy.take(Segment(0, new, SEGMENT_BYTES, ".log"), _header(leads, new))
    copy.close()  # killed, before the seal came

    journal.close()
    all_files(REAL_DISK, follows)[new].unlink()
    assert check_segment(REAL_DISK, follows, old) is None
    whole = SimpleNamespace(_is_seal=lambda *_: False)
    assert Primary._cut_at(whole, -1, old, theirs, 304) == 304  # the last record of one not sealed


def test_a_damaged_segment_that_leaves_the_log_while_it_comes_again_has_come(tmp_path):
    """The primary cleans its log meanwhile: the copy was said to be damaged until its next boot."""
    journal = _begun(tmp_path, 1)
    _append(journal, bytes(100))
    journal.seal()
    _append(journal, bytes(100))
    journal.close()
    copy = LogCopy(REAL_DISK, tmp_path)
    data = all_files(REAL_DISK, tmp_path)[1].read_bytes()[SEGMENT_HEADER_BYTES:]
    copy.joins("1" * 32, 1, {1: SEGMENT_HEADER_BYTES})
    copy.take(Write(0, 1, SEGMENT_HEADER_BYTES, crc32(data)), data)
    copy.take(Keep(0, 2, [], [1]), b"")
    copy.is_whole()

    assert all_files(REAL_DISK, tmp_path)[1].suffix == ".history"
    assert copy.taken_anew() == [1]
    copy.close()


@pytest.mark.parametrize("suffix", [".pinned", ".history"])
def test_a_segment_that_had_left_the_log_comes_back_into_it(tmp_path, suffix):
    """A primary that had less has it in its log: it was removed here, and the copy counted."""
    journal = _begun(tmp_path, 1)
    _append(journal, bytes(100))
    journal.seal()
    _append(journal, bytes(100))
    journal.close()
    file = all_files(REAL_DISK, tmp_path)[1]
    data = file.read_bytes()
    file.rename(file.with_suffix(suffix))
    copy = LogCopy(REAL_DISK, tmp_path)

    copy.take(Keep(0, 1, [], []), b"")

    assert all_files(REAL_DISK, tmp_path)[1] == file
    assert file.read_bytes() == data
    copy.close()


@pytest.mark.parametrize("epoch", [1, 2])
def test_what_had_left_a_log_that_was_lost_is_set_aside_where_it_was(tmp_path, epoch):
    """An operator had another copy go on, which wrote the same number, or less of it: what this one
    alone had let go was removed, and nobody had it any more."""
    (tmp_path / "lost").mkdir()
    journal = _begun(tmp_path / "lost", 1)
    _append(journal, bytes(100))
    less = (tmp_path / "lost" / "0000000000000001.log").read_bytes()
    _append(journal, b"x" * 300)
    journal.seal()
    journal.close()
    data = all_files(REAL_DISK, tmp_path / "lost")[1].read_bytes()
    folder = tmp_path / "copy"
    folder.mkdir()
    other = pack_segment_header(Author(1, 2), 1, 1, 1)
    (folder / "0000000000000001.log").write_bytes(less if epoch == 1 else other)
    (folder / "0000000000000001.history").write_bytes(data)
    copy = LogCopy(REAL_DISK, folder)

    copy.take(Keep(0, 1, [], []), b"")
    copy.take(Keep(0, 1, [], []), b"")

    copy.close()
    [aside] = aside_names(REAL_DISK, folder)
    assert (folder / aside).read_bytes() == data
    assert {one.name for one in folder.iterdir()} == {aside, "0000000000000001.log"}


def test_a_copy_that_an_operator_has_lead_goes_on_behind_its_seal(tmp_path):
    """Of what others had it got the end of a segment, and nothing of the next one: it was named
    damaged at its boot, and the group had nobody who could lead."""
    for epoch in (1, 2):  # a boot seals what was written before
        journal = _begun(tmp_path, epoch)
        _append(journal, bytes(100))
        journal.close()
    all_files(REAL_DISK, tmp_path)[2].unlink()
    copy = LogCopy(REAL_DISK, tmp_path)
    assert not copy.tail()[1]

    copy.open_end()

    assert copy.tail()[1]
    copy.close()
    _begun(tmp_path, 3).close()


def test_a_damaged_segment_that_the_primary_let_go_comes_with_the_history(tmp_path):
    """Until then it is not looked at again, nor said to be damaged at the primary."""
    journal = _begun(tmp_path, 1)
    _append(journal, bytes(100))
    journal.seal()
    _append(journal, bytes(100))
    journal.close()
    copy = LogCopy(REAL_DISK, tmp_path)
    copy.joins("1" * 32, 1, {1: SEGMENT_HEADER_BYTES})
    data = all_files(REAL_DISK, tmp_path)[1].read_bytes()
    copy.take(Keep(0, 2, [], [1]), b"")
    copy.is_whole()
    assert copy.taken_anew() == []

    copy.take(PastPart(1, 0, is_last=True, crc=crc32(data)), data)

    assert copy.taken_anew() == [1]
    copy.close()


def test_a_copy_that_has_not_got_its_whole_log_says_so(tmp_path):
    """An operator who promoted it would have a group that nobody can lead."""
    copy = LogCopy(REAL_DISK, tmp_path)
    for number, oldest in ((3, 3), (5, 3)):
        header = pack_segment_header(Author(1, 1), number, number, oldest)
        copy.take(Segment(0, number, SEGMENT_BYTES, ".log"), header)
        assert copy.gap() == (4 if number == 5 else 0)
    copy.close()


def test_a_copy_that_loses_nothing_by_a_cut_keeps_what_was_confirmed(tmp_path):
    """What it dropped before had left the log, and comes again with the history: a reader's place
    does not go back for that (H10)."""
    journal = _begun(tmp_path, 1)
    _append(journal, bytes(100))
    journal.close()
    copy = LogCopy(REAL_DISK, tmp_path)
    end = copy.joins("a" * 32, 0).ends[1]

    assert copy.ends_there(Cut(1, end - 8))
    assert not copy.ends_there(Cut(1, end))
    assert not copy.ends_there(Cut(2, SEGMENT_HEADER_BYTES))
    copy.close()


def test_a_copy_that_joins_again_writes_an_older_segment_while_a_newer_one_is_not_synced(tmp_path):
    """The sync before that lets go of all segments but two, the one to be written among them: the
    machine ended with a bad file descriptor, or wrote to a file that had its number by then."""
    copy, data = LogCopy(REAL_DISK, tmp_path), b"as it came"
    for number in (1, 2, 3):
        header = pack_segment_header(Author(1, 1), number, number, 1)
        copy.take(Segment(0, number, SEGMENT_BYTES, ".log"), header)

    for number in (2, 3, 1):
        copy.take(Write(0, number, SEGMENT_HEADER_BYTES, crc32(data)), data)
    copy.sync()
    copy.close()

    for file in all_files(REAL_DISK, tmp_path).values():
        assert file.read_bytes()[SEGMENT_HEADER_BYTES:].rstrip(b"\0") == data
