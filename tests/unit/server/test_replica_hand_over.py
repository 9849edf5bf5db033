"""Who is to lead next counts until the one that leads has stopped: one that does not may not lead.

The primary is real, the arbiter is in memory, and the clock is the test's.
"""

from types import SimpleNamespace

import pytest

from hms.errors.catalogue import (
    ArbiterUnavailable,
    ReplicaChangeRefused,
    SwitchoverRefused,
)
from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.frames import (
    FORMAT,
    Ack,
    AppliedUpTo,
    AskApplied,
    Beat,
    BeatAck,
    Bye,
    Envelope,
    Join,
    Reads,
    Rejoin,
    before,
    decode,
    encode,
)
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Peer
from hms.server.replicas.primary import AWAITED_S, Primary
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import SEGMENT_HEADER_BYTES, Author, pack_segment_header
from hms.store.journal.segment_walk import segment_file

LOG = "ab" * 16
A, B = Member("a", "1" * 32, 4), Member("b", "2" * 32, 7)
LEASE_S, TIMEOUT_S = 30.0, 1.0
SEGMENT_BYTES = 4096


class Pair:
    """b leads, a follows and has all."""

    def __init__(self, folder):
        self.machine_ms = None
        self.now_s, self.end, self.told = 1000.0, SEGMENT_HEADER_BYTES, []
        self.engine = MemoryEngine(lambda: self.now_s, LEASE_S)
        arbiter = MemoryArbiter(self.engine, "b")
        arbiter.begin(Configuration(5, LOG, 3, "a", 4, (A, B), 2))
        leadership = Leadership("b", B.copy_id, 8, 3, LOG, lease_s=LEASE_S)
        leadership.begin(self.now_s)
        granted = arbiter.campaign(5, "b", 8)
        leadership.won(granted, self.now_s)
        peers = {name: Peer(name, f"tcp://{name}") for name in "ab"}
        group = Group("n", "b", peers, LEASE_S, Limits(1, TIMEOUT_S, 60.0))
        socket = SimpleNamespace(
            send=self.hears, received=list, wake=lambda: None, close=lambda: None
        )
        self.primary = Primary(
            group, folder, REAL_DISK, arbiter, leadership, granted, socket,
            silent_since_s=self.now_s, clock_s=lambda: self.now_s,
            machine_ms=lambda: self.machine_ms,
        )  # fmt: skip
        self.primary.start = lambda: None
        header = pack_segment_header(Author(7, granted.epoch), 1, 1, 1)
        segment_file(folder, 1).write_bytes(header + bytes(SEGMENT_BYTES - len(header)))
        self.primary.begun(1, header, SEGMENT_BYTES)
        self.primary._serve_once()
        self.now_s += AWAITED_S
        self.says(Join(A.copy_id, 3, {}, {}, [], []))
        self.says(Reads([self.primary._format]))
        self.answers(self.writes())
        assert self.primary.readiness("a") == (5, "")
        self.keeps()

    def hears(self, _route, envelope, data):
        """What a is told."""
        self.told.append(decode([envelope, data])[0].said)

    def says(self, said):
        """A frame of a."""
        envelope = Envelope(FORMAT, LOG, self.primary.epoch, "a", 5, said)
        self.primary._receive(b"route", [encode(envelope), b""])
        self.primary._serve_once()

    def answers_beats(self):
        """As a copy that has nothing to take."""
        self.primary._serve_once()
        told, self.told = self.told, []
        for one in told:
            if isinstance(one, Beat):
                self.says(BeatAck(one.at_s))

    def writes(self):
        """Eight bytes are written and synced here; up to which mark."""
        self.primary.written(1, self.end, b"12345678")
        self.end += 8
        self.primary._serve_once()
        with self.primary._changed:
            return self.primary._synced_here()

    def answers(self, mark):
        """A has synced up to there."""
        self.says(Ack(mark, 1))

    def keeps(self):
        for _ in range(3):
            assert self.primary._keep_once()

    def passes(self, seconds):
        self.now_s += seconds
        self.keeps()

    def members(self):
        standing = MemoryArbiter(self.engine, "reader").read()
        return sorted(one.name for one in standing.configuration.members)

    def leads_next(self, name):
        """Whether a replica is granted the next epoch, and counts."""
        arbiter = MemoryArbiter(self.engine, name)
        version = arbiter.read().configuration.version
        return name in self.members() and arbiter.campaign(version, name, 9) is not None


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


def test_a_silent_copy_that_nobody_waits_to_lead_counts_no_more(pair):
    """As ever: what is written goes on without it."""
    mark = pair.writes()
    pair.passes(2 * TIMEOUT_S)

    assert pair.members() == ["b"]
    assert pair.primary._is_confirmed(mark)


def test_who_keeps_the_lease_sleeps_while_copies_take_what_is_written(pair, monkeypatch):
    """It has nothing to do then: awake it holds up the thread that waits for a confirmation. What
    waits for a silent copy is its business at once."""
    woken = []
    monkeypatch.setattr(pair.primary._changed, "notify_all", lambda: woken.append(1))
    for _ in range(10):
        pair.answers(pair.writes())
    assert woken == []

    pair.now_s += 2 * TIMEOUT_S
    pair.writes()
    assert woken == [1]


def test_a_copy_with_nothing_to_take_is_there_however_long_the_lease_is(pair):
    """It says no more than its answers to beats, which came once in a fifth of the lease: between
    them it was silent for longer than replica_timeout_s, and the next send left it out."""
    for _ in range(50):
        pair.passes(TIMEOUT_S / 10)
        pair.answers_beats()
        assert pair.primary.readiness("a") == (5, "")

    mark = pair.writes()
    pair.keeps()
    assert pair.members() == ["a", "b"]
    pair.answers(mark)
    assert pair.primary._is_confirmed(mark)


def test_an_arbiter_that_does_not_answer_for_a_lease_ends_no_term_that_copies_prove(pair):
    """Three members of etcd that stand still are asked one after the other, for a third of the
    lease each: the copies had answered meanwhile, and the node led no more."""

    def stands_still():
        for _ in range(12):
            pair.now_s += LEASE_S / 10
            pair.answers_beats()
        raise ArbiterUnavailable(endpoint="etcd", detail="timed out")

    pair.primary._arbiter = SimpleNamespace(renew=stands_still, close=lambda: None)
    pair.passes(LEASE_S / 3)
    pair.passes(LEASE_S / 3)

    assert pair.primary.describe()["arbiter"] == "does not answer"


def test_the_status_says_why_this_copy_leads_and_for_how_long_that_is_proved(pair):
    """Of a lease that is not renewed less is left each second."""
    said = pair.primary.describe()
    assert said["cause"] == "campaign"
    assert 0 < said["lease_left_s"] <= LEASE_S
    (row,) = said["replicas"]
    assert row["formats"] == [3]

    pair.now_s += LEASE_S / 2
    later = pair.primary.describe()
    assert later["leads_for_s"] == said["leads_for_s"] + LEASE_S / 2
    assert later["lease_left_s"] < said["lease_left_s"]
    pair.now_s += LEASE_S
    assert pair.primary.describe()["lease_left_s"] == 0


@pytest.mark.parametrize("change", ["remove", "add"])
def test_copies_are_not_changed_later_when_the_arbiter_is_back(pair, change):
    """The command had waited for a minute in vain, and its operator had gone home."""

    def is_away():
        raise ArbiterUnavailable(endpoint="etcd", detail="timed out")

    arbiter, primary = pair.primary._arbiter, pair.primary
    primary._arbiter = SimpleNamespace(renew=is_away, close=lambda: None)
    pair.passes(LEASE_S / 3)
    order = {"remove": lambda: primary.remove("a"), "add": lambda: primary.add("a", {"a": None})}
    with pytest.raises(ReplicaChangeRefused, match="the arbiter could not be told of it"):
        order[change]()

    primary._arbiter = arbiter
    pair.passes(LEASE_S / 3)
    assert pair.members() == ["a", "b"]


def test_a_term_that_neither_arbiter_nor_copies_prove_ends(pair):
    """Another copy may lead by now."""

    def stands_still():
        pair.now_s += LEASE_S
        raise ArbiterUnavailable(endpoint="etcd", detail="timed out")

    pair.primary._arbiter = SimpleNamespace(renew=stands_still, close=lambda: None)
    pair.now_s += LEASE_S / 3

    assert not pair.primary._keep_once()


def test_who_is_to_lead_stays_a_member_when_it_is_silent_for_a_moment(pair):
    """It was left out, and nobody could lead: the arbiter waited for one that did not count."""
    assert pair.primary.hand_over("a") == "a"
    mark = pair.writes()
    pair.passes(2 * TIMEOUT_S)

    assert pair.members() == ["a", "b"]
    assert not pair.primary._is_confirmed(mark)
    pair.answers(mark)
    assert pair.primary._is_confirmed(mark)
    pair.primary.stop()
    assert not pair.leads_next("b")
    assert pair.leads_next("a")


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_who_is_to_lead_and_is_gone_keeps_nobody_waiting(pair, ends):
    """What was taken is confirmed, and the one that led may lead again at once."""
    pair.primary.hand_over("")
    mark = pair.writes()
    if ends == "stopped":
        pair.says(Bye())
        pair.keeps()
    else:
        pair.passes(LEASE_S / 2)
        pair.passes(LEASE_S / 2)

    assert pair.members() == ["b"]
    assert pair.primary._is_confirmed(mark)
    pair.primary.stop()
    assert pair.leads_next("b")


def test_one_that_is_just_being_left_out_is_not_to_lead(pair):
    """The arbiter has been asked, and its answer is not known; the copy is here again."""
    mark = pair.writes()
    pair.engine.mute.add("b")
    pair.passes(2 * TIMEOUT_S)
    pair.answers(mark)

    with pytest.raises(SwitchoverRefused, match="the others go on without it"):
        pair.primary.hand_over("a")

    pair.engine.mute.clear()
    pair.keeps()
    assert pair.members() == ["a", "b"]
    assert pair.primary.hand_over("a") == "a"


def test_who_is_to_lead_is_not_removed(pair):
    """Said, as an operator would wait for it."""
    pair.primary.hand_over("a")

    with pytest.raises(ReplicaChangeRefused, match="it is to lead"):
        pair.primary.remove("a")


def test_a_copy_of_this_release_that_joined_like_one_before_is_asked_to_join_again(tmp_path):
    """It was not answered in time three times, as while a primary begins. What it has of the
    history was not said: it got nothing of that as long as the link stood."""
    two = Pair(tmp_path)
    two.says(before(Join(A.copy_id, 3, {}, {}, [], [])))
    two.answers(two.writes())
    assert Rejoin() not in two.told

    two.says(Reads([two.primary._format]))
    assert two.told[-1] == Rejoin()

    two.says(Join(A.copy_id, 3, {}, {}, [], []))
    two.says(Reads([two.primary._format]))
    assert two.told.count(Rejoin()) == 1


def test_what_a_hot_standby_has_to_apply_is_known_and_asked_again(pair):
    """A move waits for it: up to where the standby was told that all is confirmed."""
    assert pair.primary.to_apply("a") is None  # it has not said it, as one of a release before
    pair.answers(pair.writes())
    pair.primary._tell_place()
    pair.told.clear()
    pair.passes(LEASE_S)
    pair.primary._serve_once()
    assert [one for one in pair.told if isinstance(one, AskApplied)] == []

    pair.says(AppliedUpTo(0, 0))
    assert pair.primary.to_apply("a") == pair.end  # all of the only segment
    pair.primary._serve_once()
    assert pair.told[-1] == AskApplied(hurries=True)
    pair.says(AppliedUpTo(1, pair.end - 8))
    assert pair.primary.to_apply("a") == 8
    assert [row["to_apply_bytes"] for row in pair.primary.describe()["replicas"]] == [8]
    pair.says(AppliedUpTo(1, pair.end))
    assert pair.primary.to_apply("a") == 0
    pair.says(AppliedUpTo(99, 1))  # nonsense costs the speed of a move at most
    assert pair.primary.to_apply("a") == 0


def test_a_copy_that_comes_again_has_applied_nothing_that_is_known(pair):
    """It is another process, perhaps."""
    pair.says(AppliedUpTo(1, pair.end))
    assert pair.primary.to_apply("a") == 0

    pair.says(Join(A.copy_id, 3, {}, {}, [], []))

    assert pair.primary.to_apply("a") is None


def test_how_far_a_copy_is_counts_for_a_move_only_if_it_was_said_since_the_order(pair):
    """Its process may have ended just now, and the one that comes has applied nothing."""
    pair.says(AppliedUpTo(1, pair.end))
    pair.now_s += 2.0
    assert not pair.primary.has_told("a", 1.0)

    pair.primary.to_apply("a")
    pair.primary._serve_once()
    assert pair.told[-1] == AskApplied(hurries=True)
    assert not pair.primary.has_told("a", 1.0)
    pair.says(AppliedUpTo(1, pair.end))
    pair.keeps()

    assert pair.primary.has_told("a", 0.0)


def test_a_copy_that_comes_anew_is_waited_for_until_it_has_said_how_far_it_is(pair):
    """It says so before its first answer; one that reads the log when it leads never does."""
    pair.says(Join(A.copy_id, 3, {}, {}, [], []))
    pair.says(Reads([pair.primary._format]))
    assert not pair.primary.has_told("a", 1.0)

    pair.says(Ack(0, 1))

    assert pair.primary.has_told("a", 1.0)
    pair.says(Bye())
    assert not pair.primary.has_told("a", 1.0)


def test_a_move_waits_for_an_answer_of_the_arbiter_since_the_order(pair):
    """It was asked every third of a lease. One that had just gone away was not noticed: the primary
    handed over, nobody could be granted the next epoch, and nobody led."""
    pair.says(AppliedUpTo(1, pair.end))
    pair.keeps()
    pair.now_s += 0.5
    pair.says(AppliedUpTo(1, pair.end))
    assert not pair.primary.has_told("a", 0.1)

    pair.primary._keep_once()

    assert pair.primary.has_told("a", 0.1)
