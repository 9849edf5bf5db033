"""Who is told of the first and of the last consumer of a destination."""

import dataclasses

import msgspec
import pytest

import hms
from hms.engine.effects import Ready
from hms.engine.engine import ConsumerRequest
from tests.support.engine_rig import EngineRig

WATCHER = 2
"""The number of a connection that has no session."""


@pytest.fixture
def rig():
    """An engine with a second connection."""
    rig = EngineRig()
    rig.engine.open_connection(WATCHER, 88, "", "")
    return rig


def _told(fx):
    return [msgspec.structs.astuple(effect) for effect in fx.out if isinstance(effect, Ready)]


def _open(rig, handle, destination="orders", **options):
    kind = "topic" if destination == "news" else "queue"
    request = ConsumerRequest(handle, 1, kind, destination, 10, **options)
    return _told(rig.run(lambda fx: rig.engine.open_consumer(1, request, 1, rig.now_ms, fx)))


def _close(rig, handle):
    return _told(rig.run(lambda fx: rig.engine.close_consumer(1, handle, rig.now_ms, fx)))


def test_the_first_and_the_last_consumer_of_a_queue_are_told(rig):
    """F-E11: those between change nothing for a producer that waits for somebody."""
    assert rig.engine.watch(WATCHER, "queue", "orders") is False

    assert _open(rig, 8) == [(WATCHER, "queue", "orders", True)]
    assert _open(rig, 9) == []
    assert _open(rig, 10, "slow") == []
    assert rig.engine.watch(WATCHER, "queue", "orders") is True
    assert _close(rig, 8) == []
    assert _close(rig, 9) == [(WATCHER, "queue", "orders", False)]


def test_the_subscribers_of_a_topic_count_together(rig):
    """A durable subscription whose subscriber is away receives nothing just now."""
    rig.engine.watch(WATCHER, "topic", "news")

    assert _open(rig, 8, "news", durable="paper") == [(WATCHER, "topic", "news", True)]
    assert _open(rig, 9, "news") == []
    assert _close(rig, 8) == []
    assert _close(rig, 9) == [(WATCHER, "topic", "news", False)]
    assert rig.engine.watch(WATCHER, "topic", "news") is False


def test_a_lost_connection_is_told_once_for_all_its_consumers(rig):
    """One event, not one for each of them."""
    rig.engine.watch(WATCHER, "queue", "orders")
    _open(rig, 8)
    _open(rig, 9)

    fx = rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert _told(fx) == [(WATCHER, "queue", "orders", False)]


def test_watching_ends_with_the_connection(rig):
    """Nothing is kept for one that is gone, and it is told nothing of its own end."""
    for number in (1, WATCHER):
        rig.engine.watch(number, "queue", "orders")
    _open(rig, 8)

    rig.run(lambda fx: rig.engine.close_connection(WATCHER, rig.now_ms, fx))

    assert _close(rig, 8) == [(1, "queue", "orders", False)]
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    assert rig.engine.state.watchers == {}


def test_what_a_connection_watches_is_limited(rig):
    """P8; what is watched already counts once, and what does not exist cannot be watched."""
    state = rig.engine.state
    state.settings = dataclasses.replace(state.settings, consumers_max=2)
    for name in ("orders", "slow", "slow"):
        rig.engine.watch(WATCHER, "queue", name)

    with pytest.raises(hms.ConsumerLimit):
        rig.engine.watch(WATCHER, "topic", "news")
    with pytest.raises(hms.DestinationNotFound):
        rig.engine.watch(WATCHER, "queue", "nowhere")

    assert list(state.watchers) == [("queue", "orders"), ("queue", "slow")]
