"""Sessions, acknowledgement, redelivery, subscriptions, browsing: on a real node."""

import itertools

import pytest

import hms
from tests.support.waiting import wait_until

CONNECT = {"reconnect": False}

CONFIG = (
    "".join(f"[hms.queue.q{n}]\n" for n in range(30))
    + """
[hms.queue.full]
max_messages = 3
[hms.queue.once]
redelivery_limit = 1
[hms.topic.news]
"""
)
WAIT_S = 60
_names = itertools.count()


@pytest.fixture
def queue():
    """A queue that no other test uses."""
    return hms.Queue(f"q{next(_names)}")


def _send(conn, queue, count=5, **options):
    with conn.session() as session:
        receipts = session.producer(queue, **options).send_many([b"%d" % i for i in range(count)])
    return [receipt.message_id for receipt in receipts]


def _receive(consumer, count):
    return [consumer.receive(timeout_s=WAIT_S) for _ in range(count)]


def _bodies(messages):
    return [message.body for message in messages]


def _waiting(conn, queue):
    return conn.administer("queue.show", {"name": queue.name})["waiting"]


def test_automatic_acknowledgement_takes_a_message_once(conn, queue):
    """AUTO: received is done with, in the order in which it was sent (F-B1)."""
    sent = _send(conn, queue)
    with conn.session() as session:
        messages = _receive(session.consumer(queue), 5)
    assert [message.message_id for message in messages] == sent
    assert not any(message.redelivered for message in messages)
    assert all(message.delivery_count == 1 for message in messages)
    assert _waiting(conn, queue) == 0


def test_what_a_client_session_did_not_acknowledge_comes_back_in_order_and_flagged(conn, queue):
    """CLIENT, closed half way: the rest is redelivered with the right count (F-B2)."""
    _send(conn, queue)
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        messages = _receive(session.consumer(queue), 4)
        messages[0].ack()
        messages[1].ack()
    with conn.session() as session:
        again = _receive(session.consumer(queue), 3)
    assert _bodies(again) == [b"2", b"3", b"4"]
    assert [message.redelivered for message in again] == [True, True, False]
    assert [message.delivery_count for message in again] == [2, 2, 1]


def test_recover_begins_again_with_the_oldest_unacknowledged(conn, queue):
    """F-B8."""
    _send(conn, queue, 4)
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer(queue)
        _receive(consumer, 2)
        session.recover()
        again = _receive(consumer, 4)
        session.ack()
    assert _bodies(again) == [b"0", b"1", b"2", b"3"]
    assert [message.delivery_count for message in again] == [2, 2, 1, 1]
    assert _waiting(conn, queue) == 0


def test_a_poison_message_is_dead_lettered_after_its_last_attempt_with_the_reason(conn):
    """Exactly as many attempts as the limit; then HMS.DLQ has it (F-C8, F-C9)."""
    (sent,) = _send(conn, hms.Queue("once"), 1)
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer(hms.Queue("once"))
        assert consumer.receive(timeout_s=WAIT_S).message_id == sent
        session.recover()
        assert consumer.receive(timeout_s=0.2) is None
    with conn.session() as session:
        dead = session.consumer(hms.Queue("HMS.DLQ"), selector="$DeadOrigin = 'queue:once'")
        letter = dead.receive(timeout_s=WAIT_S)
    assert letter.message_id == sent
    assert letter.body == b"0"
    assert letter.properties["$DeadReason"] == "REDELIVERY_LIMIT"
    assert letter.properties["$DeadCount"] == 1


def test_a_transaction_over_two_queues_takes_effect_at_commit_and_not_before(conn, queue):
    """F-B5: sends become visible, receipts final, together."""
    other = hms.Queue(f"q{next(_names)}")
    _send(conn, queue, 2)
    with conn.session(transacted=True) as session:
        message = session.consumer(queue).receive(timeout_s=WAIT_S)
        session.producer(other).send(message.body)
        assert _waiting(conn, other) == 0
        session.commit()
        assert _waiting(conn, other) == 1
    assert _waiting(conn, queue) == 1


def test_rollback_drops_the_sends_and_returns_the_receipts(conn, queue):
    """F-B5; an exception in the block rolls back too."""
    other = hms.Queue(f"q{next(_names)}")
    _send(conn, queue, 2)

    def work(session):
        message = session.consumer(queue).receive(timeout_s=WAIT_S)
        session.producer(other).send(message.body)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), conn.session(transacted=True) as session:
        work(session)
    assert _waiting(conn, other) == 0
    with conn.session() as session:
        again = _receive(session.consumer(queue), 2)
    assert _bodies(again) == [b"0", b"1"]
    assert again[0].redelivered


def test_an_expired_message_is_never_delivered_and_is_counted(conn, queue):
    """F-D2, P9."""
    _send(conn, queue, 3, ttl_s=0.001)
    _send(conn, queue, 1)
    with conn.session() as session:
        consumer = session.consumer(queue)
        assert consumer.receive(timeout_s=WAIT_S).message_id is not None
        assert consumer.receive(timeout_s=0.2) is None
    shown = conn.administer("queue.show", {"name": queue.name})
    assert (shown["expired"], shown["waiting"], shown["acknowledged"]) == (3, 0, 1)


def test_what_expires_with_nobody_looking_is_swept_away(conn, queue):
    """A queue without consumers must not keep the dead for ever."""
    _send(conn, queue, 3, ttl_s=0.05)
    wait_until(lambda: not _waiting(conn, queue), WAIT_S)
    assert conn.administer("queue.show", {"name": queue.name})["expired"] == 3


def test_higher_priority_goes_first_and_order_is_kept_within_one(conn, queue):
    """F-D3."""
    with conn.session() as session:
        out = session.producer(queue)
        for body, priority in ((b"a", 4), (b"b", 9), (b"c", 4), (b"d", 9)):
            out.send(body, priority=priority)
        received = _receive(session.consumer(queue), 4)
    assert _bodies(received) == [b"b", b"d", b"a", b"c"]


def test_a_durable_subscriber_gets_what_was_published_while_it_was_away(conn):
    """F-E4; a selector keeps out what it does not want; unsubscribing ends it."""
    topic, selector = hms.Topic("news"), "Month > 4"
    with conn.session() as session:
        session.subscriber(topic, durable="billing", selector=selector).close()
        out = session.producer(topic)
        out.send_many([hms.Message(b"%d" % n, {"Month": n}) for n in range(3, 8)])
        back = session.subscriber(topic, durable="billing", selector=selector)
        assert _bodies(_receive(back, 3)) == [b"5", b"6", b"7"]
        with pytest.raises(hms.DurableNameInUse):
            session.subscriber(topic, durable="billing", selector=selector)
        back.close()
        session.unsubscribe(topic, "billing")
        with pytest.raises(hms.SubscriptionNotFound):
            session.unsubscribe(topic, "billing")


def test_a_topic_reaches_all_subscribers_of_the_moment_and_no_local_excludes_ones_own(
    conn, running
):
    """F-C2, F-E7."""
    topic = hms.Topic("news")
    with hms.connect(running.address) as other:
        mine = conn.session().subscriber(topic, no_local=True)
        theirs = [other.session().subscriber(topic) for _ in range(2)]
        conn.session().producer(topic).send(b"hello")
        assert [s.receive(timeout_s=WAIT_S).body for s in theirs] == [b"hello"] * 2
        assert mine.receive(timeout_s=0.2) is None


def test_a_browser_shows_newest_first_and_takes_nothing(conn, queue):
    """F-G1."""
    _send(conn, queue, 250)
    with conn.session() as session:
        with session.browser(queue) as browser:
            newest = _bodies(browser)
        with session.browser(queue, oldest_first=True) as browser:
            oldest = _bodies(browser)
    assert newest == [b"%d" % i for i in reversed(range(250))]
    assert oldest == newest[::-1]
    assert _waiting(conn, queue) == 250


def test_a_full_queue_refuses_the_newest_and_says_what_to_do(conn):
    """F-C11, REJECT_NEWEST."""
    out = conn.session().producer(hms.Queue("full"))
    for _ in range(3):
        out.send(b"x")
    with pytest.raises(hms.QueueFull, match="3 of max_messages 3"):
        out.send(b"x")
    assert _waiting(conn, hms.Queue("full")) == 3


def test_calls_in_the_wrong_kind_of_session_are_refused(conn, queue):
    """Each by its own error, and nothing changes."""
    with conn.session() as session:
        for call in (session.commit, session.rollback, session.ack):
            with pytest.raises(hms.IllegalState):
                call()
    with pytest.raises(hms.IllegalState):
        conn.session(transacted=True, ack=hms.AckMode.CLIENT)
    with pytest.raises(hms.IllegalState):
        conn.session(xa=True, transacted=True)
    consumer = conn.session().consumer(queue)
    consumer.close()
    with pytest.raises(hms.ConnectionClosed):
        consumer.receive(timeout_s=1)
