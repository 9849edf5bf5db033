"""The tools of bench/: profiles, plots, the guard, and peers that are not installed."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from bench import guard
from bench.compare import PEERS
from bench.flame import graph, ranked, read, tree
from bench.peers.server import Peer
from bench.plot import plot


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


def test_a_plot_shows_every_size_of_every_line():
    """A size that is left out hides where the cost begins to grow."""
    lines = {"queues": [(1, 1.0), (10, 1.1), (1000, 2.5)], "connections": [(1, 1.0), (100, 0.9)]}
    picture = ET.fromstring(plot(lines, "cost"))

    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 5


def test_a_plot_of_an_hour_gives_each_minute_the_same_room():
    """On a logarithmic axis the second half hour would be an inch."""
    lines = {"node": [(float(minute), 1.0) for minute in range(1, 61)]}
    picture = ET.fromstring(plot(lines, "an hour", is_even=True))

    words = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0", "10", "30", "60"} <= set(words)
    line = next(picture.iter("{http://www.w3.org/2000/svg}polyline"))
    across = [float(place.partition(",")[0]) for place in line.attrib["points"].split()]
    steps = {round(after - before) for before, after in pairwise(across)}
    assert steps <= {7, 8}


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
