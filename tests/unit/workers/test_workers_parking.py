"""Lanes that have to wait: they wait without a worker."""

import queue
import threading
import time
from types import SimpleNamespace

import pytest

from hms.server import broker
from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind
from hms.workers.lanes import PARK, LanePool
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode
from tests.support.waiting import wait_until

WAIT_S = 60


@pytest.fixture
def pool():
    """Two workers; a lane is told to wait as long as its name is in `full`, and is in `parked` when
    it was told so."""

    class Rig:
        full, done, parked = set(), queue.Queue(), queue.Queue()

        def handle(self, key, items):
            while items:
                if key in self.full and items[0] > 0:
                    self.parked.put(key)
                    return PARK
                self.done.put((key, items.pop(0)))
            return None

    rig = Rig()
    rig.lanes = LanePool(2, rig.handle, on_fault=pytest.fail)
    yield rig
    rig.full.clear()
    assert rig.lanes.close(drain=True, timeout_s=WAIT_S)


def _done(pool, count):
    """What is done in the end; a lane may be parked after it was told to go on, as a node's is."""
    wait_until(lambda: pool.lanes.go_on() or pool.done.qsize() == count)
    return {pool.done.get() for _ in range(count)}


def test_lanes_that_wait_hold_up_no_other_and_keep_their_order(pool):
    """Two senders that waited for the log's next segment occupied both workers for five seconds,
    and the acknowledgements of all others stood behind them (P10)."""
    pool.full |= {"a", "b"}
    for key in ("a", "b"):
        pool.lanes.put_many(key, [0, 1, 2])
        assert pool.done.get(timeout=WAIT_S) == (key, 0)
    pool.lanes.put_many("c", [0, 1])
    assert [pool.done.get(timeout=WAIT_S) for _ in range(2)] == [("c", 0), ("c", 1)]
    pool.lanes.put_many("a", [3])

    pool.full.clear()
    assert _done(pool, 5) == {("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)}


def test_what_was_dropped_while_its_lane_was_told_to_wait_does_not_come_again(pool):
    """It would be held for as long as the lane waits, and nobody would know."""
    pool.full.add("a")
    lanes, handle = pool.lanes, pool.lanes._handle

    def drop(key, items):
        if key == "a" and items != [9]:
            lanes.discard("a")
            lanes.put_many("a", [9])
        return handle(key, items)

    lanes._handle = drop
    lanes.put_many("a", [1, 2])
    assert pool.parked.get(timeout=WAIT_S) == "a"
    pool.full.clear()
    lanes.put_many("b", [0])
    assert _done(pool, 2) == {("b", 0), ("a", 9)}


def test_what_is_parked_is_finished_when_the_pool_closes(pool):
    """A drain finishes all that was taken."""
    pool.full.add("a")
    pool.lanes.put_many("a", [1])
    assert pool.parked.get(timeout=WAIT_S) == "a"
    pool.full.clear()
    closer = threading.Thread(target=pool.lanes.close, args=(True, WAIT_S))
    closer.start()
    assert pool.done.get(timeout=WAIT_S) == ("a", 1)
    closer.join(WAIT_S)


def test_sends_alone_wait_for_the_log_and_not_for_ever(monkeypatch):
    """An acknowledgement makes room; a send that found none is refused in the end."""
    now = [0.0]
    monkeypatch.setattr(broker, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    node = MemoryNode()
    node.send("peer", Kind.HELLO, wire.encode(hello_of(1)))
    sent, settled = ([(Envelope(kind, 0, 1, 0), b"")] for kind in (Kind.SEND, Kind.SETTLE))
    assert not node.broker.must_wait("peer", sent)
    node.store.is_waiting_for_space = True
    assert not node.broker.must_wait("peer", settled)
    assert node.broker.must_wait("peer", sent)
    now[0] = broker.SPACE_WAIT_S + 1
    assert not node.broker.must_wait("peer", sent)
    assert node.broker.must_wait("other", sent)
    node.store.is_waiting_for_space = False
    assert not node.broker.must_wait("other", sent)
