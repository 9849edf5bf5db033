"""Ten thousand queues: what a scrape of them takes in bytes, series and holds of the lock."""

import gc
import gzip
import random
import sys
from collections import Counter

import pytest

from hms.boot.monitoring.families import SERIES_OF_A_PLACE, exposition
from hms.engine.admin.destination_figures import FIGURED_AT_ONCE, FiguresPass
from hms.engine.settings import DestinationSettings
from hms.server.broker import Broker, Identity, Surroundings
from hms.wire import structures as wire
from tests.support.engine_rig import EngineRig
from tests.support.memory import MemoryStore, Outlet
from tpmon.scheduling.monitor import Monitor

QUEUES = 10_000
WIRE_BYTES_MAX = 8_000_000
OWN = ("orders", "slow")


class Rig(EngineRig):
    """An engine with so many queues, a broker around it."""

    def __init__(self, count):
        queues = [DestinationSettings("queue", f"orders.eu.{n:05}") for n in range(count)]
        queues += [DestinationSettings("queue", name) for name in OWN]
        topics = (DestinationSettings("topic", "news"),)
        super().__init__(destinations=(*queues, *topics), memory_bytes_max=1 << 34)
        about = Identity("N1", 1, wire.Limits(10_000, 1 << 20, 64, 8192, 10.0), "test")
        store = MemoryStore()
        self.broker = Broker(self.engine, store, Monitor(), about, lambda: self.now_ms)
        self.broker.begin(Surroundings(None, Outlet()))

    def said(self, names="", limit=0):
        """What the node answers to metrics.show, and in how many slices."""
        figures = FiguresPass(self.engine.state, names, limit)
        slices = 1
        while figures.go_on():
            slices += 1
        return self.broker._metrics() | figures.answer(), slices


@pytest.fixture(scope="module")
def many():
    """Each queue has figures of its own, as no node has ten thousand that are alike."""
    rig, dice = Rig(QUEUES), random.Random(7)
    for queue in rig.engine.state.queues.values():
        counters = queue.line.counters
        for what in ("sent", "delivered", "acknowledged", "redelivered", "expired", "removed"):
            setattr(counters, what, dice.randrange(10**9))
        queue.line.size_bytes = dice.randrange(10**9)
        queue.line.delivered_ms = 1_700_000_000_000 + dice.randrange(10**9)
    return rig


def of_places(rig, series_max):
    said, slices = rig.said("*", QUEUES + 10)
    return exposition(said, series_max=series_max, is_of_places=True), slices


def test_all_of_ten_thousand_queues_take_eight_megabytes_on_the_wire(many):
    """Compressed, as Prometheus asks for it; nothing of them is left out."""
    text, _ = of_places(many, (QUEUES + 10) * SERIES_OF_A_PLACE)
    lines = text.splitlines()
    assert 'hms_metrics_truncated{node="N1"} 0' in lines
    families = Counter(line.partition("{")[0] for line in lines if 'destination="orders.eu' in line)
    assert len(families) == SERIES_OF_A_PLACE
    assert set(families.values()) == {QUEUES}
    assert len(gzip.compress(text.encode(), compresslevel=1)) < WIRE_BYTES_MAX


def test_they_are_looked_at_in_slices(many):
    """Between two of them clients have the lock."""
    _, slices = of_places(many, 10)
    assert slices == -(-(QUEUES + 10) // FIGURED_AT_ONCE)


def test_by_default_there_are_so_many_series_and_it_is_told_that_more_are_missing(many):
    """Whoever asks for all of a node that has grown gets no surprise."""
    text, _ = of_places(many, 20_000)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 20_000
    assert lines[-1] == 'hms_metrics_truncated{node="N1"} 1'


def test_the_sums_take_the_same_of_ten_queues_and_of_ten_thousand(many):
    """In calls, under one hold of the lock, and in series."""

    def asked(rig):
        calls = 0

        def see(_frame, event, _argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        rig.said()
        gc.disable()  # a collection calls those who asked to be told of it
        sys.setprofile(see)
        try:
            said, slices = rig.said()
        finally:
            sys.setprofile(None)
            gc.enable()
        text = exposition(said, series_max=20_000)
        return calls, slices, len(text.splitlines())

    assert asked(many) == asked(Rig(10))
