"""A global topic on three nodes in a ring whose links are cut and healed, while durable subscribers
stay at each node and one moves from node to node (C06): once per subscription, in order, no loop.
"""

import random
import threading
import time

import pytest
from global_queue_rig import IS_FULL, await_up
from netns_rig import make_lab
from partition_rig import cluster_in, moved
from wandering_rig import News

CONFIG = {"hms": {"topic": {"news": {"GLOBAL": "Y"}}}}
CUT_S, LOAD_S, HEARTBEAT_S = (10, 180, 5) if IS_FULL else (1.5, 0, 1)
CUTS = (
    lambda lab, dice: lab.part(*dice.sample(lab.indexes, 2)),
    lambda lab, dice: lab.isolate(dice.choice(lab.indexes)),
    lambda lab, dice: lab.ring(dice.sample(lab.indexes, 3)),
)
"""One link of the ring; one node; each hears the next one only."""


@pytest.fixture
def lab():
    """Three namespaces, whole again and gone after the test."""
    made = make_lab(3)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_each_durable_subscriber_gets_all_once_while_links_are_cut_and_one_moves(
    lab, tmp_path, record_property
):
    """C06: what is published at one end of a cut is at the other end after it, nowhere twice."""
    dice = random.Random(seed := random.randrange(1 << 32))
    with cluster_in(lab, tmp_path, HEARTBEAT_S, CONFIG) as cluster:
        news = News(cluster)
        news.meet()
        before = moved(cluster)
        news.start()
        cuts = cut_and_heal(lab, news, dice)
        await_up(cluster)
        news.await_moves(2)
        news.finish()
        relayed = moved(cluster) - before
    count = sum(news.published.values())
    figures = {"published": count, "relayed": relayed, "stations": len(news.stations)}
    record_property("figures", {"global topic, cuts": cuts, "seed": seed} | figures)

    everything = {name: list(range(n)) for name, n in news.published.items()}
    assert [station.numbers() for station in news.fixed] == [everything] * 3
    assert relayed == 2 * count
    check_stations(news.stations, everything)


def cut_and_heal(lab, news, dice):
    """Each shape in turn, the subscriber moves before each cut; how many there were."""
    until, cuts = time.monotonic() + LOAD_S, 0
    while cuts < len(CUTS) or time.monotonic() < until:
        news.await_moves(1)
        CUTS[cuts % len(CUTS)](lab, dice)
        cuts += 1
        threading.Event().wait(CUT_S)
        lab.heal()
    return cuts


def check_stations(stations, everything):
    """At each place in order and without a gap; all places together have everything."""
    for name, numbers in everything.items():
        found = [station.numbers().get(name, []) for station in stations]
        for part in found:
            assert part == list(range(part[0], part[0] + len(part))) if part else True
        assert sorted({number for part in found for number in part}) == numbers
