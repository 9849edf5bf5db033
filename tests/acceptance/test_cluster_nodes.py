"""Three real nodes with a global queue: shared, killed, paused, drained, looked at."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from global_queue_rig import CONFIG, CONNECT, IS_FULL, QUEUE, Load, await_up, hms_command, left

import hms
from hms.testing import node
from tests.support.waiting import wait_until

ROUNDS = int(os.environ.get("HMS_CLUSTER_KILLS", "10" if IS_FULL else "1"))


@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    """Three nodes for all tests."""
    with node(store=tmp_path_factory.mktemp("c") / "store", config=CONFIG, nodes=3) as first:
        yield first


@pytest.fixture
def cluster(booted):
    """They hear one another and have nothing."""
    await_up(booted)
    yield booted
    load = Load()
    load.consume(booted.nodes[1].address)
    load.finish(booted)


def send(one, count):
    """Confirmed messages at a node."""
    with hms.connect(one.address, **CONNECT) as conn, conn.session() as session:
        session.producer(QUEUE).send_many([hms.Message(b"%d" % i) for i in range(count)])


def test_a_consumer_gets_what_was_sent_to_other_nodes(cluster):
    """F-J1: whoever is connected where, it is one queue."""
    send(cluster.nodes[0], 100)
    send(cluster.nodes[2], 100)
    with hms.connect(cluster.nodes[1].address) as conn, conn.session() as session:
        consumer = session.consumer(QUEUE)
        got = [consumer.receive(timeout_s=60) for _ in range(200)]

    assert sorted(m.body for m in got) == sorted([b"%d" % i for i in range(100)] * 2)
    assert len({m.message_id for m in got}) == 200
    assert {m.message_id[:2] for m in got} == {"01", "03"}


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_each_node_is_killed_in_turn(cluster, record_property):
    """C04, C05: kill -9 under load on each side of the moves."""
    load = Load()
    load.produce(cluster.nodes[0].address, "a")
    load.produce(cluster.nodes[1].address, "b")
    load.consume(cluster.nodes[1].address)
    load.consume(cluster.nodes[2].address)
    for _ in range(ROUNDS):
        for one in cluster.nodes:
            load.await_sends(200)
            one.kill()
            one.boot(warm=True)
    load.finish(cluster)

    verdict = load.verdict()
    record_property("figures", {"kills in turn": 3 * ROUNDS} | verdict._asdict())

    assert (verdict.lost, verdict.unexpected, verdict.doubled) == (0, 0, 0)


def test_a_paused_node_is_failed_and_takes_part_again_when_it_goes_on(cluster):
    """C03: what it had under way is neither lost nor served twice."""
    send(cluster.nodes[0], 500)
    load = Load()
    load.consume(cluster.nodes[1].address)
    cluster.nodes[2].pause()
    await_silence(cluster, "node3")
    cluster.nodes[2].resume()
    await_up(cluster)
    load.finish(cluster)

    sent = {b"%d" % i for i in range(500)}
    assert load.taken.keys() | load.doubtful == sent
    assert not [body for body, n in load.taken.items() if n > 1 and body not in load.doubtful]


def await_silence(cluster, name):
    """Until the first node has failed that one."""
    with hms.connect(cluster.address) as conn:

        def is_up():
            members = conn.administer("cluster.status")["members"]
            return next(one for one in members if one["node"] == name)["is_up"]

        wait_until(lambda: not is_up(), 60)


def test_a_node_is_drained_from_the_command_line_and_its_status_shown(cluster):
    """Maintenance must not need a program."""
    send(cluster.nodes[0], 300)
    config = ["--config", str(cluster.config_file)]

    drained = hms_command("cluster", "drain", "node1", *config, "--json")
    status = hms_command("cluster", "status", *config, "--json")
    table = hms_command("cluster", "status", *config)

    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout) == {"is_drained": True, "left": 0}
    wait_until(lambda: left(cluster.nodes[1]) + left(cluster.nodes[2]) == 300)
    assert json.loads(status.stdout)["is_drained"] is True
    assert "node2" in table.stdout
    again = hms_command("cluster", "drain", "node1", "--off", *config)
    assert again.returncode == 0


def test_the_links_of_a_node_are_metrics(cluster):
    """A peer that is gone is seen where all other figures are."""
    config = ["--config", str(cluster.config_file)]

    def metrics():
        return hms_command("metrics", *config).stdout

    for peer in ("node2", "node3"):
        wait_until(lambda peer=peer: f'hms_link_up{{node="node1",peer="{peer}"}} 1' in metrics())
    found = metrics()
    assert 'hms_link_bytes_total{node="node1",peer="node2",direction="in"}' in found
    assert 'hms_link_lag_seconds{node="node1",peer="node2"}' in found
    board = (Path(__file__).parents[2] / "packaging" / "grafana" / "hms-nodes.json").read_text()
    told = set(re.findall(r"^hms_link_\w+", found, re.MULTILINE))
    assert set(re.findall(r"hms_link_\w+", board)) <= told
    assert 'hms_link_unconfirmed{node="node1",peer="node3"}' in found
    assert 'hms_link_moves_total{node="node1",peer="node3",direction="out"}' in found
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=found, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_node_alone_says_that_it_is_in_no_cluster(hms_node):
    """An answer that looks like an empty cluster would be wrong."""
    with hms.connect(hms_node.address) as conn, pytest.raises(hms.HmsError, match="no cluster"):
        conn.administer("cluster.status")
