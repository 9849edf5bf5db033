"""A segment that leaves the log keeps no space behind its end."""

import os
import time

import pytest
from journal_support import NODE, NotingDisk, bodies, booted, dictionary, running

from hms.server.replicas.damage import check_segment
from hms.server.replicas.frames import Keep
from hms.server.replicas.log_copy import LogCopy
from hms.store.journal import Journal, segment_manager
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.reader import list_segments, read_segment, verify
from hms.store.journal.segment_trim import trim
from hms.store.journal.segment_walk import last_written
from hms.store.journal.store_examination import examine
from tests.crash.cleaning import ALL_HISTORY, busy

MIB = 1 << 20


def sealed_often(path, times, limits=ALL_HISTORY.limits):
    """A journal that is sealed behind each message of a few bytes, and keeps none of them."""
    journal = Journal.open(path, segment_bytes=MIB, node_uid=NODE, limits=limits, disk=NotingDisk())
    for _ in journal.recover():
        pass
    journal.start(dictionary)
    for number in range(times):
        journal.append(3, 1, (b"message %d" % number,))
        journal.commit()
        journal.maintain()
        assert journal.seal() is not None
        while (step := journal.next_to_clean(Nothing)) is not None:
            journal.cleaned(step.segment)
    journal.append(3, 1, (b"the last",))
    journal.commit()
    journal.maintain()
    return journal


class Nothing:
    """An engine in which nothing waits."""

    @staticmethod
    def live_bytes():
        return 0

    @staticmethod
    def live_bytes_in(_segment):
        return 0


def history_of(path):
    return sorted(path.glob("*.history"))


def test_a_log_that_is_sealed_often_fills_no_history(tmp_path):
    """A backup that is shipped every minute seals every minute: 64 MiB each filled 16 GiB of
    history in four hours, with zeros."""
    journal = sealed_often(tmp_path, 20)
    told = journal.describe()
    journal.close()

    sizes = [file.stat().st_size for file in history_of(tmp_path)]
    assert len(sizes) > 12
    assert max(sizes) < 1024
    assert told["history_bytes"] == sum(sizes)
    assert told["history_segments"] == len(sizes)
    records = [one for info in list_segments(tmp_path) for one in read_segment(info.file)]
    assert bodies(records) == [b"message %d" % n for n in range(20)] + [b"the last"]
    assert list(verify(tmp_path)) == []
    assert examine(tmp_path).damages == []


def test_a_history_of_small_files_has_a_limit_of_its_own(tmp_path, monkeypatch):
    """Each boot and each reader lists the directory: a million names must not lie there."""
    monkeypatch.setattr(segment_manager, "HISTORY_FILES_MAX", 5)

    journal = sealed_often(tmp_path, 20)

    assert len(history_of(tmp_path)) == 5 == journal.describe()["history_segments"]
    journal.close()


def test_the_age_of_a_segment_that_is_trimmed_is_that_of_its_last_write(tmp_path):
    """history_age_s says how long what was written is kept, not how long since it left the log."""
    sealed_often(tmp_path, 3).close()
    first = min(tmp_path.glob("0*.log"))
    os.utime(first, (1_000_000, 1_000_000))

    assert trim(REAL_DISK, first) < 1024

    assert first.stat().st_mtime == 1_000_000
    assert REAL_DISK.size_and_age(first)[1] > time.time() - 2_000_000


def test_a_segment_without_a_seal_is_not_cut(tmp_path):
    """A crash may leave one so. Its last record may end in zeros, which are part of it."""
    journal, _ = booted(tmp_path, segment_bytes=MIB)
    journal.append(3, 1, (b"x" + bytes(4000),))
    journal.commit()
    journal.close()
    (file,) = tmp_path.glob("0*.log")
    before = file.read_bytes()

    assert trim(REAL_DISK, file) == MIB
    assert file.read_bytes() == before


@pytest.mark.parametrize("what", ["header", "behind"])
def test_a_segment_that_cannot_be_understood_is_not_cut(tmp_path, what):
    """What is damaged is for whoever salvages it."""
    sealed_often(tmp_path, 3).close()
    first = min(tmp_path.glob("0*.log"))
    data = bytearray(first.read_bytes())
    data[20 if what == "header" else 500_000] ^= 1
    first.write_bytes(data)

    assert trim(REAL_DISK, first) == MIB
    assert first.read_bytes() == data


def test_a_full_segment_is_cut_where_it_ends(tmp_path):
    """Segments that were filled are let go the same way."""
    run = running(tmp_path, ALL_HISTORY)
    busy(40)(run)
    run.journal.close()

    files = history_of(tmp_path)
    assert len(files) > 4
    for file in files:
        with file.open("rb") as opened:
            end = last_written(REAL_DISK, opened.fileno(), SEGMENT_HEADER_BYTES)
        assert file.stat().st_size == end + -end % 8


def test_a_copy_trims_what_its_primary_lets_go(tmp_path):
    """Its bytes are the primary's up to the end, and a look at it finds no damage."""
    theirs = tmp_path / "theirs"
    sealed_often(theirs, 3).close()
    ours = tmp_path / "ours"
    ours.mkdir()
    files = sorted(theirs.glob("0*.log"))
    for file in files:
        (ours / file.name).write_bytes(file.read_bytes())
    first, second, third, *_ = [int(file.stem) for file in files]
    copy = LogCopy(REAL_DISK, ours)

    copy.take(Keep(0, third, [second], [first]), b"")
    copy.close()

    for number, name in ((first, "history"), (second, "pinned")):
        (kept,) = ours.glob(f"*{number}.{name}")
        assert kept.stat().st_size < 1024
        whole = next(file for file in files if int(file.stem) == number).read_bytes()
        assert whole.startswith(kept.read_bytes())
        assert whole.count(0, kept.stat().st_size) == MIB - kept.stat().st_size
        assert check_segment(REAL_DISK, ours, number) is None


def test_a_history_of_whole_segments_is_read_and_kept(tmp_path):
    """A store of the release before has them; they go by the history's limits, oldest first."""
    journal = sealed_often(tmp_path, 12)
    journal.close()
    for file in history_of(tmp_path):
        os.truncate(file, MIB)

    journal = sealed_often(tmp_path, 3)
    told = journal.describe()
    journal.close()

    sizes = [file.stat().st_size for file in history_of(tmp_path)]
    assert max(sizes) == MIB > min(sizes)
    assert told["history_bytes"] == sum(sizes)
    assert list(verify(tmp_path)) == []
