"""All nodes lose their power at one instant (C04): kill -9 takes what the logs have not synced with
it, on three nodes with moves under way; nothing confirmed is lost, nothing comes twice.
"""

import os
import sys
from pathlib import Path

import pytest
from global_queue_rig import CONFIG, CONNECT, IS_FULL, QUEUE, Load, await_up, left

import hms
from hms.testing import node

ROUNDS = 20 if IS_FULL else 2
POWERLESS = [sys.executable, str(Path(__file__).with_name("lossy_node.py"))]


def kill_all(cluster):
    """At one instant, as far as one thread can."""
    for one in cluster.nodes:
        os.kill(one.pid, 9)
    for one in cluster.nodes:
        one.wait()


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_all_nodes_lose_their_power(tmp_path, record_property):
    """C04: no other node has what one has confirmed, so its own sync has to be enough."""
    with node(
        store=tmp_path / "store", config=CONFIG, nodes=3, command_prefix=POWERLESS
    ) as cluster:
        await_up(cluster)
        load = Load(rate_per_s=50)
        for number in range(4):
            load.produce(cluster.nodes[number % 2].address, f"p{number}")
        for one in cluster.nodes[1:]:
            load.consume(one.address)
            load.consume(one.address, "transacted")
        for _ in range(ROUNDS):
            load.await_flow(100)
            kill_all(cluster)
            for one in cluster.nodes:
                one.boot(warm=True)
        await_up(cluster)
        load.finish(cluster)
    verdict = load.verdict()
    record_property("figures", {"power cuts": ROUNDS} | verdict._asdict())

    assert (verdict.lost, verdict.unexpected, verdict.doubled) == (0, 0, 0)


def test_a_disk_that_lies_about_its_syncs_loses_messages(tmp_path):
    """A test of lost caches that cannot fail would prove nothing."""
    with node(store=tmp_path / "store", config=CONFIG, nodes=2) as first:
        first.stop()
        first._prefix = ["env", f"LOSSY_LIES={tmp_path}/lies", *POWERLESS]
        first.boot(warm=True)
        (tmp_path / "lies").touch()
        with hms.connect(first.address, **CONNECT) as conn, conn.session() as session:
            session.producer(QUEUE).send_many([hms.Message(b"%d" % i) for i in range(10)])
        assert left(first) == 10
        first.kill()
        first._prefix = []
        first.boot(warm=True)
        assert left(first) == 0
