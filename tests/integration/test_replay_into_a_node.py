"""Replay from a running node's history into the same node, with a real Spark."""

import pytest

import hms
import hms.testing
from hms.history import count_events, replay, session

pytestmark = pytest.mark.spark

CONFIG = {"hms": {"queue": {"orders": {}, "again": {}, "other": {}}}}
COUNT = 300


@pytest.fixture(scope="module")
def spark():
    """The session of the whole run; the other tests of the history end it."""
    return session("hms-tests")


@pytest.fixture(scope="module")
def node():
    """A node that took orders of all priorities; the consumer is done with them."""
    with hms.testing.node(config=CONFIG) as running:
        with hms.connect(running.address) as connection, connection.session() as own:
            producer = own.producer(hms.Queue("orders"))
            for i in range(COUNT):
                body = hms.Message.text(f"order {i}", {"n": i, "half": i / 2, "odd": bool(i % 2)})
                body.correlation_id = f"c{i}"
                producer.send_async(body, priority=i % 10)
            producer.close()
            consumer = own.consumer(hms.Queue("orders"))
            for _ in range(COUNT):
                assert consumer.receive(timeout_s=20) is not None
        yield running


def sent_to(spark, node, name):
    """The sent rows of a queue, in the order of the log."""
    options = {"destination": f"queue:{name}", "view": "messages"}
    return (
        spark.read.format("hms").options(**options).load(str(node.store)).sort("offset").collect()
    )


def test_replayed_messages_arrive_as_they_were_and_in_their_order(spark, node):
    """Head, body, kind and priority are the same to the byte, and the order is that of the log."""
    report = replay(
        spark,
        node.store,
        address=node.address,
        destination="queue:orders",
        into="again",
        selector="n >= 100 AND odd = TRUE",
    )
    before = [row for row in sent_to(spark, node, "orders") if row.long_properties["n"] >= 100]
    before = [row for row in before if row.boolean_properties["odd"]]
    after = sent_to(spark, node, "again")

    assert (report.rows, report.sent) == (100, 100)
    assert [(r.head, r.body, r.kind, r.priority) for r in after] == [
        (r.head, r.body, r.kind, r.priority) for r in before
    ]
    assert not {r.message_id for r in after} & {r.message_id for r in before}
    assert (report.first_offset, report.last_offset) == (before[0].offset, before[-1].offset)


def test_a_consumer_receives_what_was_replayed(spark, node):
    """To an application a replayed message is a message."""
    replay(
        spark,
        node.store,
        address=node.address,
        destination="orders",
        into="queue:other",
        selector="n = 7",
        rate=50,
    )
    with hms.connect(node.address) as connection, connection.session() as own:
        message = own.consumer(hms.Queue("other"), selector="n = 7").receive(timeout_s=20)

    assert message.body == "order 7"
    assert dict(message.properties) == {"n": 7, "half": 3.5, "odd": True}
    assert (message.correlation_id, message.priority, message.redelivered) == ("c7", 7, False)


def test_the_whole_life_of_the_orders_is_in_the_history(node):
    """Every message is sent, delivered and acknowledged once: nothing is lost or doubled."""
    counts = {c.event: c.count for c in count_events(node.store) if c.destination == "orders"}

    assert counts["sent"] == counts["acknowledged"] == COUNT
    assert counts["delivered"] >= COUNT


def test_a_destination_that_is_not_there_is_told_before_anything_is_sent(spark, node):
    """The node refuses, and the error is one that applications catch."""
    with pytest.raises(hms.HmsError):
        replay(
            spark, node.store, address=node.address, destination="orders", into="queue:nowhere.here"
        )
