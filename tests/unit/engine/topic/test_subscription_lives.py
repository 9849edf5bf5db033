"""The life of a durable subscription (SU-10, SU-11)."""

import pytest

from hms.errors.catalogue import InvalidArgument


def test_the_life_of_a_durable_subscription_ends(rig):
    """SU-11: it gets nothing more from that moment on, and goes with what waits."""
    got = rig.subscribe("a/#", durable="d", life_ms=60_000)
    rig.close(got)
    rig.now_ms += 59_999
    rig.publish("a/b", "1")
    rig.now_ms += 1
    rig.publish("a/b", "2")
    (listed,) = rig.administer("subscription.list")
    assert listed["waiting"] == 1
    rig.tick()
    assert rig.subscriptions == []
    rig.boot()
    assert rig.subscriptions == []


def test_a_life_that_ends_while_it_is_read_ends_with_the_reader(rig):
    """What was delivered can still be acknowledged."""
    got = rig.subscribe("a", durable="d", life_ms=1000)
    rig.publish("a", "1")
    rig.tick(1000)
    rig.publish("a", "2")
    assert got.bodies == ["1"]
    assert rig.subscriptions == ["d"]
    rig.acknowledge(got)
    rig.close(got)
    rig.tick()
    assert rig.subscriptions == []


def test_resuming_tells_the_life_as_it_was_given(rig):
    """SU-f, SU-10."""
    got = rig.subscribe("a", durable="d", life_ms=60_000)
    rig.close(got)
    rig.now_ms += 20_000
    rig.subscribe("a", durable="d")
    assert rig.replies == [{"topic": "a", "life_ms": 60_000}]


def test_one_that_is_over_is_begun_anew_not_resumed(rig):
    """Nobody may get what was sent in between and think it is all."""
    got = rig.subscribe("a", durable="d", life_ms=1000)
    rig.close(got)
    rig.publish("a", "old")
    rig.now_ms += 1000
    assert rig.subscribe("a", durable="d").bodies == []


def test_only_a_durable_one_has_a_life(rig):
    """The other kind ends with its consumer."""
    with pytest.raises(InvalidArgument):
        rig.subscribe("a", life_ms=1)
