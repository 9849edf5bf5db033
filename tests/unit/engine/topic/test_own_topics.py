"""The node's own topics, below HMS/: only it publishes there, and only who asks for them has it."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import TopicStringError
from tests.support.topic_rig import TopicRig

TOPIC = "HMS/alert/stuck_queue"


def tell(rig, text="x", topic=TOPIC, **properties):
    """The node publishes."""
    about = topic, properties, text, rig.now_ms
    return rig.run(lambda fx: rig.engine.publish_own(*about, fx))


@pytest.mark.parametrize("topic", ["HMS", "HMS/", TOPIC, "HMS//x"])
def test_nobody_else_publishes_on_the_nodes_topics(rig, topic):
    """Whoever acts on an alert believes that the node said it. The error says what to do."""
    got = rig.subscribe("HMS/#")
    with pytest.raises(TopicStringError, match="use another level"):
        rig.publish(topic, "forged")
    assert got.bodies == []


def test_a_topic_object_is_no_way_around():
    """Its string and the caller's are one topic."""
    rig = TopicRig(DestinationSettings("topic", "ours", topic_string="HMS"))
    with pytest.raises(TopicStringError, match="only it publishes there"):
        rig.publish("ours", "forged", string="alert/x")


@pytest.mark.parametrize("topic", ["HMSX", "hms/alert/x", "/HMS/x", "a/HMS/x"])
def test_what_only_looks_like_one_is_everybodys(rig, topic):
    """The first level is the whole word."""
    got = rig.subscribe(topic)
    rig.publish(topic, "x")
    assert got.bodies == ["x"]


def test_who_asks_for_it_has_it_whatever_else_the_pattern_says(rig):
    """One by its name, all of one kind, all."""
    wanted = [("HMS/alert/#", ""), ("HMS/+/stuck_queue", ""), (TOPIC, ""), ("HMS/al*", "CHARACTER")]
    asked = [rig.subscribe(topic, **({"scheme": s} if s else {})) for topic, s in wanted]
    assert tell(rig, "stands", alert="stuck_queue", at_ms=5)
    assert [got.bodies for got in asked] == [["stands"]] * len(wanted)
    (message,) = asked[0].messages
    assert message.head().properties == {"alert": "stuck_queue", "at_ms": 5}


def test_a_wildcard_in_the_first_level_does_not_stand_for_them(rig):
    """An application that takes everything does not know what an alert is."""
    every = [rig.subscribe("#"), rig.subscribe("+/alert/#"), rig.subscribe("*", scheme="CHARACTER")]
    assert not tell(rig)
    rig.subscribe("HMS/#")
    late = rig.subscribe("#")
    assert tell(rig)
    assert [got.bodies for got in (*every, late)] == [[]] * 4


def test_without_a_subscription_nothing_is_made(rig):
    """A node that nobody listens to has no id less, and no topic more."""
    state = rig.engine.state
    before = state.ids.next_id, state.next_seq, len(rig.log)
    assert not tell(rig)
    assert (state.ids.next_id, state.next_seq, len(rig.log)) == before
    assert state.space.tree.find(TOPIC) is None


def test_where_there_is_no_room_it_is_missed_and_others_have_it():
    """A full subscription must not keep an alert from the one that pages somebody."""
    pager = {"name": "pager", "topic": "HMS/#", "queue": "q"}
    rig = TopicRig(subscriptions=[pager])
    got = rig.subscribe("HMS/#")
    texts = ["one", "two", "three", "four"]
    assert all(tell(rig, text) for text in texts)
    assert got.bodies == texts
    assert rig.consume("q").bodies == texts[:3]
