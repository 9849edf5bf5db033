"""Who has to take a publication, and what a queue gets of it (PUBSUB PD-04, SU-02, SU-18)."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import PublicationFailed
from tests.support.topic_rig import TopicRig

ONE = {"name": "one", "topic": "a/#", "queue": "q"}


def _fill(rig):
    rig.publish("a", "1", "2", "3")
    rig.sent_before = rig.engine.state.waiting_bytes


@pytest.mark.parametrize("delivery", ["ALL", "ALLDUR"])
def test_a_publication_that_one_who_must_take_it_cannot_take_reaches_nobody(delivery):
    """PD-04: the publisher hears of it, and no subscriber does."""
    topic = DestinationSettings("topic", "a", persistent_delivery=delivery)
    rig = TopicRig(topic, subscriptions=[ONE])
    got = rig.subscribe("a")
    _fill(rig)
    for string in ("", "b"):
        with pytest.raises(PublicationFailed, match="q has 3 of 3"):
            rig.publish("a", "4", string=string)
    assert got.bodies == ["1", "2", "3"]
    assert rig.consume("q").bodies == ["1", "2", "3"]


def test_a_publication_reaches_those_who_can_take_it_where_that_is_asked_for():
    """PD-04: ALLAVAIL; what a full queue misses is counted."""
    topic = DestinationSettings("topic", "a", persistent_delivery="ALLAVAIL")
    rig = TopicRig(topic, subscriptions=[ONE])
    got = rig.subscribe("a")
    rig.publish("a", "1", "2", "3", "4")
    rig.publish("a", "5")
    assert got.bodies == ["1", "2", "3", "4", "5"]
    assert rig.consume("q").bodies == ["1", "2", "3"]
    (listed,) = [s for s in rig.administer("subscription.list") if s["name"] == "one"]
    assert listed["missed"] == 2


def test_delivery_is_chosen_for_each_kind_of_publication_by_the_nearest_that_chooses():
    """PD-04: as the topic above has it; by default persistent ones must reach the durable."""
    above = DestinationSettings("topic", "a", non_persistent_delivery="ALL")
    below = DestinationSettings("topic", "a/b", persistent_delivery="ALLAVAIL")
    rig = TopicRig(above, below, subscriptions=[ONE])
    rig.publish("a/b", "1", "2", "3")
    rig.publish("a/b", "4")
    with pytest.raises(PublicationFailed, match="ALL"):
        rig.publish("a/b/c", "5", persistent=False)
    with pytest.raises(PublicationFailed, match="ALLDUR"):
        rig.publish("a/c", "6")


def test_a_publication_that_reached_a_queue_survives_with_its_topic():
    """SU-02: a plain consumer of a queue receives topics, over a crash and the log's old end."""
    rig = TopicRig(subscriptions=[{"name": "one", "topic": "a/#", "queue": "orders"}])
    rig.publish("a/b", "1", "2")
    rig.retire()
    rig.boot([{"name": "one", "topic": "a/#", "queue": "orders"}])
    got = rig.consume("orders")
    assert got.bodies == ["1", "2"]
    assert got.node[0]["$Topic"] == "a/b"


def test_two_subscriptions_into_one_queue_put_two_messages_told_apart_by_their_correlation_id():
    """SU-18, SU-g."""
    subscriptions = [
        {"name": name, "topic": "a", "queue": "orders", "correlation_id": name} for name in "AB"
    ]
    rig = TopicRig(subscriptions=subscriptions)
    rig.publish("a", "x")
    rig.boot(subscriptions)
    only = rig.consume("orders", selector="JMSCorrelationID = 'A'")
    rest = rig.consume("orders")
    assert (only.bodies, rest.bodies) == (["x"], ["x"])
    assert rest.messages[0].head().correlation_id == "B"
    assert rest.messages[0].id != only.messages[0].id
