"""The partition suite (C01, C02): three nodes in network namespaces, their links cut under load in
four shapes and in one direction, three ways to consume; lost 0, split 0, unexpected 0, no retry.
"""

import os
import threading
import time

import pytest
from global_queue_rig import CONFIG, Load, await_up
from netns_rig import make_lab

from hms.testing.nodes import TestNode
from tpmon.links.keys import make_key_file

ROUNDS = int(os.environ.get("HMS_PARTITION_ROUNDS", "1"))
CUT_S = float(os.environ.get("HMS_PARTITION_S", "2.5"))
HEARTBEAT_S = 1.0
PORT = 7800
SHAPES = {
    "the giver alone": lambda lab: lab.isolate(1),
    "the taker alone": lambda lab: lab.isolate(3),
    "all apart": lambda lab: lab.isolate(1, 2, 3),
    "two of three apart": lambda lab: lab.part(1, 3),
    "one direction only": lambda lab: lab.mute(1, 3),
}
STYLES = ("client", "transacted", "listener")


@pytest.fixture
def lab():
    """Three namespaces, whole again and gone after the test."""
    made = make_lab(3)
    yield made
    made.close()


@pytest.fixture
def cluster(lab, tmp_path):
    """A node in each of them, with keys, as the links leave loopback."""
    groups = {}
    for index in lab.indexes:
        key = tmp_path / f"n{index}.key"
        groups[f"g{index}"] = {
            "NODENAME": f"n{index}",
            "HMSINDEX": index,
            "HMSPORT": PORT,
            "HMSHEARTBEAT": HEARTBEAT_S,
            "HMSGQINT": 0.2,
            "link_host": lab.address(index),
            "link_key_file": str(key),
            "link_public_key": make_key_file(key),
        }
    nodes = {f"n{i}": {"listen": [f"ipc://{tmp_path}/n{i}.ipc"]} for i in lab.indexes}
    config = {**CONFIG, "node": nodes, "svrgroup": groups}
    first = TestNode(tmp_path, tmp_path / "store", config, (), (), (), 3)
    try:
        for index, one in enumerate(first.nodes, 1):
            one._prefix = lab.prefix(index)
            one.boot()
        await_up(first)
        yield first
    finally:
        for one in first.nodes:
            if one.is_running:
                one.kill()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_under_load_loses_and_splits_nothing(shape, lab, cluster):
    """Whatever is under way when a link is cut is at one of its ends, and comes once."""
    load = Load()
    load.produce(cluster.nodes[0].address, "a")
    load.produce(cluster.nodes[1].address, "b")
    for style in STYLES:
        load.consume(cluster.nodes[1].address, style)
        load.consume(cluster.nodes[2].address, style)
    for _ in range(ROUNDS):
        await_flow(load, 300)
        SHAPES[shape](lab)
        threading.Event().wait(CUT_S)
        lab.heal()
        await_up(cluster)
        await_flow(load, 300)
    load.finish(cluster)

    lost = set(load.confirmed) - set(load.taken) - load.doubtful
    split = [body for body, count in load.taken.items() if count > 1 and body not in load.doubtful]
    unexpected = (set(load.taken) | load.doubtful) - set(load.confirmed)
    assert (len(lost), len(split), len(unexpected)) == (0, 0, 0)
    assert len(load.confirmed) >= 600


def await_flow(load, more):
    """Until so many more were taken."""
    before, until = sum(load.taken.values()), time.monotonic() + 60
    while sum(load.taken.values()) < before + more:
        assert time.monotonic() < until, "nothing flows"
        assert not load.faults, load.faults
        threading.Event().wait(0.05)


def test_a_cut_is_noticed_by_both_sides_within_the_heartbeat(lab, cluster):
    """F-J2, over a real link that is set down: no frame says good-bye."""
    import hms

    lab.isolate(3)
    until = time.monotonic() + 20 * HEARTBEAT_S
    with (
        hms.connect(cluster.nodes[0].address) as conn,
        hms.connect(cluster.nodes[2].address) as alone,
    ):
        while members(conn) != [True, False] or members(alone) != [False, False]:
            assert time.monotonic() < until
            threading.Event().wait(0.05)


def members(conn):
    """Which of the others a node hears."""
    return [one["is_up"] for one in conn.administer("cluster.status")["members"]]
