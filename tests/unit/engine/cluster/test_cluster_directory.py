"""What operators create, alter and delete at run time reaches every node, and stays that way."""

import pytest

from hms.errors.catalogue import NotSupported
from tests.support.cluster_rig import World


@pytest.fixture
def world():
    """Three nodes that know one another."""
    made = World(3)
    made.link_all()
    made.settle()
    return made


def do(world, index, verb, name, **given):
    """An operator's command at a node."""
    node = world.nodes[index]
    arguments = {"name": name, **given}
    node.run(lambda fx: node.engine.administer(verb, arguments, world.now_ms, fx))
    node.sync()
    world.settle()


def limits(world, name="bills"):
    """max_messages of a queue at each node; None where it is not."""
    found = [node.engine.state.queues.get(name) for node in world.nodes.values()]
    return [None if queue is None else queue.control.limits.messages_max for queue in found]


def test_a_queue_that_is_created_altered_and_deleted_at_one_node_is_so_at_all(world):
    """F-J10."""
    do(world, 1, "queue.create", "bills", max_messages=5)
    assert limits(world) == [5, 5, 5]
    do(world, 2, "queue.alter", "bills", max_messages=7)
    assert limits(world) == [7, 7, 7]
    do(world, 3, "queue.pause", "bills", what="PRODUCTION")
    assert world.nodes[1].engine.state.queues["bills"].control.is_sending_paused
    do(world, 1, "queue.delete", "bills")
    assert limits(world) == [None, None, None]


def test_a_node_that_was_away_catches_up_and_undoes_no_delete(world):
    """C11: a resurrected destination would swallow messages that nobody expects there."""
    do(world, 1, "queue.create", "old")
    world.unlink(1, 3)
    world.unlink(2, 3)
    do(world, 1, "queue.delete", "old")
    do(world, 1, "queue.create", "new", max_messages=3)

    world.nodes[3].boot()
    world.link(1, 3)
    world.link(2, 3)
    world.settle()

    assert limits(world, "old") == [None, None, None]
    assert limits(world, "new") == [3, 3, 3]


def test_changes_on_both_sides_of_a_cut_end_alike_by_the_written_rule(world):
    """The higher version holds; of one version the higher index."""
    do(world, 1, "queue.create", "bills", max_messages=1)
    world.unlink(1, 2)
    world.unlink(1, 3)
    do(world, 1, "queue.alter", "bills", max_messages=11)
    do(world, 3, "queue.alter", "bills", max_messages=33)
    world.link(1, 2)
    world.link(1, 3)
    world.settle()

    assert limits(world) == [33, 33, 33]


def test_a_delete_elsewhere_waits_until_no_message_would_be_lost(world):
    """Only its own operator may discard what waits at a node."""
    do(world, 1, "queue.create", "bills")
    two = world.nodes[2]
    two.engine.open_producer(1, 9, 1, "queue", "bills")
    two.send(1, producer=9)
    two.sync()
    do(world, 1, "queue.delete", "bills")
    status = two.engine.administer("cluster.status", {}, world.now_ms, None)
    assert limits(world) == [None, 0, None]
    assert "nothing waits" in status["not_done"][0]["reason"]

    do(world, 2, "queue.purge", "bills")
    world.tick()

    assert limits(world) == [None, None, None]


def test_the_directory_survives_crashes_and_the_cleaning_of_the_log(world):
    """Else a node that boots would undo what others know."""
    do(world, 1, "queue.create", "bills")
    do(world, 1, "queue.delete", "bills")
    do(world, 1, "queue.create", "more", max_messages=4)
    for node in world.nodes.values():
        node.clean()
    for index in world.nodes:
        world.crash(index)
    world.settle()

    assert limits(world, "bills") == [None, None, None]
    assert limits(world, "more") == [4, 4, 4]
    versions = [
        node.engine.state.moves.directory["queue", "bills"] for node in world.nodes.values()
    ]
    assert len(set(map(str, versions))) == 1


def test_a_client_creates_nothing_in_a_cluster(world):
    """F-C4: it would be gone with this node, and the others would not know it."""
    with pytest.raises(NotSupported, match="operator"):
        do(world, 1, "queue.create", "bills", life="DYNAMIC")

    assert limits(world) == [None, None, None]
