"""Destinations are changed on both sides of a cut between real nodes (C11): all end alike, a delete
is not undone, and what waits in a queue that was deleted elsewhere is not lost.
"""

import contextlib

import pytest
from global_queue_rig import CONNECT, WAIT_S, await_up
from netns_rig import make_lab
from partition_rig import cluster_in

import hms
from tests.support.waiting import wait_until


@pytest.fixture
def lab():
    """Three namespaces, whole again and gone after the test."""
    made = make_lab(3)
    yield made
    made.close()


def do(one, verb, **arguments):
    """An operator's command at a node."""
    with hms.connect(one.address, **CONNECT) as conn:
        return conn.administer(verb, arguments)


def limits(cluster, name):
    """What that queue may hold at each node; None where it is not."""
    found = []
    for one in cluster.nodes:
        here = {"max_messages": None}
        with contextlib.suppress(hms.DestinationNotFound):
            here = do(one, "queue.show", name=name)
        found.append(here["max_messages"])
    return found


def until(is_true):
    """Wait for what the nodes tell one another."""
    wait_until(is_true, WAIT_S)


def test_changes_on_both_sides_of_a_cut_end_alike_and_lose_no_message(lab, tmp_path):
    """C11: the later version holds, of one version that of the higher index."""
    with cluster_in(lab, tmp_path, 1.0) as cluster:
        one, _, three = cluster.nodes
        do(one, "queue.create", name="bills", max_messages=3)
        do(one, "queue.create", name="old", max_messages=3)
        until(lambda: limits(cluster, "bills") == limits(cluster, "old") == [3, 3, 3])
        lab.isolate(3)
        until(lambda: not any(m["is_up"] for m in do(three, "cluster.status")["members"]))

        do(one, "queue.alter", name="bills", max_messages=5)
        do(one, "queue.delete", name="old")
        do(three, "queue.alter", name="bills", max_messages=7)
        do(three, "queue.create", name="fresh", max_messages=9)
        with hms.connect(three.address, **CONNECT) as conn, conn.session() as session:
            session.producer(hms.Queue("old")).send(b"kept")
        lab.heal()
        await_up(cluster)

        until(lambda: limits(cluster, "bills") == [7, 7, 7])
        until(lambda: limits(cluster, "fresh") == [9, 9, 9])
        until(lambda: [w["name"] for w in do(three, "cluster.status")["not_done"]] == ["old"])
        assert limits(cluster, "old") == [None, None, 3]
        with hms.connect(three.address, **CONNECT) as conn, conn.session() as session:
            got = session.consumer(hms.Queue("old")).receive(timeout_s=WAIT_S)
        assert got.body == b"kept"
        until(lambda: limits(cluster, "old") == [None] * 3)
