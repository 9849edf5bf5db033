"""Copies of what is retained, as subscriptions that last get them, and when memory is short."""

import pytest

from hms.errors.catalogue import TransactionTooLarge
from hms.records import RecordType
from tests.support.topic_rig import TopicRig


def test_a_durable_subscriber_keeps_its_copy_over_a_crash_and_gets_it_once(rig):
    """It was given with the subscription itself; resuming is no new subscription."""
    rig.publish("a", "1", retain=True)
    rig.subscribe("a", durable="d", credit=0)
    rig.publish("a", "2", retain=True)
    rig.boot()
    got = rig.subscribe("a", durable="d")
    assert got.bodies == ["1", "2"]
    assert got.node[0]["$IsRetained"] is True
    rig.acknowledge(got)
    rig.close(got)
    assert rig.subscribe("a", durable="d").bodies == []


def test_a_durable_subscription_and_its_first_copies_are_one_record(rig):
    """A crash in between must not lose them: the client would resume, and resuming gives none."""
    for topic in ("a", "b"):
        rig.publish(topic, topic, retain=True)
    before = len(rig.log)
    rig.subscribe("#", durable="d", credit=0)
    kinds = [kind for _, kind, _ in rig.log[before:]]
    assert kinds == [RecordType.GROUP]


def test_more_than_a_record_can_hold_is_refused_and_changes_nothing():
    """Half of what is retained would be a silent loss."""
    rig = TopicRig(transaction_bytes_max=2000)
    for i in range(5):
        rig.publish(f"a/{i}", "x" * 500, retain=True)
    with pytest.raises(TransactionTooLarge):
        rig.subscribe("a/#", durable="d")
    assert rig.subscriptions == []
    assert rig.subscribe("a/#", durable="d", retained="NEW").bodies == []


def test_a_full_node_takes_subscribers_all_the_same():
    """They are who empties it."""
    rig = TopicRig(memory_bytes_max=2000)
    rig.subscribe("a", durable="d", credit=0)
    rig.publish("a", "x" * 1500)
    rig.limits["memory_bytes_max"] = 100
    rig.boot()
    assert len(rig.subscribe("a", durable="d").messages) == 1
    assert rig.subscribe("b", durable="e").messages == []


def test_what_is_retained_counts_in_the_nodes_memory(rig):
    """P8; and it is given back when it is cleared."""
    rig.publish("a", "x" * 100, retain=True, persistent=False)
    assert rig.engine.state.waiting_bytes > 100
    rig.administer("topic.clear_retained", name="a")
    assert rig.engine.state.waiting_bytes == 0


def test_an_administrative_subscription_gets_what_is_retained_into_its_queue(rig):
    """SU-21 holds for every subscription."""
    rig.publish("a", "1", retain=True)
    rig.administer("subscription.create", name="s", topic="a/#", queue="orders")
    rig.boot()
    got = rig.consume("orders")
    assert got.bodies == ["1"]
    assert got.node[0]["$IsRetained"] is True


def test_what_is_retained_stays_in_memory_when_bodies_leave_it():
    """A subscriber that comes has to get it whole, also after a crash with a full memory."""
    rig = TopicRig(memory_bytes_max=20_000)
    rig.publish("a", "x" * 2000, retain=True)
    rig.subscribe("#", durable="d", credit=0)
    for _ in range(8):
        rig.publish("b", "y" * 2000)
    assert rig.engine.state.blocks.paged_bytes > 0
    for _ in range(2):
        assert rig.subscribe("a").bodies == ["x" * 2000]
        rig.boot()
