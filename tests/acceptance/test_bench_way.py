"""The way of one message alone, in calls: what a real node and client run for it only falls."""

import pytest

from bench.way import LIMITS, QUICK, Call, Figures, _apart, _figures, _usual, measured

COUNT = 15
ATTEMPTS = 8
"""Which thread comes first, and so which way a message goes, is up to the machine."""


def test_a_message_alone_takes_no_more_calls_than_it_did():
    """Each call is time on any machine, and each change of file a step for whoever reads along. Who
    needs fewer lowers the limits in bench/way.py; who needs more says why in the commit."""
    beyond = dict(LIMITS)
    for _ in range(ATTEMPTS):
        found = measured(COUNT, QUICK).figures
        beyond = {
            name: limit
            for name, limit in beyond.items()
            if any(made > most for made, most in zip(found[name], limit, strict=True))
        }
        if not beyond:
            break
    assert {name: (tuple(found[name]), tuple(limit)) for name, limit in beyond.items()} == {}


def _way(*names: str) -> list[Call]:
    return [Call(float(i), 1, name[0], name, is_end=False) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "figures"),
    [((), (0, 0, 0)), (("a1", "a2"), (2, 1, 0)), (("a1", "b1", "a1"), (3, 2, 2))],
)
def test_calls_files_and_changes_of_file_are_counted(names, figures):
    """A count that is wrong would guard nothing."""
    assert _figures(_way(*names)) == Figures(*figures)


def test_a_message_that_met_a_heartbeat_is_no_measure():
    """Neither the longest way is told nor one that ended too soon; how many went exactly the same
    way is chance when several threads wake one another."""
    ways = [_way("a1", "b1", "c1"), _way("a1")] + [_way("a1", "b1")] * 8
    none_alike = [_way(*["a1"] * length) for length in range(10, 0, -1)]

    assert _figures(_usual(ways)) == Figures(2, 2, 1)
    assert _figures(_usual(none_alike)).calls == 3


def test_what_the_node_does_by_the_clock_is_counted_apart():
    """A look at the connections beside a message cost it 6 to 40 calls more, by chance."""
    asleep = _named("Gateway._take_turn", "Gateway._sleep_ms", ends="Gateway._sleep_ms")
    look = [*asleep, *_named("PeerTable.look", "Arrivals.take_events", ends="PeerTable.look")]
    takes = [*asleep, *_named("Listener.receive", "PeerTable.look", "inner", ends="PeerTable.look")]
    alone = [*takes, *asleep, *_named("Listener.send")]
    beside = [*look, *takes, *look, *look, *asleep, *_named("Listener.send"), *look]

    way, upkeep = _apart(_timed(beside))

    assert [call.name for call in way] == [call.name for call in _apart(_timed(alone))[0]]
    assert len(way) + len(upkeep) == len(beside)
    assert sum(call.name == "PeerTable.look" and not call.is_end for call in upkeep) == 5


def test_when_the_node_fell_asleep_is_no_part_of_the_next_message():
    """What it does before it sleeps would count for one message or the other, by chance."""
    asleep = _named("Gateway._take_turn", "Gateway._sleep_ms", ends="Gateway._sleep_ms")
    looked = [*asleep, *_named("PeerTable.look")]
    calls = _timed([*asleep, *_named("Listener.send"), *looked, *asleep, *_named("Listener.send")])

    first, second = (call.at_s for call in _apart(calls)[0] if call.name == "Gateway._take_turn")

    done_at = next(call.at_s for call in calls if call.name == "Listener.send")
    assert first < done_at < second < done_at + 1


def _named(*names: str, ends: str = "") -> list[Call]:
    made = [Call(0.0, 1, "a", name, is_end=False) for name in names]
    return made + [Call(0.0, 1, "a", ends, is_end=True)] * bool(ends)


def _timed(calls: list[Call]) -> list[Call]:
    return [call._replace(at_s=float(nth)) for nth, call in enumerate(calls)]
