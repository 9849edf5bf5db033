"""Salvage over every kind of damage: the rest is saved, and what is lost is told."""

import contextlib
import random

import pytest

from hms.errors.catalogue import StoreLocked, StoreUnavailable
from hms.store.journal.reader import read_segment
from hms.store.journal.salvage import salvage
from hms.store.journal.store_examination import examine
from tests.crash.damage import ROUNDS, damages, three_boots
from tests.crash.program import DICTIONARY_KIND, STORE, kept, opened
from tests.crash.recording import RecordingDisk

SEED = 3
TARGET = STORE.with_name("saved")


@pytest.fixture(scope="module")
def files():
    """Three boots; filled, left and unfinished segments. Nothing is torn."""
    return three_boots()


@pytest.fixture(scope="module")
def whole(files):
    """What the sound log holds."""
    return kept(opened(RecordingDisk(files)))


def saved(files):
    """The salvaged log, and what salvage says of it."""
    disk = SavingDisk(files)
    done = salvage(STORE, TARGET, disk)
    assert {n: d for n, d in disk.files().items() if n in files} == files, "the source was changed"
    copy = {
        n.replace(str(TARGET), str(STORE)): data
        for n, data in disk.files().items()
        if n.startswith(f"{TARGET}/")
    }
    return kept(opened(RecordingDisk(copy))), done, copy


class SavingDisk(RecordingDisk):
    """A directory that is renamed takes its files along."""

    def rename(self, source, target):
        for name in [name for name in self.names if name.startswith(f"{source}/")]:
            self.names[name.replace(str(source), str(target), 1)] = self.names.pop(name)


def lost(done):
    """Every sequence number that is said to be dropped; the last one tells of the end."""
    return {
        lsn for gap in done.dropped for lsn in range(gap.first_lsn, (gap.last_lsn or 100_000) + 1)
    }


def check_saved(files, whole):
    """All that verifies is there under its old numbers, and what is not was told."""
    found, done, copy = saved(files)
    by_lsn = {record[0]: record for record in whole}
    assert all(by_lsn[record[0]] == record for record in found), "something else was saved"
    missing = set(by_lsn) - {record[0] for record in found}
    untold = missing - lost(done)
    if untold:  # a cut end looks as a crash leaves it
        assert examine(STORE, RecordingDisk(files)).torn
        assert not found or min(untold) > found[-1][0], "something is missing that was not told"
    assert not {record[0] for record in found} & lost(done), "something was told and is there"
    assert examine(STORE, RecordingDisk(copy)).verdict == "good"
    return found, done, missing


def test_a_sound_store_is_saved_byte_for_byte(files, whole):
    """Whoever salvages a store that was good must not lose by it."""
    found, done, copy = saved(files)

    assert found == whole
    assert done.dropped == []
    assert {n: data.rstrip(b"\0") for n, data in copy.items()} == {
        n: data.rstrip(b"\0") for n, data in files.items()
    }


def test_whatever_is_damaged_the_rest_is_saved_and_the_loss_is_told(files, whole):
    """D06: salvage returns all other records; and each loss has its place in the report."""
    rescued = 0
    for damaged in damages(files, random.Random(SEED)):
        with contextlib.suppress(StoreUnavailable):  # not one segment with a beginning is left
            found, *_ = check_saved(damaged, whole)
            rescued += len(found)
    assert rescued > ROUNDS * len(whole) * 0.5


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_bad_record_costs_that_record_alone(files, whole, number):
    """The others of its segment were confirmed too."""
    name = sorted(files)[number]
    records = list(read_segment(name, disk=RecordingDisk(files)))
    _, _, _, payload, position = records[1]
    at = (position & 0xFFFFFFFF) + len(payload) // 2
    data = bytearray(files[name])
    data[at] ^= 1

    found, done, missing = check_saved(files | {name: bytes(data)}, whole)

    assert missing == {records[1][0]}
    assert len(found) == len(whole) - 1
    (gap,) = done.dropped
    assert (gap.first_lsn, gap.records) == (records[1][0], 1)


def test_a_segment_whose_header_is_gone_keeps_its_records(files, whole):
    """Sixty-four bytes must not cost sixty-four megabytes."""
    for name in files:
        for damaged in (bytes(64) + files[name][64:], b"\xff" + files[name][1:]):
            found, done, _ = check_saved(files | {name: damaged}, whole)
            if len(found) < len(whole):
                assert done.dropped


def test_a_message_that_holds_a_copy_of_the_log_is_not_taken_for_records(files):
    """Whoever sends the log through the node must not write into the salvaged one."""
    disk = RecordingDisk(files)
    journal = opened(disk)
    before = kept(journal)
    journal.start(lambda: (DICTIONARY_KIND, 1, (b"dictionary",)))
    for body in (b"first", files[min(files)][:900], b"behind"):
        journal.append(3, 1, (body,))
        journal.commit()
    journal.close()
    name = max(n for n in disk.names if n.endswith(".log") and "spare" not in n)
    data = bytearray(disk.files()[name])
    at = data.index(b"first") + 5 + 3 + 4  # the fields of the record that carries the copy
    data[at] ^= 1

    found, done, _ = saved(disk.files() | {name: bytes(data)})

    assert found[: len(before)] == before
    assert [body for *_, body in found[len(before) :]] == [b"first", b"behind"]
    assert len(done.dropped) == 1


def test_nothing_is_written_without_a_target_and_a_directory_that_exists_is_refused(files):
    """The operator sees what will be dropped before anything is made."""
    damaged = {n: data for n, data in files.items() if n != sorted(files)[1]}
    disk = SavingDisk(damaged)

    told = salvage(STORE, None, disk)

    assert told.dropped
    assert told.target is None
    assert disk.files() == damaged
    _, done, _ = saved(damaged)
    assert done.dropped == told.dropped
    assert done.records == told.records


def test_a_store_in_use_is_not_salvaged(files):
    """The node writes on meanwhile; a copy would be of two moments."""
    disk = RecordingDisk(files)
    journal = opened(disk)

    with pytest.raises(StoreLocked):
        salvage(STORE, None, disk)
    assert examine(STORE, disk).in_use_by is not None

    journal.close()
    assert examine(STORE, disk).in_use_by is None
