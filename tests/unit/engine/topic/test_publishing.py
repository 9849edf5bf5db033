"""Publishing: everybody who wants it gets one copy, and all get it or none (PUBSUB §2 to §8)."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import (
    DestinationNotFound,
    MessageTooLarge,
    NodeFull,
    TopicLimit,
    TopicStringError,
    TransactionTooLarge,
)
from hms.wire.packed_messages import ROW
from tests.support.topic_rig import TopicRig


def test_each_subscriber_gets_a_copy_of_what_it_asked_for(rig):
    """The vector PS."""
    one = rig.subscribe("Sport"), rig.subscribe("Stock")
    two, three = rig.subscribe("Films"), rig.subscribe("Sport")
    for topic in ("Sport", "Stock", "Films", "TV"):
        rig.publish(topic, topic)
    assert [got.bodies for got in (*one, two, three)] == [
        ["Sport"],
        ["Stock"],
        ["Films"],
        ["Sport"],
    ]


def test_a_publication_that_nobody_wants_is_taken_and_leaves_nothing(rig):
    """PS-03."""
    rig.publish("TV", "x")
    assert rig.engine.state.waiting_bytes == 0
    assert rig.engine.live_bytes() == 0


def test_overlapping_subscriptions_of_one_application_get_a_copy_each(rig):
    """WC-14, OV-01."""
    both = [rig.subscribe("a/#"), rig.subscribe("a/+"), rig.subscribe("a/b"), rig.subscribe("a/c")]
    rig.publish("a/b", "x")
    assert [got.bodies for got in both] == [["x"], ["x"], ["x"], []]


def test_a_subscriber_by_characters_crosses_levels(rig):
    """WC-01: the scheme is chosen for each subscription."""
    by_characters = rig.subscribe("IBM/*ware/#", scheme="CHARACTER")
    literal = rig.subscribe("IBM/*ware/+")
    rig.publish("IBM/EU/Software/#", "x")
    assert (by_characters.bodies, literal.bodies) == (["x"], [])


def test_a_topic_with_a_wildcards_name_can_be_published_on(rig):
    """WC-08, the vector WC-T: nobody can subscribe to it alone."""
    got = rig.subscribe("l0/l1/+/l4/#")
    rig.publish("l0/l1/+/l4/#", "literal")
    rig.publish("l0/l1/x/l4", "other")
    assert got.bodies == ["literal", "other"]


def test_strict_topics_refuse_to_publish_on_a_wildcards_name():
    """WC-08's option, for those who never mean it."""
    rig = TopicRig(is_topics_strict=True)
    with pytest.raises(TopicStringError, match="strict"):
        rig.publish("a/+/b", "x")
    rig.publish("a/b+", "x")


def test_a_wildcard_subscriber_learns_the_topic_of_each_message(rig):
    """Otherwise it could not tell a temperature from a pressure."""
    got = rig.subscribe("plant/#")
    rig.publish("plant/1/heat", "x", properties={"Unit": "K"})
    rig.publish("plant", "y")
    assert [n["$Topic"] for n in got.node] == ["plant/1/heat", "plant"]
    assert got.messages[0].head().properties == {"Unit": "K"}


def test_a_topic_object_and_a_string_are_joined(rig):
    """CT-01, CT-06: the whole topic is told to the publisher."""
    rig = TopicRig(DestinationSettings("topic", "FOOTBALL.EUROPEAN", topic_string="Sport/Soccer"))
    got, same = rig.subscribe("Sport/Soccer/Results"), rig.subscribe("Sport/Soccer//Results")
    rig.publish("FOOTBALL.EUROPEAN", "x", string="Results")
    assert rig.resolved == "Sport/Soccer/Results"
    rig.publish("FOOTBALL.EUROPEAN", "y", string="/Results")
    assert (got.bodies, same.bodies) == (["x"], ["y"])


def test_a_subscription_through_a_topic_object_is_that_of_its_string():
    """The vector CT: `Football` + `Arsenal` is identical to saying it directly."""
    rig = TopicRig(DestinationSettings("topic", "Football", topic_string="Sports/Football"))
    through, direct = rig.subscribe("Football", string="Arsenal"), rig.subscribe("Football")
    wild = rig.subscribe("Football", string="#")
    rig.publish("Sports/Football/Arsenal", "x")
    rig.publish("Football", "y")
    assert (through.bodies, direct.bodies, wild.bodies) == (["x"], ["y"], ["x", "y"])


def test_a_topic_object_that_is_not_there_is_no_prefix(rig):
    """CT-05: with two parts the first is a topic object's name."""
    with pytest.raises(DestinationNotFound):
        rig.publish("Football", "x", string="Arsenal")
    with pytest.raises(TopicStringError):
        rig.publish(" ", "x", string=" ")


def test_without_a_topic_object_above_it_a_topic_is_refused_unless_topics_are_open():
    """A slip of the pen must not become a topic that nobody reads (F-C5)."""
    rig = TopicRig(DestinationSettings("topic", "news"), is_topics_open=False)
    rig.publish("news/eu", "x")
    for refused in ("nwes", "nwes/eu", "new"):
        with pytest.raises(DestinationNotFound):
            rig.publish(refused, "x")
        with pytest.raises(DestinationNotFound):
            rig.subscribe(refused)
    assert rig.subscribe("#").bodies == []


def test_a_pattern_at_the_root_needs_no_topic_object():
    """WC-10: # is all topics there are."""
    rig = TopicRig(DestinationSettings("topic", "news"), is_topics_open=False)
    got = rig.subscribe("#", durable="all")
    rig.publish("news/eu", "x")
    rig.boot()
    assert rig.subscribe("#", durable="all").bodies == got.bodies == ["x"]


def test_a_publication_in_a_transaction_is_seen_at_its_commit_by_all_or_by_nobody(rig):
    """PD-01."""
    got = [rig.subscribe("a"), rig.subscribe("#", durable="d")]
    rig.publish("a", "dropped", session=2)
    rig.rollback()
    rig.publish("a", "kept", session=2)
    assert [g.bodies for g in got] == [[], []]
    rig.commit()
    assert [g.bodies for g in got] == [["kept"], ["kept"]]


def test_every_copy_counts_when_a_publication_is_measured():
    """PD-02: the limit is reached by copies, before anything is done."""
    copies = [
        {"name": f"s{i}", "topic": "a", "queue": "orders", "correlation_id": str(i)}
        for i in range(4)
    ]
    rig = TopicRig(subscriptions=copies, transaction_bytes_max=9000)
    for session in (1, 2):
        with pytest.raises(TransactionTooLarge):
            rig.publish("a", "x" * 3000, session=session)
    assert rig.consume("orders").bodies == []
    rig.publish("a", "x")


def test_a_node_without_memory_for_all_copies_refuses_the_publication():
    """All or nobody, here too."""
    rig = TopicRig(memory_bytes_max=1500)
    got = [rig.subscribe("a", credit=0), rig.subscribe("#", credit=0)]
    with pytest.raises(NodeFull):
        rig.publish("a", "x" * 600)
    assert rig.engine.state.waiting_bytes == 0
    rig.publish("a", "x")
    assert [g.bodies for g in got] == [[], []]


def test_a_selector_that_many_share_is_asked_once(rig, monkeypatch):
    """Ten thousand subscribers of one region must not cost ten thousand evaluations."""
    asked = []
    got = [rig.subscribe("#", selector="price > 10") for _ in range(20)]
    got.append(rig.subscribe("#", selector="price <= 10"))
    for one in rig.engine.state.space.subscriptions.values():
        real = one.selector.matches
        one.selector.matches = lambda view, real=real: asked.append(1) or real(view)
    rig.publish("a", "x", properties={"price": 11})
    assert len(asked) == 2
    assert [g.bodies for g in got] == [["x"]] * 20 + [[]]


def test_an_unreadable_head_is_passed_on_as_it_is(rig):
    """Only its reader can judge; the node must not fail over it, nor lose a byte."""
    got = rig.subscribe("#")
    pack = memoryview(ROW.pack(3, 1, 0, 0, 4, 0, 0, 0) + b"\xc1\xc1\xc1" + b"x")
    rig.send_pack("a", pack)
    assert got.messages[0].payload == b"\xc1\xc1\xc1x"


def test_a_head_that_has_no_room_for_its_topic_is_refused(rig):
    """The limit of a head holds for what the reader gets too."""
    with pytest.raises(MessageTooLarge):
        rig.publish("a" * 4000, "x", properties={"p": "x" * 60_000})


def test_topics_appear_with_use_and_go_when_nothing_uses_them(rig):
    """TT-05, TT-07, the vector TT."""
    rig.publish("USA/Alabama/Auburn", "x")
    assert rig.topics == ["USA", "USA/Alabama", "USA/Alabama/Auburn"]
    rig.tick(10 * rig.engine.state.settings.topic_life_ms)
    assert len(rig.topics) == 3

    rig.disconnect()
    rig.tick(rig.engine.state.settings.topic_life_ms - 1)
    assert len(rig.topics) == 3
    rig.tick(1)
    assert rig.topics == []


def test_after_a_restart_the_tree_has_objects_retained_ones_and_durable_subscriptions():
    """TT-08, TT-g."""
    rig = TopicRig(DestinationSettings("topic", "A"))
    rig.publish("B/x", "r", retain=True)
    rig.subscribe("C/y", durable="d")
    rig.publish("D/z", "x")
    rig.subscribe("E")
    rig.boot()
    assert sorted(rig.topics) == ["A", "B", "B/x", "C", "C/y"]


def test_too_many_topics_are_refused_with_the_limit():
    """A publisher that makes up topics must not fill the node."""
    rig = TopicRig(topics_max=3)
    rig.publish("a/b/c", "x")
    with pytest.raises(TopicLimit):
        rig.publish("a/d", "x")
    with pytest.raises(TopicLimit):
        rig.subscribe("a/d")
    rig.publish("a/b", "x")


def test_a_topic_of_ten_thousand_levels_is_refused(rig):
    """TT-04."""
    for use in (lambda: rig.publish("/" * 9999, "x"), lambda: rig.subscribe("#/+" * 3333)):
        with pytest.raises(TopicStringError, match="are allowed"):
            use()


def test_publishing_finds_few_among_ten_thousand_wildcard_subscriptions(rig):
    """Matching goes by the index: what does not match is never looked at."""
    for i in range(1000):
        rig.subscribe(f"other{i}/#")
    got = rig.subscribe("hit/+")
    for one in rig.engine.state.space.subscriptions.values():
        if one.pattern.text != "hit/+":
            one.chooses = one.is_local = None  # whoever looks at it fails
    rig.publish("hit/x", "x")
    assert got.bodies == ["x"]
