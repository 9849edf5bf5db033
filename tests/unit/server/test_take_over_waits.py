"""What clients of a take-over wait for: a HELLO waits for its answer, who came has joined, and a
copy that has applied less lets another one go first."""

import threading
from types import SimpleNamespace

import pytest
import zmq

import hms
from hms.client.core.connection_options import Options
from hms.client.core.link import Link
from hms.client.core.requests import Requests
from hms.errors.catalogue import NotPrimary
from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.gateway import GatewayLimits
from hms.server.replicas import standby_door
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.copy_state import CopyState
from hms.server.replicas.follower import YIELDS_S, Follower
from hms.server.replicas.frames import (
    FORMAT,
    Ack,
    Envelope,
    Join,
    Rejoin,
    Resume,
    Whole,
    decode,
    encode,
)
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Peer
from hms.server.replicas.primary import Primary
from hms.server.replicas.standby_door import StandbyDoor
from hms.store.journal.confirmed_place import Place
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import Author, pack_segment_header
from hms.store.journal.prepared_spare import PreparedSpare
from hms.store.journal.segment import SPARE_NAME
from hms.store.journal.segment_walk import segment_file
from hms.testing.ports import free_port
from hms.wire.frames import Kind, decode_envelope, frame
from hms.wire.structures import Hello, decode_error

LOG = "ab" * 16
MEMBERS = tuple(Member(name, str(n) * 32, 4) for n, name in enumerate("abc", 1))
WAIT_MS = 60_000
SEGMENT_BYTES = 4096


class Asks:
    """Who says HELLO at an address."""

    def __init__(self, context, address):
        self.socket = context.socket(zmq.DEALER)
        self.socket.connect(address)
        self.socket.send_multipart(frame(Kind.HELLO, b"", 7))

    def hears(self, timeout_ms=WAIT_MS):
        """Who leads, as it is told; None when nothing comes."""
        if not self.socket.poll(timeout_ms):
            return None
        parts = self.socket.recv_multipart()
        assert decode_envelope(parts, 1 << 20).kind is Kind.ERROR
        return decode_error(parts[1]).fields["primary"]


@pytest.fixture
def asks():
    """Makes them."""
    context, made = zmq.Context(), []

    def ask(address):
        made.append(Asks(context, address))
        return made[-1]

    yield ask
    for one in made:
        one.socket.close(0)
    context.term()


@pytest.fixture
def door():
    """Of b; who leads is what `knows` has."""
    knows = SimpleNamespace(leader="", is_undecided=True)
    address, limits = (
        f"tcp://127.0.0.1:{free_port()}",
        GatewayLimits(
            frame_bytes_max=1 << 20, peers_max=9, heartbeat_s=30, pending_bytes_per_peer=1 << 20
        ),
    )

    def answer():
        told = {"primary": knows.leader or "nobody", "addresses": ""}
        return NotPrimary(replica="b", node="n", epoch=3, **told)

    made = StandbyDoor([address], limits, answer, lambda: knows.is_undecided)
    made.open()
    yield made, knows, address
    made.close()


def came(made):
    """Wait until the door has a HELLO."""
    pause = threading.Event()
    while not made._waiting:
        pause.wait(0.01)


def test_a_hello_waits_until_it_is_known_who_leads(door, asks):
    """It was told that nobody leads, and came again and again."""
    made, knows, address = door
    one = asks(address)
    came(made)
    made.look()
    assert one.hears(50) is None

    knows.leader, knows.is_undecided = "c", False
    made.look()

    assert one.hears() == "c"


def test_a_hello_waits_no_longer_than_an_inquiry(door, asks, monkeypatch):
    """An arbiter may be away for long."""
    made, _, address = door
    one = asks(address)
    came(made)
    monkeypatch.setattr(standby_door, "now_s", lambda: float("inf"))
    made.look()
    assert one.hears() == "nobody"


def test_who_does_not_come_again_is_told_at_once_who_leads_where_no_address_is_known(door):
    """A command waited for 10 s, and said that no node answers."""
    _, knows, address = door
    knows.leader, knows.is_undecided = "c", False
    with pytest.raises(NotPrimary, match="replica b of node n follows: c leads in epoch 3"):
        hms.connect(address, reconnect=False)


@pytest.mark.parametrize(
    ("is_final", "given", "addresses", "primary", "told"),
    [
        (True, {}, "1", "c", ""),
        (False, {"reconnect": True}, "1", "c", ""),
        (False, {"connect_timeout_s": 5}, "1", "c", ""),
        (False, {}, "12", "c", ""),  # the other one may lead
        (False, {}, "1", "nobody", ""),
        (False, {}, "1", "b", ""),  # in a moment
        (False, {}, "1", "c", "tcp://c:1"),
        (False, {}, "1", "", ""),  # it has said nothing yet
    ],
)
def test_it_is_told_at_once_only_where_there_is_nothing_to_wait_for(
    is_final, given, addresses, primary, told
):
    """Else a connection is tried for its connect_timeout_s, as ever."""
    said = NotPrimary(replica="b", node="n", epoch=3, primary=primary, addresses=told)
    loop = SimpleNamespace(followed=said if primary else None, addresses=list(addresses))
    requests = Requests(
        SimpleNamespace(link=Link(Hello(1)), loop=loop), Options(**{"reconnect": False, **given})
    )
    assert (requests._led_elsewhere() is said) == is_final


def test_those_who_wait_where_the_node_is_about_to_listen_are_told(door, asks):
    """They come again at once, and there."""
    made, knows, address = door
    one = asks(address)
    came(made)
    knows.leader = "b"
    made.close()
    assert one.hears() == "b"


def test_who_has_joined_the_candidate_need_not_join_again(tmp_path):
    """It looked at its whole log again, and clients waited for it."""
    sent = []
    arbiter = MemoryArbiter(MemoryEngine(lambda: 100.0, 5.0), "b")
    arbiter.begin(Configuration(5, LOG, 3, "a", 4, MEMBERS, 2))
    leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=5.0)
    leadership.begin(100.0)
    granted = arbiter.campaign(5, "b", 8)
    leadership.won(granted, 100.0)
    group = Group("n", "b", {n: Peer(n, f"tcp://{n}") for n in "abc"}, 5.0, Limits(1, 1.0, 60.0))
    socket = SimpleNamespace(
        received=list,
        wake=lambda: None,
        send=lambda route, *parts: sent.append((route, decode(parts)[0].said)),
    )
    said = Join("3" * 32, 3, {}, {}, [], [])
    early = {"c": (b"route", Envelope(FORMAT, LOG, 0, "c", 5, said))}
    primary = Primary(
        group, tmp_path, REAL_DISK, arbiter, leadership, granted, socket,
        silent_since_s=100.0, clock_s=lambda: 100.0, came=early,
    )  # fmt: skip
    primary.start = lambda: None
    primary._serve_once()
    assert not [one for _, one in sent if isinstance(one, Resume)]
    header = pack_segment_header(Author(7, granted.epoch), 1, 1, 1)
    segment_file(tmp_path, 1).write_bytes(header + bytes(SEGMENT_BYTES - len(header)))
    primary.begun(1, header, SEGMENT_BYTES)
    sent.clear()

    primary._serve_once()

    assert [route for route, one in sent if isinstance(one, Resume)] == [b"route"]
    assert not [one for _, one in sent if isinstance(one, Rejoin)]
    assert [row["replica"] for row in primary.describe()["replicas"]] == ["c"]


@pytest.mark.parametrize("preferred", ["", "b"])
def test_a_copy_that_has_much_to_apply_leaves_the_lease_to_others_at_first(tmp_path, preferred):
    """It took over as often as one that had applied all, and clients waited while it read. One that
    is named leads, whatever it has applied."""
    now = [100.0]
    engine = MemoryEngine(lambda: now[0], 5.0)
    leads, arbiter = MemoryArbiter(engine, "a"), MemoryArbiter(engine, "b")
    leads.begin(Configuration(4, LOG, 2, "a", 4, MEMBERS, 2))
    assert leads.campaign(4, "a", 4) is not None
    leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=5.0)
    applies = SimpleNamespace(verified=None, place=Place(3, 64), turn=lambda *_, **__: False)
    made = Follower(
        Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0)), tmp_path, REAL_DISK, arbiter, leadership,
        CopyState(LOG, "2" * 32, 8, 3), lambda _: None, lambda: None,
        clock_s=lambda: now[0], applies=applies,
    )  # fmt: skip
    made.begin()
    made._confirmed.tell(Place(7, 64))
    leads.resign(preferred)
    leadership.left()

    won = made.step(0)
    assert (won is not None) == bool(preferred)
    if not preferred:
        now[0] += 2 * YIELDS_S
        assert made.step(0) is not None


def test_the_next_segment_is_prepared_once_and_known_again(tmp_path):
    """Who waits for a take-over waited for 64 MiB of zeros."""
    spare, file = PreparedSpare(tmp_path, 1 << 20), tmp_path / SPARE_NAME
    assert not spare.is_it(file)
    spare.begin()
    spare.end()
    assert spare.is_it(file)
    assert file.read_bytes() == bytes(1 << 20)

    with file.open("r+b") as opened:
        opened.write(b"x")

    assert not spare.is_it(file)


def test_a_copy_that_joins_again_says_what_it_has_however_many_frames_came(tmp_path):
    """As many before as behind that, in one turn, looked like none: an idle primary waited for its
    answer until it gave the copy up."""
    said, frames = [], []
    line = SimpleNamespace(
        primary="a", wait=lambda _s: None, is_lost=lambda: False, close=lambda: None,
        say=lambda _log, _me, _start, one: said.append(one),
        received=lambda: [frames.pop(0) for _ in list(frames)],
    )  # fmt: skip
    leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=5.0)
    made = Follower(
        Group("n", "b", {}, 5.0, Limits(1, 2.0, 20.0)), tmp_path, REAL_DISK, None, leadership,
        CopyState(LOG, "2" * 32, 8, 3), lambda _: None, lambda: None, clock_s=lambda: 100.0,
    )  # fmt: skip
    made.begin()
    made._link = line

    def hears(*told):
        frames.extend([encode(Envelope(FORMAT, LOG, 3, "a", 4, one)), b""] for one in told)
        said.clear()
        made._take(0)
        return [one for one in said if isinstance(one, Ack)]

    assert hears(Rejoin(), Resume(), Whole(5)) == [Ack(5, 2)]
    assert hears(Rejoin(), Resume(), Whole(7)) == [Ack(7, 2)]
