"""Latencies: what a look takes from the message that each place times."""

import sys

import pytest

from hms.boot.monitoring.latencies import BOUNDS_S, LOST_MS
from hms.engine.engine import Return
from tests.support.watch_rig import WatchedRig


@pytest.fixture
def rig():
    made = WatchedRig([("night", "news")])
    made.consume(100, credit=1)
    made.look()
    return made


def found(rig):
    """By metric of what is durable: how many were timed, and how long they took in all."""
    said = rig.watched.latencies.figures()
    assert set(said) == {"delivery_latency", "ack_latency"}
    return {
        name: (sum(times["counts"]), times["sum"])
        for name, both in said.items()
        for word, times in both
        if word == "true"
    }


def settle(rig, how=None, handle=100):
    """What a consumer has: acknowledged, or given back."""
    consumer = rig.engine.state.connections[1].consumers[handle]
    messages = list(consumer.out.values())
    if how is None:
        rig.acknowledge(handle, messages)
    else:
        spans = [(m.id, m.id) for m in messages]
        rig.run(lambda fx: rig.engine.give_back(1, handle, 0, spans, how, rig.now_ms, fx))


def credit(rig, count=1, handle=100):
    rig.run(lambda fx: rig.engine.credit(1, handle, 0, count, rig.now_ms, fx))


def test_a_message_is_timed_from_its_send_to_its_delivery_and_its_acknowledgement(rig):
    """The second one waits until the first is settled, and until there is credit for it."""
    rig.send()
    rig.now_ms += 250
    settle(rig)
    rig.look(1)
    assert found(rig) == {"delivery_latency": (1, 0.0), "ack_latency": (1, 0.25)}
    rig.send()
    rig.now_ms += 4000
    credit(rig)
    rig.now_ms += 2
    settle(rig)
    rig.look(1)
    assert found(rig) == {"delivery_latency": (2, 4.0), "ack_latency": (2, 0.252)}


def test_one_message_of_a_place_is_timed_a_look(rig):
    """A thousand cost as much as one."""
    credit(rig, 100)
    for _ in range(50):
        rig.send()
        settle(rig)
    rig.look(3)
    assert found(rig) == {"delivery_latency": (1, 0.0), "ack_latency": (1, 0.0)}


def test_what_comes_again_is_not_timed_as_if_it_had_waited(rig):
    """Only what was not out before; and what is given back is not acknowledged."""
    rig.send()
    rig.now_ms += 900
    settle(rig, Return.FAILED)
    rig.look(1)
    credit(rig)
    rig.now_ms += 100
    settle(rig)
    rig.look(1)
    assert found(rig) == {"delivery_latency": (1, 0.0), "ack_latency": (0, 0.0)}
    credit(rig)
    rig.send()
    rig.now_ms += 7
    settle(rig)
    rig.look(1)
    assert found(rig) == {"delivery_latency": (2, 0.0), "ack_latency": (1, 0.007)}


def test_a_message_that_came_back_is_missed_beside_others_that_are_out(rig):
    """It is never acknowledged under this delivery, and kept its place from timing others."""
    rig.consume(101, credit=1)
    rig.send(count=2)
    sample = rig.engine.state.queues["orders"].line.sample
    consumers = rig.engine.state.connections[1].consumers
    (timed,) = [n for n in (100, 101) if sample.message_id in consumers[n].out]
    assert consumers[201 - timed].out
    settle(rig, Return.FAILED, timed)
    rig.look(LOST_MS // 1000 - 1)
    assert sample.message_id
    rig.look(3)
    assert not sample.message_id
    credit(rig, 1, timed)
    settle(rig, None, timed)
    credit(rig, 1, timed)
    rig.send()
    rig.now_ms += 5
    settle(rig, None, timed)
    rig.look(1)
    assert found(rig) == {"delivery_latency": (2, 0.0), "ack_latency": (1, 0.005)}


def test_a_message_is_found_among_those_that_are_settled_with_it(rig):
    """Others are not taken for it, though their ids stand around its own."""
    rig.consume(101, credit=2)
    credit(rig, 1)
    for _ in range(3):
        rig.send()
    sample = rig.engine.state.queues["orders"].line.sample
    consumers = rig.engine.state.connections[1].consumers
    (timed,) = [n for n in (100, 101) if sample.message_id in consumers[n].out]
    other = 201 - timed
    rig.now_ms += 30
    rig.acknowledge(other, list(consumers[other].out.values()))
    assert sample.held_ms is None
    rig.acknowledge(timed, list(consumers[timed].out.values()))
    assert sample.held_ms == 30


def test_a_commit_settles_what_is_timed(rig):
    """Acknowledged it is when the transaction is."""
    rig.run(lambda fx: rig.engine.close_consumer(1, 100, rig.now_ms, fx))
    rig.look(3)
    rig.consume(200, session=2, credit=5)
    rig.look(2)
    rig.send()
    consumer = rig.engine.state.connections[1].consumers[200]
    rig.acknowledge(200, list(consumer.out.values()))
    rig.now_ms += 40
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    rig.look(1)
    assert found(rig) == {"delivery_latency": (1, 0.0), "ack_latency": (1, 0.04)}


def test_a_place_that_nobody_receives_from_times_nothing(rig):
    """It has nothing more in memory for it, either."""
    rig.run(lambda fx: rig.engine.close_consumer(1, 100, rig.now_ms, fx))
    rig.send()
    rig.look(3)
    assert rig.engine.state.queues["orders"].line.sample is None
    assert found(rig) == {"delivery_latency": (0, 0.0), "ack_latency": (0, 0.0)}


def test_a_message_has_no_call_more_while_its_place_is_timed(rig):
    """Only the one that is timed has: one of each look."""

    def calls():
        count = 0

        def see(_frame, event, _argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(see)
        try:
            rig.send()
            settle(rig)
        finally:
            sys.setprofile(None)
        credit(rig)
        return count

    line = rig.engine.state.queues["orders"].line
    calls()
    timed = calls()
    assert not line.sample.is_armed
    line.sample = None
    assert calls() == timed


def test_bounds_are_of_milliseconds_to_hours():
    """What waits overnight is in the last bucket, and what is delivered at once in the first."""
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
    assert (BOUNDS_S[0], BOUNDS_S[-1]) == (0.001, 3600.0)
