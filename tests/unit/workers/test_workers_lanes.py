"""Lanes: each in order, all in parallel, none beyond its limit."""

import threading
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_rig import WAIT_S, Gate, Recorder, gate, hasty_threads, pools, recorder

from hms.workers.lanes import AGAIN, LanePool
from hms.workers.load import PoolLoad
from tests.support.waiting import wait_until

__all__ = ["gate", "hasty_threads", "pools", "recorder"]  # the fixtures


@settings(max_examples=30, deadline=None)
@given(
    puts=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=60),
    workers=st.integers(1, 4),
    batch_max=st.integers(1, 8),
)
def test_each_lane_gets_its_items_in_order_whatever_the_pool_looks_like(puts, workers, batch_max):
    """A connection's commands are applied in the order in which they were sent (P4)."""
    recorder, expected, number = Recorder(), defaultdict(list), 0
    pool = LanePool(workers, recorder.handle, on_fault=recorder.faults.append, batch_max=batch_max)
    for key, size in puts:
        items = list(range(number, number + size))
        number += size
        expected[key] += items
        assert pool.put_many(key, items)

    assert pool.close(drain=True, timeout_s=WAIT_S)

    assert not recorder.faults
    assert {key: items for key, items in expected.items() if items} == recorder.by_lane
    assert all(len(items) <= batch_max for _, items in iter_queue(recorder.batches))


def iter_queue(waiting):
    while not waiting.empty():
        yield waiting.get_nowait()


def test_order_holds_while_producers_and_workers_race(hasty_threads):
    """Each producer owns lanes, as the gateway does; nothing may be lost, doubled or swapped."""
    recorder = Recorder()
    pool = LanePool(3, recorder.handle, on_fault=recorder.faults.append, batch_max=7)

    def produce(producer):
        for number in range(2_000):
            key = (producer, number % 3)
            while not pool.put_many(key, [number]):
                pass

    producers = [threading.Thread(target=produce, args=(n,)) for n in range(3)]
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join(WAIT_S)
    assert pool.close(drain=True, timeout_s=WAIT_S)

    assert not recorder.faults
    assert recorder.by_lane == {
        (producer, rest): list(range(rest, 2_000, 3)) for producer in range(3) for rest in range(3)
    }


def test_no_wake_up_is_lost_when_workers_fall_asleep(pools, recorder, hasty_threads):
    """An item put just as the last worker lies down would otherwise wait for the next one."""
    pool = pools(2, recorder.handle)
    for number in range(3_000):
        assert pool.put_many(number % 2, [number])
        assert recorder.batches.get(timeout=WAIT_S) == (number % 2, [number])


def test_different_lanes_run_in_parallel(pools):
    """One slow connection must not hold up another while a worker is free."""
    meeting = threading.Barrier(2)
    pool = pools(2, lambda _key, _items: meeting.wait(WAIT_S))
    pool.put_many("a", [1])
    pool.put_many("b", [1])

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert not meeting.broken


def test_a_busy_lane_goes_behind_the_others_after_each_batch(pools, gate):
    """A peer that floods its lane costs itself, never the others (P8)."""
    pool = pools(1, gate.handle, batch_max=2)
    pool.put_many("busy", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("busy", [2, 3, 4, 5])
    pool.put_many("calm", ["x"])
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert gate.seen == [("busy", [1]), ("calm", ["x"]), ("busy", [2, 3]), ("busy", [4, 5])]


def test_a_put_that_would_overfill_a_lane_adds_nothing(pools, gate):
    """Half a batch taken would tear the order; the sender has broken its window and is told."""
    pool = pools(1, gate.handle, lane_max=3)
    pool.put_many("a", [0])
    assert gate.is_reached.wait(WAIT_S)
    assert pool.put_many("a", [1, 2])

    assert not pool.put_many("a", [3, 4])
    assert pool.put_many("b", [1, 2, 3])
    assert pool.put_many("a", [3])
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert [items for key, items in gate.seen if key == "a"] == [[0], [1, 2, 3]]


def test_discard_drops_what_waits_and_the_lane_stays_single(pools, gate):
    """Commands of a lost connection are dropped; a new one under the same key waits its turn."""
    pool = pools(2, gate.handle)
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("a", [2])
    pool.discard("a")
    pool.discard("unknown")
    pool.put_many("a", [3])
    assert gate.seen == [("a", [1])]
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert gate.seen == [("a", [1]), ("a", [3])]


def test_a_discarded_lane_that_was_ready_is_skipped(pools, gate):
    """An empty batch would make every handler check for it."""
    pool = pools(1, gate.handle)
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("b", [1])
    pool.discard("b")
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert gate.seen == [("a", [1])]


def test_an_empty_put_wakes_nobody(pools, recorder):
    """It would only cost a wake-up and an empty batch."""
    pool = pools(1, recorder.handle)
    assert pool.put_many("a", [])
    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert recorder.batches.empty()


def test_workers_bear_the_pools_name_and_a_number(pools, recorder):
    """An operator reads them in a thread dump."""
    pools(2, recorder.handle, name="hms-general")
    names = {thread.name for thread in threading.enumerate()}
    assert {"hms-general-1", "hms-general-2"} <= names


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"batch_max": 0}, {"lane_max": 0}])
def test_a_pool_that_could_never_work_is_refused(wrong, recorder):
    """Items would wait for ever."""
    options = {"workers": 1, "handle": recorder.handle, "on_fault": pytest.fail, **wrong}
    with pytest.raises(ValueError, match="at least"):
        LanePool(**options)


def test_a_pool_is_quiet_while_nothing_waits_for_a_worker(pools, gate):
    """Then a worker that has something in hand may take its time."""
    pool = pools(1, gate.handle)
    assert pool.is_quiet()
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    assert pool.is_quiet()

    pool.put_many("a", [2])
    assert not pool.is_quiet()
    gate.is_open.set()


def test_a_lane_with_more_to_do_goes_behind_the_others(pools):
    """Two connections with a long batch each occupied both workers until these were done."""
    order, is_begun, may_go = [], threading.Event(), threading.Event()

    def handle(key, items):
        is_begun.set()
        assert may_go.wait(WAIT_S)
        order.append((key, items.pop(0)))
        return AGAIN if items else None

    lanes = pools(1, handle)
    lanes.put_many("a", [1, 2, 3])
    assert is_begun.wait(WAIT_S)
    lanes.put_many("b", [1])
    lanes.put_many("a", [4])
    may_go.set()
    assert lanes.close(drain=True, timeout_s=WAIT_S)

    assert order == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_what_was_dropped_in_its_turn_does_not_come_again(pools):
    """A closed peer has nothing more to say."""
    done = []

    def handle(key, items):
        done.append(items.pop(0))
        if done == [1]:
            lanes.discard(key)
        return AGAIN

    lanes = pools(1, handle)
    lanes.put_many("a", [1, 2, 3])
    assert lanes.close(drain=True, timeout_s=WAIT_S)

    assert done == [1]


def test_what_is_late_stands_behind_others_and_has_its_turn_all_the_same(pools, gate):
    """4,000 clients that were lost at once stood before all others: these waited for 2.5 s."""
    pool = pools(1, gate.handle)
    pool.put_many("first", [0])
    assert gate.is_reached.wait(WAIT_S)
    for number in range(4):
        assert pool.put_late(f"late {number}", [number])
    for number in range(20):
        assert pool.put_many(f"early {number}", [number])
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    kinds = [key.split()[0] for key, _ in gate.seen[1:]]
    assert kinds[:7] == ["early"] * 7  # the first one counts too
    assert [at for at, kind in enumerate(kinds) if kind == "late"] == [7, 16, 22, 23]
    late = [key for key, _ in gate.seen if key.startswith("late")]
    assert late == [f"late {n}" for n in range(4)]


def test_what_is_late_goes_behind_what_waits_in_its_own_lane(pools, gate):
    """A client's loss comes after all that it has sent, as soon as that."""
    pool = pools(1, gate.handle, batch_max=1)
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("a", [2])
    pool.put_late("a", ["lost"])
    pool.put_late("b", ["lost"])
    pool.put_late("b", ["again"])
    gate.is_open.set()

    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert gate.seen == [("a", [1]), ("a", [2]), ("a", ["lost"]), ("b", ["lost"]), ("b", ["again"])]


def test_items_are_handled_where_they_are_when_no_lane_has_anything_to_do(pools):
    """Two hand-overs less; whoever comes first must not be overtaken by that."""
    gate, here = Gate(), []
    pool = pools(1, gate.handle)

    assert pool.run_here(
        "a", [1], lambda _, items: here.append((items.pop(), threading.get_ident()))
    )
    assert here == [(1, threading.get_ident())]

    assert pool.put_many("b", [2])
    assert gate.is_reached.wait(WAIT_S)
    for key in ("a", "b"):
        assert not pool.run_here(key, [3], pytest.fail)
    gate.is_open.set()


def test_what_is_left_of_items_handled_elsewhere_comes_before_what_was_put_meanwhile(
    pools, recorder
):
    """The rest of a slice is the connection's oldest command (P4)."""
    pool = pools(2, recorder.handle)

    def handle(key, items):
        assert pool.put_many(key, [3, 4])
        del items[0]

    assert pool.run_here("a", [1, 2], handle)
    while recorder.by_lane["a"] != [2, 3, 4]:
        recorder.batches.get(timeout=WAIT_S)


def test_a_fault_of_items_handled_elsewhere_is_reported_and_the_lane_lives(pools, recorder):
    """As one of a worker's: the node stops by it, in the way it does for those."""
    faults = []
    pool = pools(1, recorder.handle, on_fault=faults.append)

    def handle(key, _items):
        assert pool.put_many(key, [2])
        raise ValueError("planted")

    assert pool.run_here("a", [1], handle)
    assert recorder.batches.get(timeout=WAIT_S) == ("a", [2])
    assert [str(fault) for fault in faults] == ["planted"]


def test_a_pool_that_closes_has_nothing_handled_elsewhere(pools, recorder):
    """What comes after its end is refused, as put_many() does."""
    pool = pools(1, recorder.handle)
    assert pool.close(drain=True, timeout_s=WAIT_S)
    assert not pool.run_here("a", [1], pytest.fail)


def test_the_load_of_a_pool_is_what_waits_and_who_does_not_sleep(pools, gate):
    """An operator sees whether workers or one busy client hold the others up."""
    pool = pools(2, gate.handle)
    wait_until(lambda: pool.load().busy == 0)
    assert pool.load() == PoolLoad(workers=2, busy=0, waiting=0, deepest=0)
    pool.put_many("a", [1])
    assert gate.is_reached.wait(WAIT_S)
    pool.put_many("a", [2, 3, 4])
    wait_until(lambda: pool.load().busy == 1)
    assert pool.load() == PoolLoad(workers=2, busy=1, waiting=3, deepest=3)
    gate.is_open.set()
    wait_until(lambda: pool.load() == PoolLoad(workers=2, busy=0, waiting=0, deepest=0))
