"""Moves between nodes in the history: each node's log accounts for what came, left and is there."""

from collections import Counter

import pytest

from hms.history.events import EventDecoder
from tests.support.cluster_rig import QUEUE, TOPIC, World

ENDS = ("acknowledged", "expired", "dead_lettered", "purged", "moved", "discarded")


@pytest.fixture
def world():
    """Two nodes that know one another."""
    made = World(2)
    made.link_all()
    made.settle()
    return made


def events_of(node):
    """What the history shows of a node's log."""
    decoder, found = EventDecoder(), []
    for number, (kind, payload) in enumerate(node.log, 1):
        found += decoder.decode(number << 32, kind, payload)
    return found


def account(node, place):
    """Ids that came to a place, moved in, moved out, and that should be there now."""
    came, moved_in, moved_out, left = Counter(), Counter(), Counter(), Counter()
    for event in events_of(node):
        if event.event in ("sent", "forwarded"):
            subscribers = event.subscriptions or [f"{event.destination_kind}:{event.destination}"]
            if place in subscribers:
                came[event.message_id] += 1
                moved_in[event.message_id] += event.cause == "moved"
        elif event.event in ENDS and f"{event.destination_kind}:{event.destination}" == place:
            left[event.message_id] += 1
            moved_out[event.message_id] += event.event == "moved"
    return +came, +moved_in, +moved_out, came - left


def names(ids):
    """Message ids as the history shows them."""
    return sorted(f"{one:012x}" for one in ids)


def test_what_moved_is_in_both_histories_and_each_of_them_adds_up(world):
    """P9: a message that leaves a node by a move must not look lost there, nor made up here."""
    source, target = world.nodes.values()
    source.send(50)
    target.send(5)
    source.sync()
    target.sync()
    target.consume(credit=0)
    world.tick()

    sent, _, moved_out, here = account(source, f"queue:{QUEUE}")
    came, moved_in, none, there = account(target, f"queue:{QUEUE}")

    assert len(moved_out) > 0 == len(none)
    assert moved_out == moved_in
    assert (len(sent), len(came)) == (50, 5 + len(moved_in))
    assert sorted(here) == names(source.held())
    assert sorted(there) == names(target.held())


def test_a_message_that_comes_back_is_counted_each_time(world):
    """Sent, moved out, moved in again: two arrivals and one end leave one message."""
    one, other = world.nodes.values()
    one.send(3)
    one.sync()
    other.consume(credit=0)
    world.tick()
    other.leave()
    one.consume(credit=0)
    for _ in range(5):
        world.tick()

    came, moved_in, moved_out, here = account(one, f"queue:{QUEUE}")

    assert set(came.values()) == {2}
    assert moved_in == moved_out
    assert sorted(here) == names(one.held())
    assert len(here) == 3
    assert account(other, f"queue:{QUEUE}")[3] == {}


def test_an_offer_that_was_refused_is_no_move():
    """Both nodes have to say the same of it: nothing moved."""
    world = World(2, limits={2: {"messages_max": 1}})
    world.link_all()
    world.settle()
    world.nodes[1].send(10)
    world.nodes[1].sync()
    world.nodes[2].consume(credit=0)
    world.tick()

    assert world.nodes[1].held()
    assert all(event.cause != "moved" for n in world.nodes.values() for event in events_of(n))


def test_a_publication_that_went_over_left_the_relay_and_came_by_a_move(world):
    """What waits for a node that is away stands in a queue like any other."""
    source, target = world.nodes.values()
    target.subscribe(durable="all", credit=0)
    world.tick()
    source.send(4, producer=2)
    source.sync()
    world.settle()

    moved = [event for event in events_of(source) if event.event == "moved"]
    came = [event for event in events_of(target) if event.cause == "moved"]

    assert len(moved) == 4
    assert [e.message_id for e in moved] == [e.message_id for e in came]
    assert {e.destination for e in came} == {TOPIC}
    assert not account(source, f"queue:{moved[0].destination}")[3]
