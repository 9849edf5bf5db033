"""No descriptor is left: while bodies are read back from the log, and in a flood of connections."""

import errno
import os
import subprocess
import sys

import pytest

from hms.errors.catalogue import StoreFailed
from hms.store.interface import SEGMENT_SHIFT
from hms.store.journal.descriptor_wait import with_descriptor
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


def test_a_file_waits_for_the_descriptor_that_a_flood_of_connections_gives_back():
    """They are accepted faster than they are cut; for a moment the log found none."""
    answers, pauses = [errno.EMFILE, errno.EMFILE, 7], []

    def open_():
        answer = answers.pop(0)
        if answer == errno.EMFILE:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return answer

    assert with_descriptor(open_, lambda: 0.0, pauses.append) == 7
    assert len(pauses) == 2


def test_a_file_waits_no_longer_than_a_flood_can_last():
    """Where nothing is ever given back, the node says why it stops."""
    now = iter(range(100))

    def open_():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        with_descriptor(open_, lambda: float(next(now)), lambda _s: None)
    assert next(now) == 11


WITHOUT_A_DESCRIPTOR = """
import os, resource, socket
from hms.server.accepted_sockets import Caller
from hms.server.memory_pressure import resident_bytes

resident_bytes()
ours, theirs = socket.socketpair()
caller = Caller(theirs.fileno(), os.fstat(theirs.fileno()).st_ino)
highest = max(map(int, os.listdir("/proc/self/fd")))
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
caller.cut()
print(ours.recv(1) == b"", resident_bytes() > 0)
"""


def test_without_a_descriptor_connections_are_cut_and_the_node_goes_on():
    """It stopped, as it could not look how large it was, and those that were too many stayed."""
    command = [sys.executable, "-c", WITHOUT_A_DESCRIPTOR]
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == [b"True", b"True"]
