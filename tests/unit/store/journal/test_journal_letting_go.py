"""Segments that the log does not need: nobody is served their bytes, or stopped by them."""

import contextlib
import dataclasses
import itertools
import os
import time

import pytest
from journal_support import NotingDisk, contents, flip, recovered, running, segments

from hms.errors.catalogue import InvalidArgument, StoreCorrupt
from hms.records import RecordType
from hms.store.aging import Aging
from hms.store.interface import SEGMENT_SHIFT, SegmentGoneError
from hms.store.journal.audit_files import (
    audit_files,
    audit_payloads,
    retire_audit,
    write_audit_file,
)
from hms.store.journal.disk import REAL_DISK, RealDisk
from hms.store.journal.format import Author, pack_segment_header
from hms.store.journal.reader import list_segments, read_segment
from hms.store.journal.segment_manager import LogLimits
from hms.store.journal.store_examination import examine
from tests.crash.cleaning import ALL_HISTORY, NO_HISTORY, SHORT_HISTORY, busy

YEARS_S = 3e8


class PagingDisk(NotingDisk):
    """A message is paged in just before its file loses its name."""

    def __init__(self):
        super().__init__()
        self.journal, self.read_at = None, []

    def _page_in(self, file):
        self.read_at.append((int(file.stem) << SEGMENT_SHIFT) + 128)
        with contextlib.suppress(SegmentGoneError):
            self.journal.read(self.read_at[-1], 64)

    def rename(self, source, target):
        if target.name == "spare.log":
            self._page_in(source)
        super().rename(source, target)

    def unlink(self, path):
        if path.suffix == ".history":
            self._page_in(path)
        super().unlink(path)


@pytest.mark.parametrize("setting", [NO_HISTORY, SHORT_HISTORY])
def test_a_segment_that_is_removed_is_never_read_again(tmp_path, setting):
    """Its file may hold other bytes a moment later; a message must not be delivered as zeros."""
    disk = PagingDisk()
    run = running(tmp_path, setting, disk)
    disk.journal = run.journal

    busy(50)(run)

    assert len(disk.read_at) > 3
    for position in disk.read_at:
        with pytest.raises(SegmentGoneError):
            run.journal.read(position, 64)
    run.journal.close()


class SlowReader(RealDisk):
    """Reads a segment, and is held up between opening it and reading its records."""

    def __init__(self, meanwhile):
        self._opens, self._meanwhile = 0, meanwhile

    def open(self, path, flags):
        fd = super().open(path, flags)
        self._opens += 1
        if self._opens == 2:
            self._meanwhile()
        return fd


@pytest.mark.parametrize("setting", [NO_HISTORY, SHORT_HISTORY])
def test_a_reader_of_the_history_ends_well_when_its_file_is_removed_meanwhile(tmp_path, setting):
    """Spark must not be told that the log is damaged because the history moved on."""
    run = running(tmp_path, SHORT_HISTORY)
    busy(45)(run)
    run.journal.close()
    run = running(tmp_path, setting)
    file = max(tmp_path.glob("*.history"))
    expected = [bytes(record[3]) for record in read_segment(file)]

    reader = SlowReader(lambda: busy(30)(run))
    found = [bytes(record[3]) for record in read_segment(file, disk=reader)]

    assert not file.exists()
    assert found == expected
    run.journal.close()


@pytest.fixture
def leftovers(tmp_path):
    """A store whose node died before it let go of what its newest header calls needless."""
    run = running(tmp_path, ALL_HISTORY)
    run.journal.maintain = lambda: None
    busy(40)(run)
    run.journal.close()
    needless = [
        file for file in segments(tmp_path) if int(file.stem) < run.journal._segments.oldest
    ]
    assert len(needless) > 2
    return needless


@pytest.mark.parametrize("size", [0, 63, None])
def test_damage_in_a_segment_that_nobody_needs_does_not_keep_the_node_from_booting(
    tmp_path, leftovers, size
):
    """All that waits is there; only the history has lost something, and verify says so."""
    sound = recovered(tmp_path)
    if size is None:
        flip(leftovers[1], 20)
    else:
        leftovers[1].write_bytes(leftovers[1].read_bytes()[:size])
    before = contents(tmp_path)

    found = examine(tmp_path)

    assert {damage.file for damage in found.damages} == {leftovers[1]}
    assert not any(damage.is_needed for damage in found.damages)
    assert contents(tmp_path) == before
    assert recovered(tmp_path) == sound
    run = running(tmp_path, ALL_HISTORY)
    run.journal.maintain()
    run.journal.close()
    assert not any(file.exists() for file in leftovers)
    assert leftovers[1].with_suffix(".history").exists()


def test_a_needless_segment_of_another_node_is_no_reason_to_refuse(tmp_path, leftovers):
    """The boot compares only segments that it needs, and verify must blame the one that is odd."""
    odd = leftovers[-1]
    odd.write_bytes(
        pack_segment_header(Author(4711, 1), int(odd.stem), 1, 1) + odd.read_bytes()[64:]
    )

    assert recovered(tmp_path)
    damages = examine(tmp_path).damages
    assert damages
    assert not any(damage.is_needed for damage in damages)


def test_damage_in_the_newest_header_refuses_though_older_ones_are_sound(tmp_path, leftovers):
    """Only the newest one says where the log begins; an older one would bring taken messages back
    or miss new ones."""
    newest = segments(tmp_path)[-1]
    flip(newest, 20)

    with pytest.raises(StoreCorrupt) as caught:
        recovered(tmp_path)
    assert caught.value.file == str(newest)
    assert [damage.file for damage in examine(tmp_path).damages if damage.is_needed] == [newest]


def test_figures_are_told_without_a_look_at_the_disk(tmp_path, monkeypatch):
    """Status asks for them under the engine's lock, of a history of any number of files."""
    run = running(tmp_path, ALL_HISTORY)
    busy(40)(run)
    files = list(tmp_path.glob("*.history"))
    with monkeypatch.context() as without:
        without.setattr(run.disk, "list_dir", None)
        without.setattr(run.disk, "size_and_age", None)
        told = run.journal.describe()
    assert told["history_segments"] == len(files) > 0
    assert told["history_bytes"] == sum(file.stat().st_size for file in files)
    assert told["segments"] == len(segments(tmp_path))
    run.journal.close()


def test_the_history_may_be_removed_from_outside_while_it_is_limited(tmp_path):
    """What is gone is counted no more, and no error stops the node."""
    run = running(tmp_path, ALL_HISTORY)
    busy(40)(run)
    size_and_age, removed = run.disk.size_and_age, []

    def late(path):
        if not removed:
            removed.append(path)
            path.unlink()
        return size_and_age(path)

    run.disk.size_and_age = late
    run.journal._segments.limit_history()
    assert removed
    told = run.journal.describe()
    assert told["history_segments"] == len(list(tmp_path.glob("*.history")))
    run.journal.close()


def test_segments_that_are_not_there_yet_cannot_be_told_to_leave(tmp_path):
    """All that came would be moved on, as long as the node runs; refused, it changes nothing."""
    run = running(tmp_path, ALL_HISTORY)
    busy(40)(run)
    newest = int(segments(tmp_path)[-1].stem)
    before = run.journal.leave(0)
    for until in (newest + 2, (1 << 63) - 1):
        with pytest.raises(InvalidArgument, match=f"{until} is beyond the segment .* {newest}"):
            run.journal.leave(until)
    live = run.journal._segments._live
    assert run.journal.next_to_clean(live) is None
    assert run.journal.leave(newest + 1) == before
    assert run.journal.next_to_clean(live) is not None
    run.journal.close()


class AheadDisk(NotingDisk):
    """Of a machine whose clock may be years ahead."""

    ahead_s = 0.0

    def size_and_age(self, path):
        size, age_s = super().size_and_age(path)
        return size, age_s + self.ahead_s


def test_a_clock_years_ahead_takes_no_history_with_it(tmp_path):
    """At a boot with it all looked older than history_age_s, and went at once."""
    disk = AheadDisk()
    setting = dataclasses.replace(ALL_HISTORY, limits=LogLimits(history_age_s=3600))
    run = running(tmp_path, setting, disk)
    busy(20)(run)
    run.journal.close()
    held = set(tmp_path.glob("*.history"))
    assert held

    disk.ahead_s = YEARS_S
    run = running(tmp_path, setting, disk)
    manager, steady_s = run.journal._segments, itertools.count(0, 10)
    manager._aging = Aging(lambda: time.time() + YEARS_S, steady_s.__next__)
    busy(20)(run)
    assert held <= set(tmp_path.glob("*.history"))
    assert run.journal.describe()["history_held_s"] == pytest.approx(YEARS_S, rel=0.1)
    run.journal.close()

    disk.ahead_s = 0.0
    run = running(tmp_path, setting, disk)
    busy(20)(run)
    assert held <= set(tmp_path.glob("*.history"))
    assert run.journal.describe()["history_held_s"] == 0
    run.journal.close()


def test_history_goes_by_its_age_as_the_node_runs(tmp_path):
    """An hour makes up a day."""
    setting = dataclasses.replace(ALL_HISTORY, limits=LogLimits(history_age_s=3600))
    run = running(tmp_path, setting)
    hours = itertools.count(0, 3600)
    run.journal._segments._aging = Aging(steady_s=lambda: float(next(hours)))
    busy(20)(run)
    old = sorted(tmp_path.glob("*.history"))[:2]
    for file in old:
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    busy(20)(run)
    assert not any(file.exists() for file in old)
    assert list(tmp_path.glob("*.history"))
    run.journal.close()


@pytest.mark.parametrize("setting", [NO_HISTORY, SHORT_HISTORY])
def test_the_audit_of_a_segment_that_goes_stays(tmp_path, setting):
    """Every record once and in order, also when the process dies before the segment is gone."""
    run, told = running(tmp_path, setting), []
    for number in range(12):
        told.append(b"audit %d" % number)
        run.journal.append(RecordType.AUDIT, 1, (told[-1],))
        busy(6)(run)
    run.journal.close()

    def found():
        files = [one for file in audit_files(REAL_DISK, tmp_path) for one in kept(file)]
        log = [bytes(one[3]) for i in list_segments(tmp_path) for one in read_segment(i.file)
               if one[1] == RecordType.AUDIT]  # fmt: skip
        assert files
        return files + log

    assert found() == told
    last = max(tmp_path.glob("*.audit"))
    again = min(file for file in segments(tmp_path) if file.suffix in (".log", ".history"))
    copy = last.with_name(f"{again.stem}.audit")
    copy.write_bytes(last.read_bytes())  # the crash: its segment is there, too
    assert found() == told


def test_a_disk_that_takes_no_more_audit_keeps_its_segment(tmp_path):
    """It is lost neither here nor there, and goes on when there is room again."""

    class FullDisk(NotingDisk):
        is_full = False

        def open(self, path, flags):
            if self.is_full and path.suffix == ".audit-new":
                raise OSError(28, "No space left on device")
            return super().open(path, flags)

    disk = FullDisk()
    run = running(tmp_path, SHORT_HISTORY, disk)
    run.journal.append(RecordType.AUDIT, 1, (b"audit",))
    run.journal.commit()
    disk.is_full = True
    busy(45)(run)
    assert not list(tmp_path.glob("*.audit"))
    held = len(list(tmp_path.glob("*.history")))
    disk.is_full = False
    busy(10)(run)
    assert len(list(tmp_path.glob("*.history"))) < held
    (file,) = tmp_path.glob("*.audit")
    assert kept(file) == [b"audit"]
    run.journal.close()


def test_an_audit_that_is_older_than_it_is_kept_goes(tmp_path):
    """With a file that was cut, which is told and not read over."""
    for number in (1, 2):
        write_audit_file(REAL_DISK, tmp_path / f"{number:016d}.audit", [b"one", b"two"])
    old, cut = sorted(tmp_path.glob("*.audit"))
    os.utime(old, (0, 0))
    aging = Aging(steady_s=itertools.count(0, 1e10).__next__)
    retire_audit(REAL_DISK, tmp_path, 0, aging)
    retire_audit(REAL_DISK, tmp_path, 3600, aging)
    assert old.exists()  # nothing goes at a boot
    retire_audit(REAL_DISK, tmp_path, 3600, aging)
    assert not old.exists()
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(StoreCorrupt, match="ends in a record"):
        kept(cut)


def kept(file):
    return list(audit_payloads(REAL_DISK, file))
