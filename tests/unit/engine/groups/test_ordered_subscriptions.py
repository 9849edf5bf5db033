"""Orders of subscriptions: a sort for a configured one, groups for those that are shared."""

import pytest

from hms.engine.groups.message_sort import SortSettings, SortType
from hms.wire.packed_messages import FLAG_ORDER, PROPERTY_GLOBAL_ORDER, ROW, Head, encode_head
from hms.wire.packed_messages import pack_messages as pack_of
from tests.support.engine_rig import EngineRig, delivered

SORT = SortSettings("n", SortType.INTEGER)
SORTED = ("billing", "news", "", "TOPIC", "", "", "ALL", SORT)
PLAIN = ("billing", "news")


def _publish(rig, *bodies, flags=0, **properties):
    got = []
    for body in bodies:
        rig.sequence += 1
        own = properties | ({"n": int(body)} if body.isdigit() else {})
        head = encode_head(Head(own))
        row = ROW.pack(len(head), len(body), 0, 0, 4, 0, flags, 0)
        pack = memoryview(pack_of([(row, head, body.encode())]))
        got += delivered(
            rig.run(
                lambda fx, pack=pack: rig.engine.send(
                    1, 5, 2, rig.sequence, 1, is_persistent=True, pack=pack, now_ms=1000, fx=fx
                )
            )
        )
    return _bodies(got)


def _bodies(messages):
    return [bytes(m.payload[m.head_bytes :]).decode() for m in messages]


def _line(rig):
    return rig.engine.state.topics["news"].durable("billing").line


def test_a_configured_subscription_sorts_what_waits_for_its_subscriber():
    """Messages pile up there as in a queue; the documents sort both."""
    rig = EngineRig([SORTED])
    _publish(rig, "3", "1", "x", "2")
    assert _bodies(rig.consume(1, "news", durable="billing")) == ["1", "2", "3", "x"]


@pytest.mark.parametrize("end", [SORTED, PLAIN])
def test_a_sort_holds_for_what_was_recovered(end):
    """The configuration is read after the log."""
    rig = EngineRig([PLAIN])
    _publish(rig, "3", "1", "2")
    rig.start([end])
    expected = ["1", "2", "3"] if end is SORTED else ["3", "1", "2"]
    assert _bodies(_line(rig).in_order()) == expected


def test_a_wrong_key_refuses_no_publication():
    """One subscriber's sort is no business of the publisher: the message stands behind."""
    rig = EngineRig([SORTED])
    _publish(rig, "2")
    _publish(rig, "x", n="text")
    assert _bodies(_line(rig).in_order()) == ["2", "x"]


def test_consumers_that_share_a_subscription_have_groups_each():
    """They work side by side as those of a queue do (F-E6, F-C17)."""
    rig = EngineRig()
    for handle in (1, 2):
        rig.consume(handle, "news", durable="billing", is_shared=True)
    for _ in range(3):
        for group in "ab":
            _publish(rig, group, JMSXGroupID=group)
    consumers = rig.engine.state.connections[1].consumers
    got = [set(_bodies(consumers[handle].out.values())) for handle in (1, 2)]
    assert sorted(got, key=sorted) == [{"a"}, {"b"}]


def test_a_global_order_holds_for_consumers_that_share_a_subscription():
    """Strictly one after the other, as at a queue (F-C16)."""
    rig = EngineRig()
    for handle in (1, 2):
        rig.consume(handle, "news", durable="billing", is_shared=True)
    order = {PROPERTY_GLOBAL_ORDER: "o"}
    assert _publish(rig, "1", "2", flags=FLAG_ORDER, **order) == ["1"]
    consumers = rig.engine.state.connections[1].consumers
    (handle,) = [h for h in (1, 2) if consumers[h].out]
    again = rig.acknowledge(handle, list(consumers[handle].out.values()))
    assert _bodies(delivered(again)) == ["2"]


def test_a_slow_shared_subscriber_loses_what_its_groups_hold_up_too():
    """What may wait for subscribers that are not durable is bounded (F-E8)."""
    rig = EngineRig(passing_bytes_max=5_000)
    rig.consume(1, "news", credit=1, name="shared", is_shared=True)
    for _ in range(50):
        _publish(rig, "x", JMSXGroupID="a")
    (subscription,) = rig.engine.state.topics["news"].subscriptions
    assert subscription.line.size_bytes < 6_000
    assert subscription.line.counters.removed > 20
    assert rig.engine.state.waiting_bytes == subscription.line.size_bytes
