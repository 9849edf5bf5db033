"""Retained publications, by the rules RP-01 … RP-10 and the vector SU-h."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import (
    MessageFormatError,
    NoRetainedMessage,
    NotRetained,
)
from hms.records import Cause, RecordType, decode_group, decode_ranges
from hms.wire.packed_messages import FLAG_RETAIN, ROW
from tests.support.topic_rig import TopicRig


def _retained(rig):
    return sorted(t["topic"] for t in rig.administer("topic.tree") if t["retained"])


def test_a_later_subscriber_gets_what_is_retained_at_once_and_marked(rig):
    """SU-21, RP-05: it must tell old from live data."""
    rig.publish("a", "state", retain=True)
    got = rig.subscribe("a")
    rig.publish("a", "news")
    assert got.bodies == ["state", "news"]
    assert [n.get("$IsRetained", False) for n in got.node] == [True, False]


def test_one_is_retained_for_each_topic_and_the_newest_replaces_it(rig):
    """RP-02; a plain publication leaves it (RP-03)."""
    rig.publish("a", "1", "2", retain=True)
    rig.publish("a", "3", retain=True)
    rig.publish("b", "4", retain=True)
    rig.publish("a", "plain")
    assert sorted(rig.subscribe("#").bodies) == ["3", "4"]


def test_readers_do_not_use_it_up(rig):
    """RP-09."""
    rig.publish("a", "1", retain=True)
    for _ in range(3):
        got = rig.subscribe("a")
        rig.acknowledge(got)
        assert got.bodies == ["1"]


def test_a_subscriber_may_want_only_what_comes(rig):
    """SU-20."""
    rig.publish("a", "old", retain=True)
    got = rig.subscribe("a", retained="NEW")
    rig.publish("a", "new", retain=True)
    assert got.bodies == ["new"]


def test_a_subscriber_may_want_nothing_before_it_asks(rig):
    """SU-19, SU-h, SU-i: a durable one then piles nothing up."""
    rig.publish("a", "1", retain=True)
    got = rig.subscribe("a", durable="d", retained="REQUEST")
    rig.publish("a", "2")
    rig.publish("a", "3", retain=True)
    assert got.bodies == []
    assert rig.run(lambda fx: rig.engine.request_retained(1, got.handle, rig.now_ms, fx)) == 1
    assert got.bodies == ["3"]


def test_asking_where_nothing_is_retained_is_an_error(rig):
    """SU-19."""
    got = rig.subscribe("a", retained="REQUEST")
    with pytest.raises(NoRetainedMessage):
        rig.run(lambda fx: rig.engine.request_retained(1, got.handle, rig.now_ms, fx))


def test_a_subscriber_may_ask_again(rig):
    """SU-22: each time it gets a message of its own."""
    rig.publish("a", "1", retain=True)
    got = rig.subscribe("a")
    for _ in range(2):
        rig.run(lambda fx: rig.engine.request_retained(1, got.handle, rig.now_ms, fx))
    assert got.bodies == ["1", "1", "1"]
    assert len({m.id for m in got.messages}) == 3


def test_a_selector_holds_for_what_is_retained_too(rig):
    """It would be news that the subscriber did not ask for."""
    rig.publish("a", "1", retain=True, properties={"n": 1})
    rig.publish("b", "2", retain=True, properties={"n": 2})
    assert rig.subscribe("#", selector="n = 2").bodies == ["2"]


@pytest.mark.parametrize("is_retired", [False, True])
def test_persistent_ones_survive_a_crash_and_others_do_not(rig, is_retired):
    """RP-06; also when the segment that had them is gone."""
    rig.publish("a", "kept", retain=True)
    rig.publish("b", "lost", retain=True, persistent=False)
    rig.publish("c", "old", retain=True)
    if is_retired:
        rig.retire()
    rig.publish("c", "new", retain=True)
    for _ in range(2):
        rig.boot()
        got = rig.subscribe("#")
        assert sorted(got.bodies) == ["kept", "new"]
        assert sorted(n["$Topic"] for n in got.node) == ["a", "c"]
        rig.retire()


def test_a_non_persistent_one_replaces_a_persistent_one_for_good(rig):
    """After a crash the older value must not come back as if it were the newest."""
    rig.publish("a", "old", retain=True)
    rig.publish("a", "new", retain=True, persistent=False)
    rig.boot()
    assert rig.subscribe("a").bodies == []


def test_replacing_is_one_step_in_the_log(rig):
    """RP-02: after a crash there is the old one or the new one, never both and never none."""
    rig.publish("a", "old", retain=True)
    rig.publish("a", "new", retain=True)
    _, kind, payload = rig.log[-1]
    assert kind == RecordType.GROUP
    arrived, left = decode_group(payload).records
    assert arrived.type == RecordType.SENT
    assert decode_ranges(left.parts[0]).cause is Cause.REPLACED

    rig.log.pop()
    rig.boot()
    assert rig.subscribe("a").bodies == ["old"]


def test_an_expired_one_is_gone_and_counted(rig):
    """RP-08."""
    rig.publish("a", "1", retain=True, ttl_ms=50)
    rig.now_ms += 49
    assert rig.subscribe("a").bodies == ["1"]
    rig.now_ms += 1
    assert rig.subscribe("a").bodies == []
    rig.tick()
    assert _retained(rig) == []
    assert rig.engine.state.space.place.line.counters.expired == 1
    rig.boot()
    assert _retained(rig) == []


def test_an_operator_clears_one_topic_or_many(rig):
    """TT-10, RP-14; it stays cleared."""
    for topic in ("a", "a/b", "c"):
        rig.publish(topic, "1", retain=True)
    assert rig.administer("topic.clear_retained", name="a") == 1
    assert _retained(rig) == ["a/b", "c"]
    assert rig.administer("topic.clear_retained", pattern="a/#") == 1
    assert rig.administer("topic.clear_retained", name="a") == 0
    rig.boot()
    assert _retained(rig) == ["c"]
    assert rig.engine.state.space.place.line.waiting_count == 1


def test_a_cold_boot_forgets_what_is_retained(rig):
    """SE-25: what the store holds for a topic that boots COLD is deleted."""
    rig.publish("a", "1", retain=True)
    rig.boot(is_warm=False)
    assert _retained(rig) == []
    rig.boot()
    assert _retained(rig) == []


def test_a_topic_that_boots_cold_forgets_its_own_and_no_other():
    """F-H3 holds for what a topic retains as for what waits there."""
    rig = TopicRig(DestinationSettings("topic", "cold", is_warm=False))
    for topic in ("cold", "cold/x", "warm"):
        rig.publish(topic, "1", retain=True)
    rig.boot()
    assert _retained(rig) == ["warm"]


@pytest.mark.parametrize("limits", [{"retained_max": 1}, {"retained_bytes_max": 1500}])
def test_what_cannot_be_retained_is_not_published(limits):
    """RP-04."""
    rig = TopicRig(**limits)
    got = rig.subscribe("#")
    rig.publish("a", "x" * 100, retain=True)
    for session in (1, 2):
        with pytest.raises(NotRetained):
            rig.publish("b", "x" * 900, retain=True, session=session)
    rig.publish("a", "y" * 100, retain=True)
    assert [b[0] for b in got.bodies] == ["x", "y"]


def test_an_unreadable_head_cannot_be_retained(rig):
    """Nobody would know its topic after a crash."""
    pack = memoryview(ROW.pack(1, 1, 0, 0, 4, 0, FLAG_RETAIN, 0) + b"\xc1x")
    with pytest.raises(MessageFormatError):
        rig.send_pack("a", pack)
    assert rig.subscribe("#").bodies == []


def test_retaining_in_a_transaction_waits_for_the_commit(rig):
    """PD-01."""
    rig.publish("a", "old", retain=True)
    rig.publish("a", "dropped", retain=True, session=2)
    rig.rollback()
    rig.publish("a", "new", retain=True, session=2)
    assert rig.subscribe("a").bodies == ["old"]
    rig.commit()
    rig.boot()
    assert rig.subscribe("a").bodies == ["new"]
