"""One node may be declared master for destinations that are made at run time."""

import pytest

from hms.boot.clusters import cluster_settings
from hms.boot.config import load
from hms.errors.catalogue import ConfigError, DestinationNotFound, NotConfigMaster
from tests.support.cluster_rig import World

NODES = """
[domain]
config_master = "{master}"
[node.A]
listen = ["tcp://127.0.0.1:7701"]
[node.B]
listen = ["tcp://127.0.0.1:7702"]
[node.C]
listen = ["tcp://127.0.0.1:7703"]
[svrgroup.a]
NODENAME = "A"
HMSPORT = 7801
[svrgroup.b]
NODENAME = "B"
HMSINDEX = 2
HMSPORT = 7802
[svrgroup.c]
NODENAME = "C"
HMSINDEX = 3
"""


@pytest.fixture
def world():
    """Three nodes that know one another; the second one is master."""
    made = World(3, master=2)
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


def queues(world, name):
    """That queue at each node; None where it is not."""
    return [node.engine.state.queues.get(name) for node in world.nodes.values()]


def test_only_the_master_changes_destinations_and_all_nodes_follow(world):
    """Two operators at two nodes must not work against one another."""
    do(world, 2, "queue.create", "bills", max_messages=5)
    assert [q.control.limits.messages_max for q in queues(world, "bills")] == [5, 5, 5]
    for verb, given in (("alter", {"max_messages": 9}), ("delete", {})):
        with pytest.raises(NotConfigMaster) as caught:
            do(world, 1, f"queue.{verb}", "bills", **given)
        assert caught.value.fields["master"] == "n2"
        assert "--node n2" in str(caught.value)
    with pytest.raises(NotConfigMaster):
        do(world, 3, "topic.create", "more")

    assert [q.control.limits.messages_max for q in queues(world, "bills")] == [5, 5, 5]
    do(world, 2, "queue.delete", "bills")
    assert queues(world, "bills") == [None] * 3


def test_a_refused_change_leaves_no_record_and_no_word(world):
    """A refused request changes nothing."""
    before = [len(node.log) for node in world.nodes.values()]
    with pytest.raises(NotConfigMaster):
        do(world, 1, "queue.create", "bills")

    assert [len(node.log) for node in world.nodes.values()] == before
    assert queues(world, "bills") == [None] * 3


def test_messages_go_on_and_queues_are_paused_while_the_master_is_away(world):
    """The master is for changes; a node that waited for it would be no cluster."""
    world.unlink(1, 2)
    world.unlink(2, 3)
    world.nodes[3].consume()
    world.tick()
    world.nodes[1].send(20)
    world.nodes[1].sync()
    world.settle()

    assert len(world.nodes[3].got) == 20
    do(world, 3, "queue.pause", "orders", what="PRODUCTION")
    assert world.nodes[1].queue.control.is_sending_paused
    with pytest.raises(NotConfigMaster):
        do(world, 1, "queue.create", "bills")


def test_who_was_away_hears_of_a_change_although_the_master_is_gone(world):
    """The master is asked once; what it said is everybody's."""
    world.unlink(1, 2)
    world.unlink(1, 3)
    do(world, 2, "queue.create", "bills")
    world.unlink(2, 3)
    world.link(1, 3)
    world.settle()

    assert all(queue is not None for queue in queues(world, "bills"))


def test_what_is_not_there_is_refused_like_everything_else_at_another_node(world):
    """Whether it exists is the master's to say; it knows the newest."""
    with pytest.raises(NotConfigMaster):
        do(world, 1, "queue.delete", "nothing")
    with pytest.raises(DestinationNotFound):
        do(world, 2, "queue.delete", "nothing")


def test_the_status_names_the_master(world):
    """An operator has to find it before the refusal tells."""
    status = world.nodes[1].engine.administer("cluster.status", {}, world.now_ms, None)

    assert status["config_master"] == "n2"


def test_the_file_declares_it_for_all_nodes(tmp_path):
    """One file, so that no two nodes take themselves for it."""
    path = tmp_path / "hms.conf"
    path.write_text(NODES.format(master="B"))
    config = load(path)
    found = [cluster_settings(config, config.node(name)) for name in "AB"]

    assert [(s.config_master, s.is_config_master) for s in found] == [("B", False), ("B", True)]


@pytest.mark.parametrize(("master", "hint"), [("b", "did you mean 'B'"), ("C", "needs HMSPORT")])
def test_a_master_that_is_in_no_cluster_is_refused_at_once(tmp_path, master, hint):
    """It would leave nobody who may change anything."""
    path = tmp_path / "hms.conf"
    path.write_text(NODES.format(master=master))

    with pytest.raises(ConfigError, match="config_master") as caught:
        load(path)
    assert hint in str(caught.value)
