"""No descriptor is left while bodies are read back from the log."""

import errno
import os

import pytest

from hms.errors.catalogue import StoreFailed
from hms.store.interface import SEGMENT_SHIFT
from hms.store.journal.disk import REAL_DISK, RealDisk
from hms.store.journal.record_fetch import Fetch
from hms.store.journal.segment_walk import LOG_SUFFIX, segment_file


class FewDescriptors(RealDisk):
    """Opens so many files and no more."""

    def prepare(self, most):
        self.most, self.opened = most, 0
        return self

    def open(self, path, flags):
        if self.opened >= self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        self.opened += 1
        return super().open(path, flags)

    def close(self, fd):
        self.opened -= 1
        super().close(fd)


def _disk(most):
    disk = object.__new__(FewDescriptors)
    disk.__dict__.update(getattr(REAL_DISK, "__dict__", {}))
    return disk.prepare(most)


@pytest.fixture
def folder(tmp_path):
    for number in range(1, 6):
        segment_file(tmp_path, number, LOG_SUFFIX).write_bytes(b"body %d" % number)
    return tmp_path


def test_files_that_were_read_before_make_way(folder):
    """A consumer of a long backlog must not stop the node, as the files are open for speed only."""
    fetch = Fetch(_disk(2), folder)

    read = [fetch.read(number << SEGMENT_SHIFT, 6) for number in (1, 2, 3, 4, 5, 1)]

    assert read == [b"body %d" % number for number in (1, 2, 3, 4, 5, 1)]
    fetch.close()


def test_a_node_without_any_descriptor_says_why(folder):
    """There is nothing to give up."""
    with pytest.raises(StoreFailed, match=os.strerror(errno.EMFILE)):
        Fetch(_disk(0), folder).read(1 << SEGMENT_SHIFT, 6)
