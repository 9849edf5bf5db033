"""The ledger: what is held for peers, and when one of them has too much."""

import pytest

from hms.server import byte_ledger
from hms.server.byte_ledger import FRAME_BYTES, Ledger, window

MIB = 1 << 20


@pytest.fixture
def small(monkeypatch):
    """A ledger with room for 8 MiB beside 64 MiB of messages; a peer may have 4."""
    monkeypatch.setattr(byte_ledger, "OWN_BYTES", 8 * MIB)
    monkeypatch.setattr(byte_ledger, "SHARE_BYTES_MIN", 4 * MIB)
    held = [64 * MIB]
    made = Ledger(1000, 64 * MIB, 2 * MIB, lambda: held[0])
    made.engine_holds = held
    return made


def test_a_peer_has_its_share_of_what_is_left(small):
    """The less the engine holds, the more there is for peers."""
    assert small.came("one", 4 * MIB)
    assert not small.came("one", 1)
    small.engine_holds[0] = 0
    assert (small.bytes_max, small.share) == (72 * MIB, 9 * MIB)
    assert small.came("one", 5 * MIB - 1)
    assert not small.came("one", 1)


def test_what_is_applied_or_dropped_is_not_held_any_more(small):
    """A batch in hand may be finished after its lane was emptied: it counts once."""
    small.came("one", 3 * MIB)
    small.came("two", MIB)
    small.handled("one", MIB)
    assert (small.held_for("one"), small.total) == (2 * MIB, 3 * MIB)
    small.dropped("one")
    small.handled("one", 2 * MIB)
    small.handled("two", MIB)
    assert small.total == 0


def test_whoever_asks_for_more_than_it_reads_is_named_once(small):
    """From then on nothing more is made for it."""
    frame = [b"", bytes(MIB)]
    assert small.put([("one", frame), ("two", [b"", b""])]) == []
    assert small.put([("one", frame)]) == ["one"]
    assert small.put([("one", frame)]) == []
    assert small.greedy == {"one"}
    small.taken({"one": MIB, "two": FRAME_BYTES})
    small.gone("one")
    assert (small.total, small.greedy) == (0, set())


def test_strays_are_those_who_left_with_something_on_their_lane(small):
    """They cannot be closed any more, only dropped."""
    small.came("one", MIB)
    small.came("two", MIB)
    assert small.without({"two"}) == ["one"]


def test_the_window_of_a_client_gets_smaller_the_more_there_are():
    """It is never so small that a usual frame does not fit."""
    sizes = [window(peers, MIB) >> 20 for peers in (0, 1, 4, 24, 2000)]
    assert sizes == [32, 32, 24, 4, 1]
