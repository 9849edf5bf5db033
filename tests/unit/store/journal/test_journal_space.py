"""Disk full: new sends are refused while acknowledgements still fit (P10)."""

import errno

import pytest
from journal_support import SMALL, FaultyDisk, booted, recovered, segments

from hms.errors.catalogue import StoreFailed
from hms.store.journal.disk import RealDisk

EIGHTH = SMALL // 8


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def journal(tmp_path, disk):
    journal, _ = booted(tmp_path, disk)
    yield journal
    journal.close()


def fill(disk, code=errno.ENOSPC):
    disk.failing["pwritev spare.log"] = disk.failing["allocate"] = code


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_sends_are_refused_when_the_next_segment_cannot_be_prepared(journal, disk, code):
    """It shows a whole segment ahead, so that what is under way can still be finished."""
    assert journal.sends_refused() is None
    fill(disk, code)

    journal.maintain()

    said = journal.sends_refused()
    assert said
    assert ("a file of the log, which takes" in said) is (code != errno.EMFILE)
    assert not journal.is_waiting_for_space
    journal.append(5, 1, (b"acknowledgement",))
    assert journal.commit() == journal.last_lsn


def test_sending_goes_on_when_there_is_space_again_and_it_is_tried_once_a_second(journal, disk):
    """Freeing space must be enough; trying at every commit would only burn time."""
    fill(disk)
    journal.maintain()
    assert not journal.needs_maintenance
    disk.failing.clear()
    tries = disk.calls.count("open spare.log")
    disk.now = 0.9
    journal.maintain()
    assert disk.calls.count("open spare.log") == tries
    assert journal.sends_refused()

    disk.now = 1.0
    assert journal.needs_maintenance
    journal.maintain()

    assert journal.sends_refused() is None
    assert not journal.needs_maintenance


def test_a_failed_spare_is_removed_and_made_anew(tmp_path, journal, disk):
    """Its space helps others meanwhile, and a failed sync is never repeated on the same file."""
    disk.failing["fdatasync spare.log"] = errno.ENOSPC
    journal.maintain()
    assert not (tmp_path / "spare.log").exists()

    disk.failing.clear()
    disk.now = 5.0
    journal.maintain()
    assert (tmp_path / "spare.log").read_bytes() == bytes(SMALL)


def test_acknowledgements_use_the_segment_and_the_spare_to_the_end_and_then_the_node_stops(
    tmp_path, journal, disk
):
    """Nothing that was confirmed before the end is lost."""
    journal.maintain()
    journal.append(3, 1, (bytes(3000),))
    journal.append(3, 1, (bytes(3000),))
    journal.commit()
    fill(disk)
    journal.maintain()
    assert journal.sends_refused()
    fitting = (SMALL - 64 - 32 - 48 - 3032) // 40
    for _ in range(fitting):
        journal.append(5, 1, (b"ack",))
        journal.commit()
    journal.append(5, 1, (b"ack",))
    with pytest.raises(StoreFailed, match="No space left"):
        journal.commit()
    journal.close()

    assert recovered(tmp_path) == [bytes(3000)] * 2 + [b"ack"] * fitting


def test_senders_wait_when_the_spare_is_only_not_ready_and_the_segment_nearly_full(journal):
    """A pause of milliseconds is no reason to refuse."""
    journal.append(3, 1, (bytes(3000),))
    journal.commit()
    assert journal.sends_refused() is None
    assert not journal.is_waiting_for_space

    journal.append(3, 1, (bytes(420),))
    journal.commit()
    assert journal.sends_refused() is None
    assert journal.is_waiting_for_space
    assert journal.needs_maintenance

    journal.maintain()
    assert not journal.is_waiting_for_space


def test_senders_wait_when_the_backlog_runs_ahead_of_the_prepared_segments(journal):
    """A commit that must prepare segments itself is slow; more load would make it slower."""
    journal.maintain()
    for _ in range(2):
        journal.append(3, 1, (bytes(3000),))
    assert not journal.is_waiting_for_space
    journal.append(3, 1, (bytes(3000),))
    assert journal.is_waiting_for_space

    journal.commit()
    journal.maintain()
    assert not journal.is_waiting_for_space


def test_a_commit_without_a_spare_prepares_one_itself(tmp_path, journal, disk):
    """Storage workers may be late; the log goes on."""
    for i in range(10):
        journal.append(3, 1, (b"%d" % i * 1000,))
    assert journal.commit() == journal.last_lsn
    journal.close()
    assert len(recovered(tmp_path)) == 10


def test_maintenance_is_asked_for_once_a_segment(journal, disk):
    """Several workers may look at the same time."""
    assert journal.needs_maintenance
    journal.maintain()
    assert not journal.needs_maintenance
    calls = len(disk.calls)
    journal.maintain()
    assert len(disk.calls) == calls


class MeddlingDisk(RealDisk):
    """Maintains the journal at the worst moment: while the spare is being begun as a segment."""

    journal = None

    def rename(self, source, target):
        if self.journal is not None:
            self.journal.maintain()
        super().rename(source, target)


def test_a_spare_that_is_being_begun_is_not_prepared_a_second_time(tmp_path):
    """Who opened the spare's name just then would fill the segment in use with zeros."""
    disk = MeddlingDisk()
    journal, _ = booted(tmp_path, disk)
    disk.journal = journal
    sent = [b"%03d" % i * 100 for i in range(60)]
    for body in sent:
        journal.append(1, 1, (body,))
        journal.commit()
        journal.maintain()
    journal.close()
    assert len(segments(tmp_path)) > 3
    assert recovered(tmp_path) == sent


def writes_to_spares(journal, disk, size):
    """While a segment is filled by records of this size with a sync each, after two such ones."""
    for _ in range(3):
        disk.calls.clear()
        number = journal.newest_segment
        while journal.newest_segment == number:
            journal.append(3, 1, (bytes(size),))
            journal.commit()
            journal.maintain()
    return disk.calls.count("pwritev spare.log")


def test_a_segment_is_written_with_zeros_before_unless_the_last_one_was_filled_by_few_syncs(
    tmp_path, journal, disk
):
    """Zeros save time in each small sync, and cost as much as the records where these are large.
    One write in each case: the header."""
    assert writes_to_spares(journal, disk, 10) == 2
    assert writes_to_spares(journal, disk, 1000) == 1
    assert (tmp_path / "spare.log").read_bytes() == bytes(SMALL)
    assert writes_to_spares(journal, disk, 10) == 2


def test_a_journal_that_rests_prepares_nothing_until_half_of_its_segment_is_full(journal, disk):
    """Behind a take-over clients wait for the disk, which wrote a segment of zeros."""
    assert journal.needs_maintenance

    journal.rest(2.0)

    assert not journal.needs_maintenance
    journal.append(5, 1, (bytes(SMALL // 2),))
    assert journal.needs_maintenance


def test_a_journal_has_rested_when_the_time_is_over(journal, disk):
    """However little is written."""
    journal.rest(2.0)
    disk.now = 1.9
    assert not journal.needs_maintenance
    disk.now = 2.0
    assert journal.needs_maintenance
