"""What stands in hms.conf about redelivery, expiry and subscriptions, on a real node."""

import time

import hms
from hms.testing import node

CONNECT = {"reconnect": False}

CONFIG = """
[hms.queue.late]
[hms.queue.hurried]
expired_to = "late"
[hms.queue.patient]
redelivery_delay_s = 2
[hms.queue.careless]
redelivery_limit = 1
dead_letter = ""
[hms.topic.news]
expired_to = "late"
redelivery_delay_s = 2
[hms.subscription.billing]
topic = "news"
[hms.subscription.europe]
topic = "news"
selector = "Region = 'EU'"
"""
DELAY_S = 2
WAIT_S = 60


def _send(conn, destination, bodies, **options):
    with conn.session() as session:
        session.producer(destination, **options).send_many([hms.Message(body) for body in bodies])


def _bodies(consumer, count):
    return [consumer.receive(timeout_s=WAIT_S).body for _ in range(count)]


def test_a_configured_subscription_keeps_messages_over_a_crash_before_its_consumer_comes(tmp_path):
    """F-E5: what is published before a subscriber was ever started is not lost."""
    topic = hms.Topic("news")
    with node(store=tmp_path / "store", config=CONFIG) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            out = session.producer(topic)
            out.send(b"0", properties={"Region": "EU"})
            out.send(b"1", properties={"Region": "US"})
        running.kill()
        running.boot()
        with hms.connect(running.address) as conn, conn.session() as session:
            session.producer(topic).send(b"2", properties={"Region": "EU"})
            billing = session.subscriber(topic, durable="billing")
            europe = session.subscriber(topic, durable="europe", selector="Region = 'EU'")
            assert _bodies(billing, 3) == [b"0", b"1", b"2"]
            assert _bodies(europe, 2) == [b"0", b"2"]
            assert europe.receive(timeout_s=0.2) is None


def test_an_expired_message_goes_to_the_queue_that_is_named_with_the_reason(conn):
    """F-C10: an order that came too late is somebody's work, not nobody's."""
    _send(conn, hms.Queue("hurried"), [b"too late"], ttl_s=0.05)

    with conn.session() as session:
        late = session.consumer(hms.Queue("late"), selector="$DeadOrigin = 'queue:hurried'")
        letter = late.receive(timeout_s=WAIT_S)
    assert letter.body == b"too late"
    assert letter.properties["$DeadReason"] == "EXPIRED"
    assert conn.administer("queue.show", {"name": "hurried"})["expired"] == 1


def test_what_expires_in_a_subscription_goes_where_its_topic_says(conn):
    """F-C10; the letter names the subscription, since others may have read the message."""
    _send(conn, hms.Topic("news"), [b"old news"], ttl_s=0.05)

    with conn.session() as session:
        late = session.consumer(hms.Queue("late"), selector="$DeadSubscription = 'billing'")
        letter = late.receive(timeout_s=WAIT_S)
    assert letter.body == b"old news"
    assert letter.properties["$DeadReason"] == "EXPIRED"
    assert letter.properties["$DeadOrigin"] == "topic:news"


def test_a_failed_message_waits_while_those_behind_it_are_delivered(conn):
    """F-C9: a poison message never stops the queue behind it."""
    queue = hms.Queue("patient")
    _send(conn, queue, [b"%d" % n for n in range(5)])
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer(queue)
        assert consumer.receive(timeout_s=WAIT_S).body == b"0"
        failed_at = time.monotonic()
        session.recover()

        assert _bodies(consumer, 4) == [b"1", b"2", b"3", b"4"]
        session.ack()
        again = consumer.receive(timeout_s=WAIT_S)
        waited_s = time.monotonic() - failed_at
        again.ack()
    assert (again.body, again.delivery_count) == (b"0", 2)
    assert waited_s > DELAY_S - 0.1


def test_a_message_that_fails_too_often_is_discarded_and_counted_where_no_queue_keeps_it(conn):
    """dead_letter = "": the operator's own word, and nothing of it reaches HMS.DLQ (P9)."""
    queue = hms.Queue("careless")
    _send(conn, queue, [b"poison", b"good"])
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer(queue)
        assert consumer.receive(timeout_s=WAIT_S).body == b"poison"
        session.recover()
        assert consumer.receive(timeout_s=WAIT_S).body == b"good"
        session.ack()
    shown = conn.administer("queue.show", {"name": "careless"})
    assert (shown["dead_lettered"], shown["waiting"]) == (1, 0)
    assert conn.administer("queue.show", {"name": "HMS.DLQ"})["waiting"] == 0


def test_full_frames_pass_a_node_with_the_smallest_limits(tmp_path):
    """A segment that a client's frame does not fit into would stop the node."""
    small = {
        "max_message_bytes": "1 KiB",
        "max_transaction_bytes": "1 KiB",
        "segment_bytes": "1 MiB",
        "max_pending_bytes": "1 MiB",
    }
    config = {"node": {"n": small}, "hms": {"queue": {"q": {}}}}
    bodies = [b"%06d" % n * 160 for n in range(3000)]
    with node(store=tmp_path / "store", config=config) as running:
        with hms.connect(running.address, reconnect=False) as conn:
            _send(conn, hms.Queue("q"), bodies)
            with conn.session() as session:
                assert _bodies(session.consumer(hms.Queue("q")), 3000) == bodies
        assert running.stop() == 0
