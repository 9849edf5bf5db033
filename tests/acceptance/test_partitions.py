"""The partition suite (C01, C02): nodes in network namespaces, their links cut under load in four
shapes, all at once, in one direction, each second; several ways to consume, with a time to live and
dead letters; lost 0, split 0, unexpected 0, no retry. HMS_PARTITION=full is the size of the
RabbitMQ project's suite.
"""

import random
from contextlib import ExitStack, closing

import pytest
from global_queue_rig import Load, await_up
from netns_rig import make_lab
from partition_rig import NODES, SETUPS, Setup, cluster_in, run

import hms
from tests.support.waiting import wait_until


class Place:
    """A laboratory, and in it a cluster for one set-up after the other."""

    def __init__(self, folders):
        self.lab, self._folders = make_lab(NODES), folders
        self._cluster, self._heartbeat_s, self._open = None, None, ExitStack()

    def whole(self, heartbeat_s):
        """A cluster of that heartbeat time, whatever was cut before."""
        self.lab.heal()
        if heartbeat_s != self._heartbeat_s:
            self._open.close()
            made = cluster_in(self.lab, self._folders.mktemp("place"), heartbeat_s)
            self._cluster, self._heartbeat_s = self._open.enter_context(made), heartbeat_s
        await_up(self._cluster)
        return self._cluster

    def close(self):
        self._open.close()
        self.lab.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """For all tests of the module: a boot of three nodes takes longer than what a set-up shows."""
    with closing(Place(tmp_path_factory)) as made:
        yield made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_cut_under_load_loses_and_splits_nothing(setup, place, record_property):
    """Whatever is under way when a link is cut is at one of its ends, and comes once."""
    seed = random.randrange(1 << 32)
    cluster = place.whole(setup.heartbeat_s)
    verdict, figures = run(place.lab, cluster, setup, seed)
    record_property("figures", {"set-up": str(setup), "seed": seed} | figures)

    assert verdict.faults == (0, 0, 0, 0), (seed, verdict)
    assert verdict.doubtful == 0
    assert figures["moved"] > 0
    assert bool(figures["dead"]) is setup.has_dead_letters
    assert setup.has_dead_letters or not figures["expired"]


def test_a_cut_is_noticed_by_both_sides_within_the_heartbeat(place):
    """F-J2, over a real link that is set down: no frame says good-bye."""
    cluster = place.whole(Setup.heartbeat_s)
    place.lab.isolate(NODES)
    with (
        hms.connect(cluster.nodes[0].address) as conn,
        hms.connect(cluster.nodes[-1].address) as alone,
    ):
        wait_until(lambda: up(conn) == NODES - 2 and up(alone) == 0, 60)


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
