"""A copy that catches up: what it took is synced in portions, and all of it before it counts.

Counted in bytes and syncs. The follower and the files are real, the link is the test's.
"""

import os
from types import SimpleNamespace

import pytest

from hms.server.replicas.catch_up_pace import PIECE_BYTES
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.copy_state import CopyState
from hms.server.replicas.follower import Follower
from hms.server.replicas.frames import (
    FORMAT,
    Ack,
    Beat,
    Envelope,
    FilePart,
    Resume,
    Segment,
    Whole,
    Write,
    decode,
    encode,
)
from hms.server.replicas.leadership import Campaign, Leadership
from hms.server.replicas.link import VIEW_BYTES, FollowerSocket, Group, Peer, PrimarySocket
from hms.server.replicas.log_copy import UNSYNCED_MAX
from hms.store.journal.disk import RealDisk
from hms.store.journal.format import SEGMENT_HEADER_BYTES, Author, pack_segment_header
from hms.store.journal.segment_walk import segment_file
from hms.testing.ports import free_port
from hms.wire.record_runs import crc32
from tests.support.waiting import wait_until

LOG = "ab" * 16
MIB = 1 << 20
SEGMENT_BYTES = 64 * MIB


class CountingDisk(RealDisk):
    """Counts syncs, and what is not synced of each open file."""

    def __init__(self):
        self.unsynced, self.syncs = {}, 0

    def pwritev(self, fd, buffers, offset):
        taken = super().pwritev(fd, buffers, offset)
        self.unsynced[fd] = self.unsynced.get(fd, 0) + taken
        return taken

    def fdatasync(self, fd):
        super().fdatasync(fd)
        self.unsynced[fd] = 0
        self.syncs += 1

    def fsync(self, fd):
        super().fsync(fd)
        self.unsynced[fd] = 0


def frame(said, data=b""):
    return [encode(Envelope(FORMAT, LOG, 3, "a", 1, said)), data]


class Copy:
    """b follows a, which tells what the test says. answers: what b said, and how many bytes of its
    log were not synced just then."""

    def __init__(self, folder):
        self.disk, self.answers, self.told = CountingDisk(), [], []
        leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=5)
        leadership.begin(100)
        self.arbiter = SimpleNamespace(campaign=self.campaign)
        self.follower = Follower(
            Group("n", "b", {}, 5.0, Limits()), folder, self.disk, self.arbiter, leadership,
            CopyState(LOG, "2" * 32, 8, 3), *[lambda *_: None] * 2, clock_s=lambda: 100.0,
        )  # fmt: skip
        self.follower._link = SimpleNamespace(
            say=lambda *parts: self.answers.append((parts[-1], self.unsynced)),
            wait=lambda _: None,
            received=self.received,
        )
        self.at = SEGMENT_HEADER_BYTES
        self.turn(frame(Resume()), *map(self.begins, [1]))

    @property
    def unsynced(self):
        return sum(self.disk.unsynced.values())

    def campaign(self, *_):
        self.answers.append(("campaign", self.unsynced))

    def received(self):
        told, self.told = self.told, []
        yield from told

    def begins(self, number):
        header = pack_segment_header(Author(7, 3), number, number, 1)
        return frame(Segment(0, number, SEGMENT_BYTES, ".log"), header)

    def writes(self, size, *, mark=0, number=1):
        data = os.urandom(size)
        said = Write(mark, number, self.at, crc32(data))
        self.at += size
        return frame(said, data)

    def turn(self, *frames):
        """What it answers to these."""
        self.told, self.answers = list(frames), []
        self.follower._take(0)
        return self.answers


@pytest.fixture
def copy(tmp_path):
    made = Copy(tmp_path)
    yield made
    made.follower.copy.close()


def test_what_a_copy_lacks_is_synced_in_portions(copy):
    """A sync in each turn is one for each piece, on a disk that others may write to."""
    before = copy.disk.syncs
    turns = [copy.turn(copy.writes(MIB)) for _ in range(40)]
    assert [said for [(said, _)] in turns] == [Ack(0, 3 + n) for n in range(40)]
    assert max(unsynced for [(_, unsynced)] in turns) < UNSYNCED_MAX
    assert copy.disk.syncs - before == 40 * MIB // UNSYNCED_MAX


def test_a_file_of_a_message_is_synced_in_portions(copy):
    """One sync of many GiB at its end would be a silence, after which the copy counts no more."""
    name, size = f"{1:016x}-{2:08x}-{3:064x}", 16 * MIB
    most = 0
    for at in range(0, size, PIECE_BYTES):
        data, is_last = os.urandom(PIECE_BYTES), at + PIECE_BYTES == size
        said = FilePart(9 * is_last, name, at, is_last=is_last, crc=crc32(data))
        [(answer, unsynced)] = copy.turn(frame(said, data))
        most = max(most, unsynced)
    assert most == UNSYNCED_MAX - PIECE_BYTES
    assert (answer.mark, unsynced) == (9, 0)


def test_all_is_synced_before_a_copy_says_that_it_has_it(copy):
    """From then on each answer waits for a sync."""
    copy.turn(copy.writes(MIB))
    assert copy.unsynced == MIB
    assert copy.turn(copy.writes(MIB), frame(Whole(7))) == [(Ack(7, 5), 0)]
    assert copy.turn(copy.writes(100, mark=8)) == [(Ack(8, 6), 0)]


def test_nothing_stays_unsynced_when_nothing_comes(copy):
    """Also where the primary says no more than that it lives."""
    copy.turn(copy.writes(MIB))
    assert copy.unsynced == MIB
    copy.turn(frame(Beat(1.0)))
    assert copy.unsynced == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_only_one_segment_has_what_is_not_synced(copy, is_there):
    """Else a crash could leave a hole in the log, before the segment whose end is looked at."""
    if is_there:
        copy.turn(copy.begins(2))
    copy.turn(copy.writes(MIB))
    copy.turn(*[] if is_there else [copy.begins(2)], copy.writes(100, number=2))
    assert copy.unsynced == 100


def test_a_copy_has_synced_what_it_took_when_it_asks_to_lead(copy):
    """What a leader has counts as one of the copies."""
    copy.turn(copy.writes(MIB))
    copy.answers = []
    copy.follower._campaign(Campaign(5), "b")
    assert copy.answers == [("campaign", 0)]


def test_many_bytes_are_not_copied_out_of_the_link(tmp_path):
    """They are checked, and written, where they came."""
    peers = {name: Peer(name, f"tcp://127.0.0.1:{free_port()}") for name in "ab"}
    group = Group("n", "a", peers, 5.0, Limits())
    primary, copy = PrimarySocket(group), FollowerSocket(group, "a")
    many, few = os.urandom(VIEW_BYTES), os.urandom(100)
    try:
        copy.say(LOG, "b", 1, Ack(0, 0))
        routes, came = [], []

        def is_heard():
            primary.wait(0.1)
            routes.extend(parts[0] for parts in primary.received())
            return routes

        wait_until(is_heard)
        for data in (many, few):
            said = Write(0, 1, 64, crc32(data))
            primary.send(routes[0], *frame(said, data))

        def has_come():
            copy.wait(0.1)
            came.extend(decode(parts)[1] for parts in copy.received())
            return len(came) == 2

        wait_until(has_come)
        assert came == [many, few]
        assert [type(one) for one in came] == [memoryview, bytes]
        file = segment_file(tmp_path, 1)
        file.write_bytes(came[0])
        assert file.read_bytes() == many
    finally:
        copy.close()
        primary.close()
