"""Global topics over engines alone: once to each subscription, nowhere without one, in order."""

import pytest

from hms.engine.cluster import target
from hms.engine.topic import spreading
from hms.errors.catalogue import DestinationNotFound
from tests.support.cluster_rig import World
from tests.support.spreads import all_arrived


@pytest.fixture
def world():
    """Three nodes that know one another."""
    made = World(3)
    made.link_all()
    made.settle()
    return made


def publish(world, index, *bodies, **options):
    """Publications one by one, and what comes of them."""
    for body in bodies:
        world.nodes[index].send(body=body, producer=options.pop("producer", 2), **options)
        world.nodes[index].sync()
    world.settle()


def bodies(node):
    """What a node's subscribers got."""
    return [m.payload[m.head_bytes :] for m in node.got]


def relayed(world):
    """How many publications went from node to node."""
    return sum(
        p.tally.moved_out for n in world.nodes.values() for p in n.engine.cluster.peers.values()
    )


def test_every_subscriber_at_every_node_gets_it_once(world):
    """F-J3: exactly once, and no loops in a full mesh."""
    for node in world.nodes.values():
        node.subscribe()
    world.tick()

    publish(world, 1, b"a", b"b")
    publish(world, 3, b"c")
    world.tick()

    assert [sorted(bodies(node)) for node in world.nodes.values()] == [[b"a", b"b", b"c"]] * 3
    assert relayed(world) == 6


def test_what_nobody_wants_there_does_not_travel(world):
    """A node without subscribers should not feel the topics of the others."""
    world.nodes[2].subscribe(selector="Month = 6")
    world.tick()

    publish(world, 1, b"a", properties={"Month": 5})
    publish(world, 1, b"b", properties={"Month": 6})

    assert bodies(world.nodes[2]) == [b"b"]
    assert relayed(world) == 1


def test_several_subscribers_at_one_node_cost_one_copy_and_keep_the_order(world):
    """Once per node, whatever patterns and selectors overlap."""
    two = world.nodes[2]
    two.subscribe(1, selector="Month = 6")
    two.subscribe(2)
    two.subscribe(3, topic="#")
    world.tick()

    for month in (5, 6, 5, 6):
        publish(world, 1, b"%d" % month, properties={"Month": month})

    assert sorted(bodies(two)) == sorted([b"5", b"6"] * 4 + [b"6", b"6"])
    assert relayed(world) == 4


def test_a_topic_that_is_not_global_stays_where_it_is(world):
    """GLOBAL is the operator's word, also against a wildcard."""
    world.nodes[2].subscribe(topic="#")
    world.tick()

    publish(world, 1, b"a", producer=3)

    assert bodies(world.nodes[2]) == []
    assert relayed(world) == 0


def test_a_durable_subscriber_misses_nothing_while_its_node_is_cut_off(world):
    """Kept at the sender until it is confirmed, over a crash of the sender too."""
    two = world.nodes[2]
    two.subscribe(durable="billing")
    world.tick()
    world.unlink(1, 2)
    publish(world, 1, b"a", b"b")
    world.nodes[1].boot()
    publish(world, 1, b"c")
    assert bodies(two) == []

    world.link(1, 2)
    world.settle()

    assert bodies(two) == [b"a", b"b", b"c"]


def test_a_subscriber_that_is_not_durable_costs_nothing_once_its_node_is_gone(world):
    """What piles up for nobody fills the memory of the living."""
    world.nodes[2].subscribe()
    world.tick()
    world.unlink(1, 2)

    publish(world, 1, b"a")

    assert world.nodes[1].engine.state.waiting_bytes == 0


def test_the_node_of_a_durable_subscriber_crashes_before_and_after_it_has_them(world):
    """C06: once per subscription."""
    two = world.nodes[2]
    two.subscribe(durable="billing", credit=0)
    world.tick()
    publish(world, 1, b"a")
    world.crash(2)
    publish(world, 1, b"b")
    world.crash(2)
    world.settle()

    two.subscribe(durable="billing")
    two.sync()

    assert bodies(two) == [b"a", b"b"]


def test_who_unsubscribes_gets_nothing_and_nothing_is_kept(world):
    """A proxy that outlives its subscription is a leak in every other node."""
    two = world.nodes[2]
    two.subscribe(durable="billing")
    world.tick()
    two.leave()
    two.run(lambda fx: two.engine.unsubscribe("news", "billing", world.now_ms, fx))
    two.sync()
    world.tick()

    publish(world, 1, b"a")

    assert relayed(world) == 0
    assert world.nodes[1].engine.state.waiting_bytes == 0


def test_order_is_that_of_the_producer_also_when_many_offers_are_needed(world):
    """JMS: in order for each producer."""
    world.nodes[2].subscribe(credit=8000)
    world.tick()
    numbers = [b"%04d" % n for n in range(300)]

    for number in numbers:
        world.nodes[1].send(body=number + b"x" * 4000, producer=2)
    world.nodes[1].sync()
    world.settle()
    world.tick()

    assert [body[:4] for body in bodies(world.nodes[2])] == numbers


def test_nothing_is_kept_for_a_node_that_left_the_configuration(world):
    """Whoever takes a node away for good says so in hms.conf."""
    world.nodes[2].subscribe(durable="billing")
    world.tick()
    one = world.nodes[1]
    world.unlink(1, 2)
    publish(world, 1, b"a")
    import dataclasses

    cluster = dataclasses.replace(one.settings.cluster, peers=((3, "n3"),))
    one.settings = dataclasses.replace(one.settings, cluster=cluster)

    one.boot()

    assert one.engine.state.waiting_bytes == 0
    assert not [s for s in one.engine.state.space.subscriptions.values() if s.is_proxy]


def test_publications_of_a_group_go_over_in_order_too(world):
    """A relay hands nothing out, so it must not wait for a consumer of the group."""
    world.nodes[2].subscribe()
    world.tick()
    for number in range(5):
        world.nodes[1].send(body=b"%d" % number, producer=2, properties={"JMSXGroupID": "g"})
    world.nodes[1].sync()
    world.settle()
    world.tick()

    assert bodies(world.nodes[2]) == [b"0", b"1", b"2", b"3", b"4"]


def test_no_client_takes_what_is_on_its_way_to_another_node(world):
    """A consumer at a relay would take publications from subscribers elsewhere."""
    world.nodes[2].subscribe(durable="billing")
    world.tick()
    assert "HMS.TO.2" in world.nodes[1].engine.state.queues

    with pytest.raises(DestinationNotFound):
        world.nodes[1].engine.open_producer(1, 9, 1, "queue", "HMS.TO.2")


def _go_on(world, node):
    """A tick of a node; how often it asked selectors."""
    asked = []
    for subscription in node.engine.state.space.subscriptions.values():
        choice = node.engine.state.space.audience("news", world.now_ms).choices.get(
            subscription.selector.text if subscription.selector else ""
        )
        if choice is not None:
            choice.matches = _counting(choice.matches, asked)
    node.run(lambda fx: node.engine.tick(world.clock(node.index), fx))
    node.sync()
    return len(asked)


def _counting(matches, asked):
    def counted(view):
        asked.append(view)
        return matches(view)

    return counted


@pytest.mark.parametrize("ends", ["well", "crash", "cut"])
def test_selectors_of_what_comes_from_another_node_are_asked_in_slices(world, monkeypatch, ends):
    """1,024 messages for 200 selectors of which no table finds any were 60 ms under one hold."""
    two = world.nodes[2]
    for handle in range(2, 22):
        two.subscribe(handle, durable=f"d{handle}", selector=f"Name LIKE '%x{handle}_'")
    world.tick()
    monkeypatch.setattr(target, "LOOK_STEPS", 60)
    world.nodes[1].send(count=10, body=b"a", producer=2, properties={"Name": "x12x"})
    world.nodes[1].sync()
    world.settle()
    arriving = two.engine.state.moves.arriving
    assert len(arriving) == 1
    assert bodies(two) == []
    assert _go_on(world, two) <= 60
    if ends == "crash":
        world.crash(2)
        world.settle()
        two.subscribe(12, durable="d12", selector="Name LIKE '%x12_'")
    elif ends == "cut":
        world.unlink(1, 2)
        world.link(1, 2)
        world.settle()
        assert len(arriving) == 1  # it is under way
    ticks = 0
    while two.engine.state.moves.arriving:
        assert _go_on(world, two) <= 60
        ticks += 1
    world.settle()

    assert ticks > 3
    assert bodies(two) == [b"a"] * 10
    assert world.nodes[1].undecided() == []
    assert relayed(world) == 10
    assert two.engine.cluster.peers[1].tally.moved_in == 10


@pytest.mark.parametrize("is_large", [False, True])
def test_what_comes_for_many_begins_to_wait_in_slices_and_the_log_says_the_same(
    world, monkeypatch, is_large
):
    """1,024 messages to 2,000 subscriptions were put into each of their lines under one hold."""
    two = world.nodes[2]
    for handle in range(2, 12):
        two.subscribe(handle, durable=f"d{handle}", credit=0)
    two.subscribe(20, durable="chooses", selector="Month = 6", credit=0)
    two.subscribe(21, credit=0)
    world.tick()
    if is_large:
        monkeypatch.setattr(spreading, "SPREAD_MIN", 0)
        monkeypatch.setattr(spreading, "SPREAD_AT_ONCE", 4)
    for month in (5, 6):
        world.nodes[1].send(count=3, body=b"%d" % month, producer=2, properties={"Month": month})
        world.nodes[1].sync()
    world.settle()
    assert bool(two.engine.state.spreads) is is_large
    waiting = two.engine.state.waiting_bytes

    def received(node):
        all_arrived(node.engine.state)
        places = node.engine.state.space.subscriptions.values()
        return {p.name: [m.payload[m.head_bytes :] for m in p.line.in_order()] for p in places}

    while two.engine.state.spreads:
        two.run(lambda fx: two.engine.tick(world.clock(2), fx))
    found = received(two)
    assert two.engine.state.waiting_bytes == waiting
    assert [found.pop(f"d{n}") for n in range(2, 12)] == [[b"5"] * 3 + [b"6"] * 3] * 10
    assert found.pop("chooses") == [b"6"] * 3
    world.crash(2)
    world.settle()
    again = received(two)
    assert [again.pop(f"d{n}") for n in range(2, 12)] == [[b"5"] * 3 + [b"6"] * 3] * 10
    assert again == {"chooses": [b"6"] * 3}
