"""The partition suite (C01, C02): nodes in network namespaces, their links cut under load in four
shapes, all at once, in one direction, each second; several ways to consume, with a time to live and
dead letters; lost 0, split 0, unexpected 0, no retry. HMS_PARTITION=full is the size of the
RabbitMQ project's suite.
"""

import random
import threading
import time

import pytest
from global_queue_rig import IS_FULL, Load
from netns_rig import make_lab
from partition_rig import NODES, SETUPS, cluster_in, run

import hms


@pytest.fixture
def lab():
    """Namespaces, whole again and gone after the test."""
    made = make_lab(NODES)
    yield made
    made.close()


@pytest.mark.timeout(600 if IS_FULL else 120)
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_cut_under_load_loses_and_splits_nothing(setup, lab, tmp_path, record_property):
    """Whatever is under way when a link is cut is at one of its ends, and comes once."""
    seed = random.randrange(1 << 32)
    with cluster_in(lab, tmp_path, setup.heartbeat_s) as cluster:
        verdict, figures = run(lab, cluster, setup, seed)
    record_property("figures", {"set-up": str(setup), "seed": seed} | figures)

    assert verdict.faults == (0, 0, 0, 0), (seed, verdict)
    assert verdict.doubtful == 0
    assert figures["moved"] > 0
    assert bool(figures["dead"]) is setup.has_dead_letters
    assert setup.has_dead_letters or not figures["expired"]


def test_a_cut_is_noticed_by_both_sides_within_the_heartbeat(lab, tmp_path):
    """F-J2, over a real link that is set down: no frame says good-bye."""
    with cluster_in(lab, tmp_path, 1.0) as cluster:
        lab.isolate(NODES)
        until = time.monotonic() + 60
        with (
            hms.connect(cluster.nodes[0].address) as conn,
            hms.connect(cluster.nodes[-1].address) as alone,
        ):
            while up(conn) != NODES - 2 or up(alone) != 0:
                assert time.monotonic() < until
                threading.Event().wait(0.05)


def up(conn):
    """How many of the others a node hears."""
    return sum(one["is_up"] for one in conn.administer("cluster.status")["members"])


def test_the_books_tell_what_is_wrong():
    """A checker that never failed is not trusted."""
    load = Load()
    load.confirmed = [b"taken", b"lost", b"twice", b"dead and taken"]
    load.taken.update([b"taken", b"twice", b"twice", b"dead and taken", b"never sent"])
    for _ in "two consumers":
        load._see(b"taken")

    verdict = load.verdict(dead=[b"dead and taken"])

    assert verdict.faults == (1, 1, 2, 1)
