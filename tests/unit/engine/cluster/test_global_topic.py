"""Global topics over engines alone: once to each subscription, nowhere without one, in order."""

import pytest

from hms.errors.catalogue import DestinationNotFound
from tests.support.cluster_rig import World


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
