"""Limits over crashes, in transactions, of topics and of the whole node (F-C11)."""

import pytest

from hms.engine.effects import Confirm
from hms.engine.flow.destination_control import LimitBehavior, Limits
from hms.errors.catalogue import (
    BatchTooLarge,
    FlowControlTimeout,
    NodeFull,
    NodeQuota,
    PublicationFailed,
    QueueFull,
)
from hms.wire.packed_messages import Head, encode_head
from tests.support.engine_rig import delivered
from tests.support.limits_rig import limited_rig, outcomes, retry, waiting

FLOW = "FLOW_CONTROL"
HEAD_BYTES = len(encode_head(Head()))


@pytest.mark.parametrize("behavior", list(LimitBehavior))
def test_after_a_crash_the_limit_holds_and_nothing_comes_back(behavior):
    """What was removed or refused was never, or is no more, in the log."""
    rig = limited_rig(behavior, messages_max=3)
    for body in b"12345":
        try:
            rig.send(body=bytes([body]))
        except QueueFull:
            assert behavior is LimitBehavior.REJECT_NEWEST
    before = [m.id for m in waiting(rig)]

    rig.start()

    assert [m.id for m in waiting(rig)] == before
    assert len(before) == 3


def test_a_transaction_is_judged_when_it_commits():
    """Its sends take no room before, so they cannot be refused for want of it before."""
    rig = limited_rig(messages_max=2)
    rig.send(count=1)
    rig.send(producer=11, count=2)

    with pytest.raises(QueueFull):
        rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))

    rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "orders"}, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 2, rig.now_ms, fx))
    assert len(waiting(rig)) == 2


def test_what_a_transaction_acknowledges_makes_room_for_what_it_sends():
    """Passing a message on in a full queue must not lock itself up."""
    rig = limited_rig(FLOW, messages_max=1)
    got = delivered(rig.send()) or rig.consume(20, session=2)
    rig.acknowledge(20, got)
    rig.send(producer=11)

    fx = rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))

    assert not rig.engine.has_blocked
    assert fx.out


def test_a_commit_waits_for_room_under_flow_control_and_what_comes_after_is_another_transaction():
    """P4: what was sent after commit() must not become part of it."""
    rig = limited_rig(FLOW, messages_max=2)
    rig.send(count=2, body=b"0")
    rig.send(producer=11, body=b"1")
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    assert rig.engine.has_blocked
    rig.send(producer=11, body=b"2")

    rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "orders"}, rig.now_ms, fx))
    retry(rig)

    assert [m.payload[-1:] for m in waiting(rig)] == [b"1"]
    assert rig.engine.state.memories.last_commit(77, 2) == 1
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 2, rig.now_ms, fx))
    assert [m.payload[-1:] for m in waiting(rig)] == [b"1", b"2"]


def test_a_commit_that_waited_too_long_leaves_its_transaction_open():
    """It can be committed again, or rolled back; nothing of it was done."""
    rig = limited_rig(FLOW, messages_max=1)
    rig.send()
    rig.send(producer=11)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))

    rig.now_ms = rig.engine.due_ms()
    (refusal,) = outcomes(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx)))

    assert isinstance(refusal.error, FlowControlTimeout)
    assert len(rig.engine.state.connections[1].sessions[2].work.sends) == 1
    rig.run(lambda fx: rig.engine.rollback(1, 2, 9, rig.now_ms, fx))
    assert len(waiting(rig)) == 1


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", FLOW])
def test_the_limit_of_a_topic_holds_at_each_of_its_subscriptions(behavior):
    """One slow subscriber fills its own line, not those of the others."""
    rig = limited_rig(behavior, subscriptions=[("slow", "news")], is_topic=True, messages_max=2)
    rig.consume(7, "news")
    for body in b"123":
        rig.send(producer=2, body=bytes([body]))

    slow = rig.engine.state.topics["news"].durable("slow")
    bodies = [m.payload[-1:] for m in slow.line.in_order()]
    assert bodies == ([b"2", b"3"] if behavior != FLOW else [b"1", b"2"])
    assert rig.engine.has_blocked is (behavior == FLOW)


def test_a_topic_that_rejects_misses_no_one_in_silence():
    """A durable subscription has to get a persistent publication, or nobody does."""
    rig = limited_rig(subscriptions=[("slow", "news")], is_topic=True, messages_max=1)
    rig.send(producer=2)

    with pytest.raises(PublicationFailed, match="slow"):
        rig.send(producer=2)


def test_the_node_counts_all_destinations_together():
    """F-C11: per destination and node."""
    rig = limited_rig(node={"limits": Limits(messages_max=2)})
    rig.send(producer=1)
    rig.send(producer=3)

    with pytest.raises(NodeQuota, match="2 of max_messages 2"):
        rig.send(producer=1)


def test_a_full_memory_lets_sends_wait_where_the_node_says_so():
    """limit_behavior of the node holds for its memory too."""
    limits = Limits(behavior=LimitBehavior.FLOW_CONTROL)
    rig = limited_rig(node={"limits": limits, "memory_bytes_max": 1000})
    rig.send(body=b"x" * 600, is_persistent=False)
    assert outcomes(rig.send(body=b"x" * 600, is_persistent=False)) == []

    rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "orders"}, rig.now_ms, fx))
    assert [type(one) for one in outcomes(retry(rig))] == [Confirm]


def test_a_full_memory_refuses_otherwise():
    """As it always did."""
    rig = limited_rig(messages_max=9, node={"memory_bytes_max": 1000})
    rig.send(body=b"x" * 600, is_persistent=False)

    with pytest.raises(NodeFull):
        rig.send(body=b"x" * 600, is_persistent=False)


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_messages_of_groups_are_removed_like_others(behavior):
    """A group holds messages in a place of its own, which must not hide them from the limit."""
    rig = limited_rig(behavior, messages_max=3)
    for i in range(6):
        rig.send(body=b"%d" % i, properties={"JMSXGroupID": f"g{i % 2}"})

    assert [m.payload[-1:] for m in waiting(rig)] == [b"3", b"4", b"5"]
    got = rig.consume(7)
    rig.acknowledge(7, got)
    rig.start()
    assert len(waiting(rig)) == 3 - len(got)


def test_a_transaction_may_fill_a_queue_to_the_last_byte():
    """What is counted are heads and bodies, as of any other send."""
    rig = limited_rig(bytes_max=100)
    rig.send(producer=11, body=b"x" * (50 - HEAD_BYTES), count=2)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    assert len(waiting(rig)) == 2

    with pytest.raises(BatchTooLarge):
        rig.send(producer=11, body=b"x" * 101)
