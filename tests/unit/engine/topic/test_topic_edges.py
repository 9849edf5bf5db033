"""Edges of topics and dead letters that once were wrong, each with the reason why it matters."""

import msgspec
import pytest

import hms
from hms.client.destinations import watched_name
from hms.engine.effects import Effects, Ready
from hms.engine.engine import ConsumerRequest, Return
from hms.engine.settings import DEAD_LETTER_QUEUE
from hms.wire.packed_messages import HEAD_BYTES_MAX, ROW, decode_head, pack_messages
from tests.support.engine_rig import EngineRig
from tests.support.order_rig import OrderRig
from tests.support.topic_rig import TopicRig


def test_no_local_holds_for_what_is_retained_too():
    """F-E7: who publishes and subscribes must not be told its own words as if they were news."""
    rig = TopicRig()
    rig.publish("a", "mine", retain=True)
    assert rig.subscribe("a", is_no_local=True).bodies == []
    assert rig.subscribe("a").bodies == ["mine"]
    assert rig.subscribe("a", is_no_local=True, durable="d").bodies == []


def test_no_local_takes_what_another_client_had_retained():
    """Also after a crash, when the publisher's connection is long gone."""
    rig = TopicRig()
    rig.publish("a", "theirs", retain=True)
    rig.boot()
    rig.engine.state.connections[1].uid += 1
    assert rig.subscribe("a", is_no_local=True).bodies == ["theirs"]


def test_a_name_of_ones_own_does_not_hinder_those_who_share_it():
    """Two sharing subscribers must share one subscription, whoever else uses the name alone."""
    rig = EngineRig()
    rig.consume(1, "news", name="n")
    rig.consume(2, "news", name="n", is_shared=True)
    rig.consume(3, "news", name="n", is_shared=True)
    assert len(rig.engine.state.topics["news"].subscriptions) == 2


def test_a_topic_string_can_be_watched():
    """A publisher on a topic string wants to know whether somebody listens, as at an object."""
    rig = TopicRig()
    rig.engine.open_connection(2, 88, "", "")
    assert rig.engine.watch(2, "topic", "a/b") is False
    told = []
    consumers = [("a/#", 21), ("a/b", 22), ("a/c", 23)]
    for topic, handle in consumers:
        request = ConsumerRequest(handle, 1, "topic", topic, 10)
        told += _told(rig, lambda fx, r=request: rig.engine.open_consumer(1, r, 1, 1000, fx))
    for _, handle in consumers:
        told += _told(rig, lambda fx, h=handle: rig.engine.close_consumer(1, h, 1000, fx))
    assert told == [(2, "topic", "a/b", True), (2, "topic", "a/b", False)]


def _told(rig, call):
    fx = Effects()
    call(fx)
    return [msgspec.structs.astuple(effect) for effect in fx.out if isinstance(effect, Ready)]


def test_what_could_not_be_published_on_cannot_be_watched():
    """It would never become ready, and nobody would know why."""
    rig = EngineRig()
    with pytest.raises(hms.DestinationNotFound):
        rig.engine.watch(1, "topic", "nowhere/at/all")


@pytest.mark.parametrize("room", [20, 300, 2_000])
def test_a_dead_letter_with_a_large_head_stays_readable(room):
    """The node adds why it is there; the reader must still get the properties, and a crash too."""
    rig = OrderRig()
    text = "x" * (HEAD_BYTES_MAX - room)
    rig.send("body", k=text)
    rig.consume("c")
    rig.give_back("c", Return.REJECTED)
    rig.boot()
    (letter,) = rig.line(DEAD_LETTER_QUEUE).in_order()
    head = decode_head(letter.payload[: letter.head_bytes])
    assert head.properties == {"k": text}
    assert head.node["$DeadReason"] == "REJECTED"


def test_a_letter_from_a_very_long_topic_says_the_beginning_of_it():
    """Ten thousand characters twice in a head would make it unreadable."""
    rig = TopicRig()
    topic = "t" * 10_000
    got = rig.subscribe(topic, durable="d")
    rig.publish(topic, "x", properties={"k": "v" * (HEAD_BYTES_MAX - 45_000)})
    spans = [(m.id, m.id) for m in got.messages]
    how = Return.REJECTED
    rig.run(lambda fx: rig.engine.give_back(1, got.handle, 0, spans, how, rig.now_ms, fx))
    (letter,) = rig.engine.state.queues[DEAD_LETTER_QUEUE].line.in_order()
    head = decode_head(letter.payload[: letter.head_bytes])
    assert head.node["$DeadOrigin"].startswith("topic:tttt")
    assert len(head.properties["k"]) == HEAD_BYTES_MAX - 45_000


def test_a_message_that_failed_and_is_then_released_was_redelivered_once():
    """recover() gives back what was prefetched; nobody saw it a second time."""
    rig = OrderRig()
    rig.send("x")
    rig.consume("c", credit=5)
    rig.give_back("c", Return.FAILED)
    rig.recover(1)
    counters = rig.line().counters
    assert counters.redelivered == 1
    assert counters.delivered == 3


def test_a_client_watches_a_topic_by_its_whole_string():
    """Half of a joined name would watch something else in silence."""
    assert watched_name(hms.Topic("a/b")) == watched_name(hms.Topic(string="a/b")) == "a/b"
    assert watched_name(hms.Queue("q")) == "q"
    for topic in (hms.Topic("a", "b"), hms.Topic(string="x" * 300)):
        with pytest.raises(hms.InvalidArgument, match="whole topic string"):
            watched_name(topic)


def _publishes(rig, number, body):
    """A publication by another connection than the rig's own, on topic "a"."""
    rig.engine.open_session(number, 1, 0, "")
    rig.run(lambda fx: rig.engine.open_producer(number, 1, 1, "topic", "a", "", fx))
    data, persistent = body.encode(), True
    pack = memoryview(pack_messages([(ROW.pack(0, len(data), 0, 0, 4, 0, 0, 0), b"", data)]))
    rig.run(lambda fx: rig.engine.send(number, 1, 1, 1, 1, persistent, pack, rig.now_ms, fx))


def test_a_durable_subscription_gets_nothing_later_that_its_own_connection_published():
    """F-E7: while its subscriber was closed, the connection's own words came in as news."""
    rig = TopicRig()
    rig.close(rig.subscribe("a", is_no_local=True, durable="d"))
    rig.publish("a", "mine")
    rig.engine.open_connection(2, 99, "", "")
    _publishes(rig, 2, "theirs")

    assert rig.subscribe("a", is_no_local=True, durable="d").bodies == ["theirs"]


def test_a_client_id_is_the_same_client_on_its_next_connection():
    """Also after a crash: the subscription keeps the id of the client that made it."""
    rig = TopicRig()
    rig.engine.open_connection(2, 99, "me", "")
    rig.engine.open_session(2, 1, 0, "")
    request = ConsumerRequest(1, 1, "topic", "a", 1, durable="d", is_no_local=True)
    rig.run(lambda fx: rig.engine.open_consumer(2, request, 1, rig.now_ms, fx))
    rig.boot()
    rig.engine.open_connection(3, 100, "me", "")
    _publishes(rig, 3, "mine")
    rig.publish("a", "theirs")

    assert rig.subscribe("a", is_no_local=True, durable="d").bodies == ["theirs"]
