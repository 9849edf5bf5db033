"""A node stands still (SIGSTOP) under load and goes on, in each role it can have (C03): what it
held, offered or took meanwhile comes once, and nothing that it says of before counts.
"""

import random
import threading
from pathlib import Path

import pytest
from global_queue_rig import CONFIG, IS_FULL, Load, await_up

from hms.testing import node
from tests.support.waiting import wait_until

PAUSES_S = (1, 3, 10, 20, 30) if IS_FULL else (0.5, 3)
"""HMSHEARTBEAT is 2 s: after the first one nobody has noticed, after the others it was failed."""
ROLES = {"source": (0,), "source and target": (1,), "target": (2,), "two of three": (0, 2)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes for all roles; a load ends when nothing is left at any of them."""
    with node(store=tmp_path_factory.mktemp("c") / "store", config=CONFIG, nodes=3) as booted:
        yield booted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
def test_a_node_that_stands_still_under_load_loses_and_doubles_nothing(
    role, cluster, record_property
):
    """C03: the others go on without it, and it must not serve what they have taken."""
    await_up(cluster)
    load = Load(rate_per_s=50)
    for number in range(4):
        load.produce(cluster.nodes[number % 2].address, f"{role}{number}")
    for one in cluster.nodes[1:]:
        load.consume(one.address)
        load.consume(one.address, "transacted")
    for pause_s in random.sample(PAUSES_S, len(PAUSES_S)):
        load.await_flow(50)
        stand_still([cluster.nodes[number] for number in ROLES[role]], pause_s)
        await_up(cluster)
    load.finish(cluster)
    verdict = load.verdict()
    record_property("figures", {"stood still": role} | verdict._asdict())

    assert (verdict.lost, verdict.unexpected, verdict.doubled) == (0, 0, 0)


def stand_still(nodes, pause_s):
    """All at one instant; they are paused whatever happens to this test."""
    for one in nodes:
        one.pause()
    try:
        wait_until(lambda: all(state(one) == "T" for one in nodes))
        threading.Event().wait(pause_s)
    finally:
        for one in nodes:
            one.resume()


def state(one):
    """How the system sees its process."""
    return Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0]
