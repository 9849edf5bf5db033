"""Topics as an application sees them: a real node, publishers and subscribers."""

import asyncio

import pytest

import hms

CONFIG = {
    "hms": {
        "topic": {
            "Sports": {},
            "FOOTBALL": {"topic_string": "Sports/Football"},
            "strict": {"persistent_delivery": "ALL"},
        },
        "queue": {"results": {}, "small": {"max_messages": 1}},
        "subscription": {
            "into": {"topic": "Sports/+/Results", "queue": "results", "correlation_id": "R"},
            "tight": {"topic": "strict/#", "queue": "small"},
        },
    }
}
WAIT_S = 60


@pytest.fixture
def session(node):
    with hms.connect(node.address) as connection, connection.session() as session:
        yield session


def _bodies(consumer, count):
    return [consumer.receive(WAIT_S).body for _ in range(count)]


def test_a_subscriber_with_wildcards_gets_each_publication_with_its_topic(session):
    """F-C19: the topic is the message's destination."""
    every = session.subscriber(session.topic("Sports/#"))
    teams = session.subscriber("Sports/Football/*s*", scheme="CHARACTER")
    for string in ("Arsenal", "Leeds/Results"):
        session.producer(hms.Topic("FOOTBALL", string)).send(string)
    found = [every.receive(WAIT_S) for _ in range(2)]
    assert [m.destination for m in found] == [
        hms.Topic("Sports/Football/Arsenal"),
        hms.Topic("Sports/Football/Leeds/Results"),
    ]
    assert _bodies(teams, 2) == ["Arsenal", "Leeds/Results"]


def test_a_topic_that_no_configured_one_covers_is_refused(session):
    """A slip of the pen is told at once."""
    with pytest.raises(hms.DestinationNotFound):
        session.producer(hms.Topic("Sprots/Football"))
    with pytest.raises(hms.TopicStringError):
        session.subscriber(hms.Topic("", "/" * 300))


def test_a_later_subscriber_gets_what_is_retained_over_a_kill(node):
    """RP-06: persistent state outlives the node."""
    with hms.connect(node.address) as connection, connection.session() as session:
        out = session.producer("topic:Sports/Football/Score", retain=True)
        out.send("0:0")
        out.send("1:0")
        session.producer("topic:Sports/x").send("lost", persistent=False, retain=True)
    node.kill()
    node.boot()
    with hms.connect(node.address) as connection, connection.session() as session:
        got = session.subscriber("Sports/#")
        message = got.receive(WAIT_S)
        assert (message.body, message.is_retained) == ("1:0", True)
        assert message.topic == hms.Topic("Sports/Football/Score")
        session.producer(hms.Topic("Sports")).send("news")
        assert not got.receive(WAIT_S).is_retained


def test_retained_publications_may_be_asked_for(session):
    """SU-19, SU-20, SU-22."""
    session.producer(hms.Topic("Sports/a"), retain=True).send("state")
    only_new = session.subscriber("Sports/a", retained="NEW")
    asking = session.subscriber("Sports/a", retained="REQUEST")
    session.producer(hms.Topic("Sports/a")).send("news")
    assert only_new.receive(WAIT_S).body == "news"
    assert asking.request_retained() == 1
    assert asking.receive(WAIT_S).body == "state"
    with pytest.raises(hms.NoRetainedMessage):
        session.subscriber("Sports/b").request_retained()


def test_a_durable_subscription_with_wildcards_continues_after_a_kill(node):
    """SU-a, F-E4."""
    topic = hms.Topic("Sports/+/Results")
    with hms.connect(node.address) as connection, connection.session() as session:
        session.subscriber(topic, durable="d", life_s=3600)
        session.producer(hms.Topic("Sports/Rugby/Results")).send("1")
    node.kill()
    node.boot()
    with hms.connect(node.address) as connection, connection.session() as session:
        session.producer(hms.Topic("Sports/Rugby/Results")).send("2")
        got = session.subscriber(topic, durable="d")
        assert sorted(_bodies(got, 2)) == ["1", "2"]
        got.close()
        session.unsubscribe(topic, "d")
        with pytest.raises(hms.SubscriptionNotFound):
            session.unsubscribe(topic, "d")


def test_a_configured_subscription_puts_topics_into_a_queue(session):
    """SU-02, SU-18."""
    session.producer(hms.Topic("Sports/Rugby/Results")).send("x", {"n": 1})
    message = session.consumer(hms.Queue("results")).receive(WAIT_S)
    assert (message.body, message.correlation_id) == ("x", "R")
    assert message.destination == hms.Queue("results")
    assert message.topic == hms.Topic("Sports/Rugby/Results")
    assert message.properties["n"] == 1


def test_a_subscriber_may_have_its_topics_put_into_a_queue(session):
    """SU-13, SU-c: until it closes; what is there stays."""
    route = session.subscriber("Sports/x", into=hms.Queue("results"), correlation_id="x")
    session.producer(hms.Topic("Sports/x")).send("1")
    route.close()
    session.producer(hms.Topic("Sports/x")).send("2")
    inn = session.consumer(hms.Queue("results"), selector="JMSCorrelationID = 'x'")
    assert inn.receive(WAIT_S).body == "1"
    assert inn.receive_nowait() is None


def test_a_publication_that_a_full_queue_must_take_is_refused(session):
    """PD-04."""
    out = session.producer(hms.Topic("strict/x"))
    out.send("1")
    with pytest.raises(hms.PublicationFailed):
        out.send("2")


def test_topics_work_in_asyncio(node):
    """The same names, awaited."""

    async def run():
        connecting = hms.aio.connect(node.address)
        async with connecting as connection, connection.session() as session:
            producer = await session.producer(hms.Topic("Sports/a"), retain=True)
            await producer.send("state")
            got = await session.subscriber(session.topic("Sports/#"))
            first = await got.receive(WAIT_S)
            assert await got.request_retained() == 1
            second = await got.receive(WAIT_S)
            return first.body, second.body, second.is_retained

    assert asyncio.run(run()) == ("state", "state", True)
