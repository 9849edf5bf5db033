"""Appending and committing: batches, limits, threads."""

import threading

import pytest
from journal_support import SMALL, FaultyDisk, booted, recovered

from hms.errors.catalogue import RecordTooLarge


def test_a_record_of_more_parts_than_one_call_takes_is_written_whole(tmp_path):
    """The system refuses more than 1,024 buffers in one call; a large commit has many more."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk, segment_bytes=1024 * 1024)
    parts = [b"%08d" % i for i in range(3000)]
    for _ in range(3):
        journal.append(3, 1, [memoryview(part) for part in parts])
    disk.calls.clear()
    journal.commit()
    journal.close()

    assert 9 <= disk.calls.count("pwritev") <= 10
    assert disk.calls.count("fdatasync") == 1
    assert recovered(tmp_path) == [b"".join(parts)] * 3


def test_a_batch_is_written_with_one_call_and_synced_once(tmp_path):
    """Group commit is what makes many senders fast."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk, segment_bytes=1024 * 1024)
    journal.commit()
    for i in range(500):
        journal.append(3, 1, (b"head", bytes(i)))
    disk.calls.clear()
    journal.commit()
    journal.close()

    assert disk.calls.count("pwritev") == disk.calls.count("fdatasync") == 1


def test_a_call_that_takes_less_than_it_was_given_is_continued(tmp_path):
    """The system may write a part only; the rest must follow at the right place."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)
    disk.write_max = 100
    journal.append(3, 1, (bytes(range(256)) * 4,))
    journal.commit()
    journal.close()

    assert recovered(tmp_path) == [bytes(range(256)) * 4]


def test_a_record_larger_than_a_segment_is_refused_and_changes_nothing(tmp_path):
    """It could never be written; the sender must hear so while the log stays as it is."""
    journal, _ = booted(tmp_path)
    journal.append(3, 1, (b"before",))
    state = journal.last_lsn, journal.backlog_bytes
    room = SMALL - 64 - 32 - (32 + 16)  # header, seal, dictionary

    with pytest.raises(RecordTooLarge):
        journal.append(3, 1, (bytes(room - 32 + 1),))
    assert (journal.last_lsn, journal.backlog_bytes) == state
    journal.append(3, 1, (bytes(room - 32),))
    journal.append(3, 1, (b"after",))
    journal.commit()
    journal.close()

    assert recovered(tmp_path) == [b"before", bytes(room - 32), b"after"]


def test_a_dictionary_larger_than_a_segment_refuses_to_start(tmp_path):
    """It shows at once, not when the first segment is full."""
    with pytest.raises(RecordTooLarge):
        booted(tmp_path, make=lambda: (11, 1, (bytes(SMALL),)))


def test_an_empty_record_and_empty_parts_are_kept(tmp_path):
    """Nothing forbids them, so they must not look like the end of the log."""
    journal, _ = booted(tmp_path)
    for parts in ((), (b"",), (b"", b"x", b"")):
        journal.append(3, 1, parts)
    journal.commit()
    journal.close()

    assert recovered(tmp_path) == [b"", b"", b"x"]


def test_the_backlog_counts_until_it_is_synced(tmp_path):
    """Senders are slowed by it (P8)."""
    journal, _ = booted(tmp_path)
    assert journal.backlog_bytes == 32 + 16
    journal.append(3, 1, (bytes(100),))
    assert journal.backlog_bytes == 32 + 16 + 32 + 104
    assert journal.durable_lsn == 0

    journal.commit()

    assert journal.backlog_bytes == 0
    journal.close()


def test_appending_goes_on_while_another_thread_commits(tmp_path):
    """P5: the engine must not wait for the disk, and no record may fall between two batches."""
    journal, _ = booted(tmp_path, segment_bytes=64 * 1024)
    is_over = threading.Event()
    durable = []

    def lead():
        while not is_over.is_set():
            durable.append(journal.commit())
            journal.maintain()

    leader = threading.Thread(target=lead)
    leader.start()
    sent = [b"%d " % i * (i % 50) for i in range(5000)]
    for body in sent:
        journal.append(3, 1, (body,))
    is_over.set()
    leader.join(timeout=250)
    assert not leader.is_alive()
    assert journal.commit() == journal.last_lsn
    assert journal.backlog_bytes == 0
    journal.close()

    assert durable == sorted(durable)
    assert recovered(tmp_path) == sent


def test_two_leaders_at_once_are_a_fault_of_the_caller(tmp_path):
    """Two would write over each other."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)

    def commit_again():
        with pytest.raises(AssertionError, match="one leader"):
            journal.commit()

    disk.before_sync = commit_again
    assert journal.commit() == 1
    journal.close()
