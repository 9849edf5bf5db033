"""Keys of the copies' link: who shows another one than is known is not one that is silent."""

import socket
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from hms.boot.primary_questions import refuse_unknown_key
from hms.errors.catalogue import LinkKeyError
from hms.server.arbiter import Configuration, Leader, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.links.keys import make_key_file, read_key_file
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.copy_state import CopyState
from hms.server.replicas.follower import Follower
from hms.server.replicas.frames import Beat
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import HUNG_UP, FollowerSocket, Group, Peer, PrimarySocket
from hms.store.journal.disk import REAL_DISK
from hms.testing.ports import free_port
from tests.support.waiting import wait_until

LOG = "ab" * 16
LEASE_S = 5.0


class Machines:
    """a leads, b follows; each has a key."""

    def __init__(self, folder, ends):
        self._folder, self._ends = folder, ends
        self.keys = {name: make_key_file(folder / name) for name in "ab"}
        self.address = f"tcp://127.0.0.1:{free_port()}"

    def group(self, me, *, key_of_a="", key_of_b=""):
        """What hms.conf of that one has."""
        peers = {
            "a": Peer("a", self.address, key_of_a or self.keys["a"]),
            "b": Peer("b", f"tcp://127.0.0.1:{free_port()}", key_of_b or self.keys["b"]),
        }
        return Group("n", me, peers, LEASE_S, Limits(), read_key_file(self._folder / me))

    def leads(self, **keys):
        """The one that leads listens, in a thread; what it hears."""
        made, heard, is_over = PrimarySocket(self.group("a", **keys)), [], threading.Event()

        def run():
            while not is_over.is_set():
                made.wait(0.02)
                heard.extend(made.received())

        thread = threading.Thread(target=run)
        thread.start()
        for end in (made.close, thread.join, is_over.set):
            self._ends.callback(end)
        return heard

    def follows(self, group):
        made = FollowerSocket(group, "a")
        self._ends.callback(made.close)
        return made


@pytest.fixture
def machines(tmp_path):
    with ExitStack() as ends:
        yield Machines(tmp_path, ends)


def other_key(folder):
    return make_key_file(folder / "other")


def shows_other(link):
    """After a turn."""
    link.wait(0.02)
    link.is_lost()
    return link.shows_other_key()


def test_a_machine_that_shows_another_key_than_is_known_of_it_is_named(machines, tmp_path):
    """It hung up: who asked it was told that it does not answer."""
    machines.leads()
    group = machines.group("b", key_of_a=other_key(tmp_path))
    link = machines.follows(group)

    wait_until(lambda: shows_other(link))

    assert not link.refuses_key()
    with pytest.raises(LinkKeyError, match=r"a hangs up: public_key of \[replica.a\] here is not"):
        refuse_unknown_key(link, group)


def test_so_is_one_that_shows_none(machines):
    """Its hms.conf has no keys."""
    peers = {"a": Peer("a", machines.address)}
    leads = PrimarySocket(Group("n", "a", peers, LEASE_S, Limits()))
    link = machines.follows(machines.group("b"))
    try:
        wait_until(lambda: shows_other(link))
    finally:
        leads.close()


def test_one_that_is_known_is_not_taken_for_another(machines):
    """Also after it has ended a handshake, as a process does that is killed in it."""
    link = machines.follows(machines.group("b"))
    link._shaken(0, min(HUNG_UP))
    heard = machines.leads()
    link.say(LOG, "b", 1, Beat(1.0))

    wait_until(lambda: not shows_other(link) and heard)

    assert link._hang_ups == 0
    refuse_unknown_key(link, machines.group("b"))


def test_one_that_does_not_answer_is_not_taken_for_another(machines):
    """A machine that stands still ends no handshake; the time for that is over by and by."""
    host, _, port = machines.address.removeprefix("tcp://").rpartition(":")
    with socket.create_server((host, int(port))) as silent:
        link = machines.follows(machines.group("b"))
        accepted, _ = silent.accept()
        wait_until(lambda: not shows_other(link) and link._is_up)
        wait_until(lambda: not shows_other(link) and not link._is_up)
        accepted.close()
    assert link._hang_ups == 0


@pytest.mark.parametrize("whose", ["a", "b"])
def test_a_copy_says_which_of_two_keys_is_wrong(machines, tmp_path, whose):
    """In its status and its log."""
    wrong = {f"key_of_{whose}": other_key(tmp_path)}
    machines.leads(**wrong if whose == "b" else {})
    group = machines.group("b", **wrong if whose == "a" else {})
    clock, waits = SimpleNamespace(now_s=100.0), []
    engine = MemoryEngine(lambda: clock.now_s, LEASE_S)
    arbiter = MemoryArbiter(engine, "b")
    members = (Member("a", "1" * 32, 4), Member("b", "2" * 32, 7))
    arbiter.begin(Configuration(5, LOG, 3, "a", 4, members))
    engine.leader, engine.leader_until_s = Leader("a", 3), float("inf")
    leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=LEASE_S)
    made = Follower(
        group, tmp_path, REAL_DISK, arbiter, leadership, CopyState(LOG, "2" * 32, 8, 3),
        waits.append, lambda: None, clock_s=lambda: clock.now_s,
    )  # fmt: skip
    made.begin()

    def is_said():
        made.step(0.02)
        clock.now_s += LEASE_S / 20
        return any(f"[replica.{whose}]" in one for one in waits)

    wait_until(is_said)
    made.end()
    said = "a to know the key of b" if whose == "b" else "the key of a, which hangs up"
    assert any(one.startswith(said) for one in waits)
