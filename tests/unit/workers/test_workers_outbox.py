"""The outbox and its doorbell: order, bounds, and that no wake-up is lost."""

import select
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.workers.outbox import Doorbell, Outbox

WAIT_S = 60


@given(
    batches=st.lists(st.lists(st.integers(), max_size=6)),
    items_max=st.integers(1, 9),
)
def test_draining_keeps_the_order_and_the_bound(batches, items_max):
    """Frames to a peer must not overtake each other, and a turn must stay bounded."""
    outbox = Outbox(lambda: None)
    for batch in batches:
        outbox.put_many(batch)

    drained = []
    while part := outbox.drain(items_max):
        assert len(part) <= items_max
        drained += part

    assert drained == [item for batch in batches for item in batch]


def test_a_resting_consumer_is_woken_once():
    """A wake-up costs as much as ten messages."""
    rings = []
    outbox = Outbox(lambda: rings.append(1))
    assert outbox.rest()

    outbox.put_many([1])
    outbox.put_many([2])

    assert rings == [1]
    assert outbox.drain(10) == [1, 2]


def test_a_consumer_that_is_awake_is_not_woken():
    """It looks into the outbox before it sleeps anyway."""
    rings = []
    outbox = Outbox(lambda: rings.append(1))
    outbox.put_many([1])
    assert not outbox.rest()

    outbox.put_many([2])
    assert outbox.drain(10) == [1, 2]
    assert outbox.rest()
    outbox.rouse()
    outbox.put_many([3])

    assert rings == []


def test_an_empty_batch_wakes_nobody():
    """Workers hand over what a batch produced, often nothing."""
    outbox = Outbox(pytest.fail)
    assert outbox.rest()
    outbox.put_many([])


def test_draining_a_batch_in_parts_leaves_the_producers_list_alone():
    """Fan-out puts the same list into several places."""
    outbox, items = Outbox(lambda: None), [1, 2, 3]
    outbox.put_many(items)
    assert outbox.drain(2) == [1, 2]
    assert outbox.drain(2) == [3]
    assert items == [1, 2, 3]


def test_no_wake_up_is_lost_between_producers_and_a_sleeping_consumer():
    """A lost one would leave a confirmation in the outbox until the next heartbeat."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    doorbell = Doorbell()
    outbox = Outbox(doorbell.ring)
    each, producers = 3_000, 3

    def produce(producer):
        for number in range(each):
            outbox.put_many([(producer, number)])

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(producers)]
    try:
        for thread in threads:
            thread.start()
        got = consume(outbox, doorbell, each * producers)
    finally:
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join(WAIT_S)
    for producer in range(producers):
        assert [n for p, n in got if p == producer] == list(range(each))


def consume(outbox, doorbell, count):
    """As the gateway does it: rest, sleep until the bell, wake, drain."""
    got = []
    while len(got) < count:
        if outbox.rest():
            rung, _, _ = select.select([doorbell], [], [], WAIT_S)
            assert rung, f"a wake-up is lost after {len(got)} items"
            doorbell.silence()
        outbox.rouse()
        got += outbox.drain(50)
    return got


def test_a_doorbell_counts_any_number_of_rings_as_one():
    """Only that something came matters."""
    doorbell = Doorbell()
    doorbell.silence()
    doorbell.ring()
    doorbell.ring()
    assert select.select([doorbell], [], [], 0)[0]

    doorbell.silence()

    assert not select.select([doorbell], [], [], 0)[0]
