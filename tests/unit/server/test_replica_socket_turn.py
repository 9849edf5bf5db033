"""The socket of the copies' link is used by its own thread and by storage workers in turn.

Real sockets and threads: nothing is lost, sent or heard twice, and nobody waits for good, also
while links break. HMS_HA=full repeats it 200 times.
"""

import os
import random
import threading
from contextlib import ExitStack

import pytest

from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.frames import (
    Ack,
    Beat,
    BeatAck,
    Join,
    Reads,
    Rejoin,
    Resume,
    Whole,
    Write,
    decode,
)
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import FollowerSocket, Group, Peer, PrimarySocket
from hms.server.replicas.log_copy import Told
from hms.server.replicas.primary import Primary
from hms.server.replicas.socket_turn import SocketTurn
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import (
    FORMATS,
    SEGMENT_HEADER_BYTES,
    Author,
    pack_segment_header,
)
from hms.store.journal.segment_walk import segment_file
from hms.testing.ports import free_port
from hms.wire.record_runs import crc32
from tests.support.effort import tries
from tests.support.waiting import wait_until

RUNS = 200 if os.environ.get("HMS_HA") == "full" else tries(4) + 1
LOG = "ab" * 16
WORKERS, BATCHES = 3, 40
SEGMENT_BYTES = 1 << 20
WAIT_S = 100
STARTS = {"a": 4, "b": 7, "c": 7}
MEMBERS = {name: Member(name, str(n) * 32, STARTS[name]) for n, name in enumerate("abc", 1)}


class Copy:
    """A copy in a thread; what it was told, and what it said, by link. Its links break."""

    def __init__(self, group, name, seed):
        self._group, self._name, self._random = group, name, random.Random(seed)
        self.log, self.said, self.faults = bytearray(SEGMENT_BYTES), [], []
        self._breaks, self._is_over = threading.Event(), threading.Event()
        self.broken = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def breaks(self):
        """Its link does, soon."""
        self._breaks.set()

    def close(self):
        self._is_over.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self):
        try:
            while not self._is_over.is_set():
                self._follows()
        except Exception as fault:
            self.faults.append(fault)
            raise

    def _follows(self):
        """Until the link breaks."""
        self._link = FollowerSocket(self._group, "a")
        self.said.append([])
        self._joins()
        try:
            while not self._is_over.is_set():
                self._link.wait(0.05)
                self._takes()
                if self._breaks.is_set() and self._random.random() < 0.3:
                    self._breaks.clear()
                    self.broken += 1
                    return
        finally:
            self._link.close()

    def _joins(self):
        self._taken, self._mark, self._is_whole = 0, 0, False
        self._says(Join(MEMBERS[self._name].copy_id, 3, {}, {}, [], []))

    def _takes(self):
        before = self._taken
        for parts in self._link.received():
            envelope, data = decode(parts)
            self._hears(envelope.said, data)
        if self._taken > before:
            self._says(Ack(self._mark, self._taken))

    def _hears(self, said, data):
        match said:
            case Rejoin():
                self._joins()
            case Beat():
                self._says(BeatAck(said.at_s))
            case Resume():
                self._taken += 1
                self._says(Reads(list(FORMATS)))
            case Whole():
                self._taken, self._mark, self._is_whole = self._taken + 1, said.mark, True
            case Write():
                assert said.crc == crc32(data)
                self.log[said.offset : said.offset + len(data)] = data
                self._counts(said)
            case _ if isinstance(said, Told):
                self._counts(said)

    def _counts(self, said):
        self._taken += 1
        if self._is_whole and (mark := getattr(said, "mark", 0)):
            assert mark == self._mark + 1, "sent twice, or not at all"
            self._mark = mark

    def _says(self, said):
        self.said[-1].append(said)
        start = STARTS[self._name] + len(self.said)  # it tells the links apart
        self._link.say(LOG, self._name, start, said)


class Leader:
    """a leads in its threads, b and c follow; workers write."""

    def __init__(self, folder, ends, seed):
        peers = {name: Peer(name, f"tcp://127.0.0.1:{free_port()}") for name in "abc"}
        engine = MemoryEngine(lambda: 1000.0, 60.0)
        arbiter = MemoryArbiter(engine, "a")
        arbiter.begin(Configuration(5, LOG, 3, "a", 3, tuple(MEMBERS.values()), 2))
        leadership = Leadership("a", MEMBERS["a"].copy_id, 4, 3, LOG, lease_s=60.0)
        granted = arbiter.campaign(5, "a", 4)
        leadership.begin(0.0)
        leadership.won(granted, 0.0)
        about = {me: Group("n", me, peers, 60.0, Limits(2, 30.0, 300.0)) for me in "abc"}
        self.heard = {}
        self.primary = Primary(
            about["a"], folder, REAL_DISK, arbiter, leadership, granted, PrimarySocket(about["a"]),
            silent_since_s=float("-inf"),
        )  # fmt: skip
        receive = self.primary._receive

        def noted(route, parts):
            envelope = decode(parts)[0]
            link = envelope.replica, envelope.start - STARTS[envelope.replica] - 1
            self.heard.setdefault(link, []).append(envelope.said)
            receive(route, parts)

        self.primary._receive = noted
        self.faults = []
        self.primary.on_fenced = self.faults.append
        header = pack_segment_header(Author(7, granted.epoch), 1, 1, 1)
        self._file = segment_file(folder, 1).open("w+b", buffering=0)
        self._file.write(header)
        self._file.truncate(SEGMENT_BYTES)
        self.log = bytearray(SEGMENT_BYTES)
        self._end, self._writes = SEGMENT_HEADER_BYTES, threading.Lock()
        ends.callback(self._file.close)
        self.copies = [Copy(about[name], name, seed) for name in "bc"]
        for one in self.copies:
            ends.callback(one.close)
        ends.callback(self.primary.stop)
        self.primary.begun(1, header, SEGMENT_BYTES)
        wait_until(lambda: self.primary.describe()["failures_survived"] == 1, WAIT_S)

    def works(self, seed):
        """A worker: a batch after the other, each confirmed before the next."""
        chance = random.Random(seed)
        for _ in range(BATCHES):
            data = chance.randbytes(8 * chance.randrange(1, 40))
            with self._writes:  # the journal has one too
                at, self._end = self._end, self._end + len(data)
                self._file.seek(at)
                self._file.write(data)
                self.log[at : at + len(data)] = data
                self.primary.written(1, at, data)
            self.primary.synced()
            if chance.random() < 0.1:
                chance.choice(self.copies).breaks()

    def looks(self, is_over):
        """Who reads the status, and a move: each wakes the link's thread."""
        while not is_over.is_set():
            self.primary.to_apply("b")
            self.primary.describe()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(RUNS))
def test_workers_and_the_links_thread_share_the_socket(tmp_path, number):
    """What each copy was told lies there in full and once, and what it said was heard once."""
    is_over = threading.Event()
    with ExitStack() as ends:
        lead = Leader(tmp_path, ends, number)
        jobs = [
            threading.Thread(target=lead.works, args=(number * WORKERS + n,))
            for n in range(WORKERS)
        ]
        reader = threading.Thread(target=lead.looks, args=(is_over,))
        for one in (*jobs, reader):
            one.start()
        for one in jobs:
            one.join(WAIT_S)
        is_over.set()
        reader.join(WAIT_S)
        assert not any(one.is_alive() for one in (*jobs, reader))
        wait_until(lambda: all(one.log == lead.log for one in lead.copies), WAIT_S)
        assert lead.faults == []
    for one in lead.copies:
        assert one.faults == []
        for (name, link), heard in lead.heard.items():
            assert name != one._name or heard == one.said[link][: len(heard)]


def test_nobody_has_the_turn_beside_another():
    """A worker takes it only while it is lent, and who lends it has it again behind that."""
    turn, inside, taken, is_over = SocketTurn(), [], [], threading.Event()

    def enters():
        inside.append(1)
        assert len(inside) == 1, "two at once"
        inside.pop()

    def works():
        while not is_over.is_set():
            if turn.take():
                taken.append(1)
                enters()
                turn.give_back()

    workers = [threading.Thread(target=works) for _ in range(3)]
    for one in workers:
        one.start()
    with turn.own():

        def lends():
            turn.lend(is_over.wait, 0.001)
            enters()
            return len(taken) >= 20

        wait_until(lends, WAIT_S)
    is_over.set()
    for one in workers:
        one.join(WAIT_S)
    assert not turn.take()
