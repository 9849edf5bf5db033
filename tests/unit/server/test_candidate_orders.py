"""What an operator says to a copy that does not lead yet is answered, whoever it is."""

from types import SimpleNamespace

import pytest

from hms.errors.catalogue import SwitchoverRefused
from hms.server.arbiter import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.candidate import Candidate
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.frames import FORMAT, Envelope, Order, OrderDone, decode, encode
from hms.server.replicas.leadership import Leadership
from hms.server.replicas.link import Group, Peer
from hms.server.replicas.promises import End
from hms.store.journal.disk import REAL_DISK
from hms.wire.structures import decode_error

LOG = "ab" * 16
MEMBERS = tuple(Member(name, str(n) * 32, 4) for n, name in enumerate("abc", 1))


def test_an_order_that_reaches_a_candidate_is_refused_with_what_it_does(tmp_path):
    """It was dropped, and the command waited for its whole timeout."""
    engine = MemoryEngine(lambda: 100.0, 5.0)
    arbiter = MemoryArbiter(engine, "b")
    arbiter.begin(Configuration(5, LOG, 3, "a", 4, MEMBERS, 2))
    leadership = Leadership("b", "2" * 32, 8, 3, LOG, lease_s=5.0)
    leadership.begin(100.0)
    granted = arbiter.campaign(5, "b", 8)
    leadership.won(granted, 100.0)
    group = Group("n", "b", {n: Peer(n, f"tcp://{n}") for n in "abc"}, 5.0, Limits(1, 1.0, 60.0))
    order = Envelope(FORMAT, LOG, 0, "c", 0, Order("a", is_forced=False, drain_s=None, by="ann"))
    frames, sent = [[b"route", encode(order), b""]], []
    socket = SimpleNamespace(
        received=lambda: [frames.pop()] if frames else [],
        send=lambda route, envelope, data: sent.append((route, [envelope, data])),
    )
    copy = SimpleNamespace(tail=lambda: (End(3, 1, 64), True), close=lambda: None)
    about = arbiter, leadership, granted, socket
    one = Candidate(group, tmp_path, REAL_DISK, *about, lambda: 100.0, copy)
    one.begin()

    assert one.step() is None
    ((route, parts),) = sent
    envelope, data = decode(parts)

    assert (route, envelope.said) == (b"route", OrderDone("", granted.epoch))
    with pytest.raises(SwitchoverRefused, match="b asks the other copies for their promises"):
        raise decode_error(data)
