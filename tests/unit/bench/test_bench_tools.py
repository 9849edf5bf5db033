"""The tools of bench/: profiles, plots, the guard, and peers that are not installed."""

import argparse
import importlib.util
import xml.etree.ElementTree as ET

import pytest

from bench import guard
from bench.compare import PEERS
from bench.flame import graph, ranked, read, tree
from bench.ha_gaps import FILLING, Books
from bench.peers.server import Peer
from bench.plot import picture_file
from bench.recovery import recovered, write_store


@pytest.fixture
def stacks(tmp_path):
    path = tmp_path / "node.raw"
    path.write_text("main;<lambda> & more;hot 6\nmain;cold 3\nmain 1\n")
    return read(path)


def test_functions_are_ranked_by_their_own_share(stacks):
    """A caller of what is slow is not what has to be changed."""
    assert ranked(stacks)[:2] == [("hot", 0.6, 0.6), ("cold", 0.3, 0.3)]
    assert ranked(stacks)[2] == ("main", 0.1, 1.0)


def test_a_flame_graph_is_a_picture_of_all_samples(stacks):
    """Names such as <lambda> must not break the file."""
    picture = ET.fromstring(graph(tree(stacks), "W2 <node>"))

    titles = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:2] == ["all 100.0%", "main 100.0%"]
    assert "<lambda> & more 60.0%" in titles


def test_a_picture_that_nothing_could_draw_is_refused_at_once(monkeypatch):
    """Not behind the hour of measuring whose figures it is to show."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(argparse.ArgumentTypeError, match="matplotlib"):
        picture_file("cost.svg")


def test_a_peer_that_is_not_installed_says_what_is_missing():
    """A comparison that silently left a peer out would claim too much."""
    peer = Peer(
        name="nobody",
        driver="",
        durability="",
        is_synced=True,
        programs=("no-such-program",),
        modules=("no_such_module", "json"),
        workloads=frozenset(),
    )

    assert peer.missing() == ["no-such-program", "Python module no_such_module"]
    assert all(peer.durability for peer in PEERS)


@pytest.mark.parametrize(
    ("ratios", "is_missed"),
    [([0.5], False), ([0.1, 0.5, 0.5], False), ([0.1, 0.5, 0.1], True), ([0.1, 0.1, 0.1], True)],
)
def test_the_guard_fails_only_when_it_was_slow_again_and_again(monkeypatch, ratios, is_missed):
    """A machine that was busy for a second must not fail a build; a slower node must."""
    measured = iter(ratios)
    monkeypatch.setattr(guard, "_COUNTS", {"W2": 100})
    monkeypatch.setattr(guard, "_read", lambda: {"W2": 0.3})
    monkeypatch.setattr(guard, "_ratio", lambda *_: next(measured))
    monkeypatch.setattr("sys.argv", ["guard"])

    if is_missed:
        with pytest.raises(SystemExit, match="W2"):
            guard.main()
    else:
        guard.main()
    assert next(measured, None) is None


def test_every_workload_of_the_guard_has_a_floor():
    """A workload without one would be measured for nothing."""
    assert guard._read().keys() == guard._COUNTS.keys()


def test_a_boot_is_measured_with_all_messages_waiting(tmp_path):
    """A log that is written past the engine must be one that an engine can read."""
    write_store(tmp_path, messages=500, size=100, batch=64, segment_bytes=1 << 16)

    (queue,) = recovered(tmp_path).state.queues.values()
    assert queue.line.waiting_count == 500


def test_the_books_of_a_failover_find_what_is_lost_and_what_is_doubled():
    """What waited there before is not counted, nor what was sent and never confirmed."""
    books, bodies = Books(), []
    for _ in range(12):
        bodies.append(books.body)
        books.confirmed += 1
    assert {len(one) for one in bodies} == {256}
    assert books.settle([FILLING, *bodies]) == (0, 0)
    assert books.settle([FILLING, *bodies, books.body]) == (0, 0)
    assert books.settle([*bodies[:3], *bodies[5:], bodies[7], bodies[7], bodies[0]]) == (2, 3)
