"""A failed write or sync is the journal's last act (P7), and one process has the directory."""

import errno
import os

import pytest
from journal_support import NODE, SMALL, FaultyDisk, booted, dictionary, opened, recovered

from hms.errors.catalogue import StoreFailed, StoreUnavailable
from hms.store.journal import Journal
from hms.store.journal.disk import RealDisk
from hms.store.journal.segment_manager import LogLimits


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
def test_an_error_in_a_write_or_sync_kills_the_journal_and_nothing_more_is_durable(tmp_path, call):
    """A sync that is repeated after a failure reports success although the data is gone."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)
    journal.append(3, 1, (b"safe",))
    durable = journal.commit()
    journal.append(3, 1, (b"lost",))
    disk.failing[call] = errno.EIO

    with pytest.raises(StoreFailed, match="Input/output error") as caught:
        journal.commit()
    assert caught.value.path == str(tmp_path)
    assert journal.durable_lsn == durable

    disk.failing.clear()
    disk.calls.clear()
    for act in (journal.commit, journal.maintain, lambda: journal.append(3, 1, (b"x",))):
        with pytest.raises(StoreFailed, match="Input/output error"):
            act()
    assert disk.calls == []
    assert journal.durable_lsn == durable
    assert journal.sends_refused() is None  # nobody is told that it is full
    assert not journal.needs_maintenance
    journal.close()
    assert recovered(tmp_path)[0] == b"safe"


@pytest.mark.parametrize("call", ["open spare.log", "pwritev", "fdatasync"])
def test_an_error_while_a_segment_is_begun_kills_the_journal(tmp_path, call):
    """The second half of a batch may fail when the first is safe: neither counts as durable."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)
    durable = journal.commit()
    for _ in range(8):
        journal.append(3, 1, (bytes(1000),))
    disk.failing[call] = errno.EIO

    with pytest.raises(StoreFailed):
        journal.commit()
    assert journal.durable_lsn == durable
    journal.close()


class FirstWriteFails(RealDisk):
    """Refuses a segment's header, which is written into the prepared file."""

    def __init__(self, code):
        self._code, self.tries = code, 0

    def pwritev(self, fd, buffers, offset):
        if self.name(fd).endswith("spare.log") and any(any(buffer) for buffer in buffers):
            self.tries += 1
            raise OSError(self._code, os.strerror(self._code))
        return super().pwritev(fd, buffers, offset)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_boot_whose_first_write_fails_does_not_write_it_again(tmp_path, code):
    """At max_log_bytes a boot tries again when a file could not be made; a failed write is not
    such a case: what a second sync says of it is not true (P7)."""
    disk = FirstWriteFails(code)
    limits = LogLimits(log_bytes_max=SMALL - 1)
    journal = Journal.open(tmp_path, segment_bytes=SMALL, node_uid=NODE, disk=disk, limits=limits)
    assert list(journal.recover()) == []

    with pytest.raises(StoreUnavailable):
        journal.start(dictionary)

    assert disk.tries == 1
    journal.close()


def test_a_fault_that_is_no_disk_error_kills_the_journal_too(tmp_path):
    """Records that were taken and not written would leave a hole in the log."""
    journal, _ = booted(tmp_path)
    journal.append(3, 1, (b"a",))

    def run_out_of_memory(*_):
        raise MemoryError

    journal._segment._disk = disk = RealDisk()
    disk.pwritev = run_out_of_memory
    with pytest.raises(MemoryError):
        journal.commit()
    with pytest.raises(StoreFailed, match="MemoryError"):
        journal.append(3, 1, (b"b",))
    journal.close()


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "open spare.log"])
def test_an_error_other_than_no_space_while_the_spare_is_prepared_kills_the_journal(tmp_path, call):
    """A disk that breaks must stop the node, not slow it."""
    disk = FaultyDisk()
    journal, _ = booted(tmp_path, disk)
    disk.failing[call] = errno.EIO

    with pytest.raises(StoreFailed):
        journal.maintain()
    with pytest.raises(StoreFailed):
        journal.commit()
    journal.close()


def test_a_path_that_is_no_directory_is_unavailable(tmp_path):
    """The operator hears what is wrong with the path instead of a traceback."""
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "below"):
        with pytest.raises(StoreUnavailable) as caught:
            opened(path)
        assert caught.value.path == str(path)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EMFILE])
def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path, code):
    """Every reason of the system reaches the operator in its own words."""
    disk = FaultyDisk()
    disk.failing["open LOCK"] = code
    with pytest.raises(StoreUnavailable, match=os.strerror(code)):
        opened(tmp_path / "new" / "store", disk)


def test_a_disk_that_is_full_at_boot_is_unavailable_and_changes_no_record(tmp_path):
    """The node must say so and boot later with everything."""
    journal, _ = booted(tmp_path)
    journal.append(3, 1, (b"a",))
    journal.commit()
    journal.close()
    disk = FaultyDisk()
    disk.failing["pwritev spare.log"] = errno.ENOSPC

    journal = opened(tmp_path, disk)
    list(journal.recover())
    with pytest.raises(StoreUnavailable, match="No space left"):
        journal.start(lambda: (11, 1, (b"",)))
    journal.close()
    assert recovered(tmp_path) == [b"a"]


def test_a_closed_journal_takes_nothing_more(tmp_path):
    """A late append must fail loudly instead of waiting for a commit that never comes."""
    journal, _ = booted(tmp_path)
    journal.close()

    with pytest.raises(StoreFailed, match="closed"):
        journal.append(3, 1, (b"a",))
    with pytest.raises(StoreFailed, match="closed"):
        journal.commit()


def test_closing_twice_closes_nothing_that_another_has_opened_since(tmp_path):
    """The system gives a closed descriptor's number to the next file."""
    journal, _ = booted(tmp_path)
    journal.maintain()
    journal.close()
    with (tmp_path / "other").open("w") as other:
        journal.close()
        other.write("x")
        other.flush()
