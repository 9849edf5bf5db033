"""A lone batch on its way to the copies and back, counted in wake-ups of the link's thread.

Nothing here has a thread: what a storage worker does while the link's thread rests is done in the
rest itself, and the clock is the test's.
"""

import pytest
from msgspec import structs

from hms.server.arbiter import Member
from hms.server.replicas import primary as of_primary
from hms.server.replicas.frames import FORMAT, Ack, Envelope, Join, Reads, Write, encode
from hms.server.replicas.link import Peer
from hms.server.replicas.primary import LENT_S, REST_S
from tests.unit.server.test_replica_pace import LOG, Leader

COPIES = {b"to-b": Member("b", "2" * 32, 7), b"to-c": Member("c", "3" * 32, 7)}


class Three(Leader):
    """a leads, b and c have all and count."""

    def __init__(self, folder):
        super().__init__(folder, [], 1 << 20)
        self.wakes, self.heard, self.answers = 0, 0, []
        socket, lead = self.primary._socket, self.primary
        lead._group = structs.replace(lead._group, peers={n: Peer(n, f"tcp://{n}") for n in "abc"})
        socket.received, socket.hear, socket.wake = self.received, self.hear, self.wake
        for route, member in COPIES.items():
            self.answers.append(self.frame(route, Join(member.copy_id, 3, {}, {}, [], [])))
            self.answers.append(self.frame(route, Reads([lead._format])))
        while len(lead._confirmation.now.members) < 3:
            lead._serve_once()
            self.answers += [self.ack(route) for route in lead._links]
            lead._serve_once()
            lead._keep_once()
        lead._serve_once()
        self.wakes = 0

    def frame(self, route, said):
        name = COPIES[route].name
        envelope = Envelope(FORMAT, LOG, self.primary.epoch, name, 7, said)
        return [route, encode(envelope), b""]

    def ack(self, route):
        lead = self.primary
        return self.frame(route, Ack(lead._passed, lead._links[route].sent))

    def received(self):
        answers, self.answers = self.answers, []
        return iter(answers)

    def hear(self, _timeout_s):
        self.heard += 1
        return bool(self.answers)

    def wake(self):
        self.wakes += 1

    def rests(self, does):
        """What somebody does while the link's thread rests."""
        with self.primary._turn.own():
            self.primary._turn.lend(lambda _pause_s: does(), REST_S)


@pytest.fixture
def three(tmp_path):
    return Three(tmp_path)


def test_a_lone_batch_wakes_the_links_thread_not_once(three):
    """Each of two hand-overs to it and back was on the way of what a client waits for. One answer
    of the two is enough; the other is heard with the next."""
    told = len(three.told)

    def worker():
        three.writes(is_confirmed=False)
        assert [type(said) for said, _ in three.told[told:]] == [Write, Write]
        three.answers = [three.ack(b"to-b")]
        three.primary.synced()

    three.rests(worker)
    assert (three.wakes, three.heard) == (0, 1)
    assert three.primary._confirmation.is_confirmed(three.primary._confirmation.written)


def test_a_batch_is_packed_once_for_all_copies(three, monkeypatch):
    """It is the same for each of them."""
    packed = []
    monkeypatch.setattr(of_primary, "encode", lambda one: packed.append(one) or encode(one))

    three.rests(lambda: three.writes(is_confirmed=False))
    assert len(packed) == 1


def test_who_does_not_have_the_turn_wakes_the_links_thread(three):
    """It has the socket, which no two threads may use at once."""
    told = len(three.told)
    three.writes(is_confirmed=False)

    assert (three.wakes, three.told[told:]) == (1, [])


def test_copies_that_take_their_time_are_left_to_the_links_thread(three):
    """A beat is due there, and what others want."""

    def worker():
        three.writes(is_confirmed=False)
        mark = three.primary._synced_here()
        three.primary._hear_here(mark)
        assert not three.primary._confirmation.is_confirmed(mark)

    three.rests(worker)
    assert (three.wakes, three.heard) == (1, 1)


def test_nobody_takes_the_turn_of_a_primary_that_stops(three):
    """Its socket is about to be closed."""
    three.primary._is_over = True
    told = len(three.told)
    three.rests(lambda: three.writes(is_confirmed=False))

    assert (three.wakes, three.told[told:]) == (1, [])


def test_the_links_thread_rests_only_while_nobody_waits_for_it(three):
    """While the worker syncs it waits for no answer yet, however slow that is; from then on until
    enough have come it does. Nor is the socket left to others when nothing was written lately."""
    lead = three.primary
    three.rests(lambda: three.writes(is_confirmed=False))
    three.now_s += 2 * REST_S
    assert lead._may_rest()
    lead._synced_here()
    assert not lead._may_rest()
    three.answers = [three.ack(b"to-b")]
    lead._serve_once()
    assert lead._may_rest()
    three.now_s += LENT_S
    assert not lead._may_rest()
