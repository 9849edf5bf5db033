"""Exception and event listeners, and the context object: on a real node."""

import itertools
import queue

import pytest

import hms
from hms.testing import node

CONNECT = {"reconnect": False}

CONFIG = (
    "".join(f"[hms.queue.e{n}]\n" for n in range(5))
    + """
[hms.queue.full]
max_messages = 3
[hms.topic.news]
[hms.topic.sport]
"""
)
WAIT_S = 60
_names = itertools.count()


@pytest.fixture
def dest():
    """A queue that no other test uses."""
    return hms.Queue(f"e{next(_names)}")


def test_a_send_that_failed_unheard_is_told_to_the_listener(running):
    """F-E10: nobody waits for it, so somebody must be told, with the messages to send again."""
    told = queue.Queue()
    full, late = hms.Queue("full"), hms.Message(b"too many")
    with (
        hms.connect(running.address, exception_listener=told.put) as conn,
        conn.session(ack=hms.AckMode.NONE) as session,
    ):
        producer = session.producer(full)
        for _ in range(3):
            producer.send(b"x")
        producer.send(late)
        failure = told.get(timeout=WAIT_S)
        pending = producer.send_async(late)
        second = told.get(timeout=WAIT_S)
    assert isinstance(failure, hms.SendFailed)
    assert isinstance(failure.__cause__, hms.QueueFull)
    assert failure.messages == [late]
    assert isinstance(pending.exception(WAIT_S), hms.QueueFull)
    assert isinstance(second, hms.SendFailed)


def test_the_event_listener_hears_of_the_end_and_of_the_return(tmp_path):
    """F-E11: closed with its reason, reconnected with the address."""
    events = queue.Queue()
    options = {"reconnect_interval_s": 0.05, "event_listener": events.put}
    with (
        node(store=tmp_path / "store", config="[hms.queue.q]\n") as own,
        hms.connect(own.address, **options) as conn,
    ):
        own.kill()
        closed, failed = events.get(timeout=WAIT_S), events.get(timeout=WAIT_S)
        own.boot()
        after = events.get(timeout=WAIT_S)
        while after.kind is hms.EventKind.RECONNECT_FAILED:
            after = events.get(timeout=WAIT_S)
        assert conn.is_connected
    assert closed.kind == "closed"
    assert isinstance(closed.reason, hms.ConnectionLost)
    assert failed.kind == "reconnect_failed"
    assert (after.kind, after.address) == ("reconnected", own.address)


def test_a_watched_destination_tells_whether_somebody_receives(running, conn, dest):
    """F-E11: a producer may wait until there is a consumer."""
    events = queue.Queue()
    news = hms.Topic("sport")
    with hms.connect(running.address, event_listener=events.put) as watching:
        watching.watch(dest)
        told = [events.get(timeout=WAIT_S)]
        with conn.session() as session, session.consumer(dest):
            told.append(events.get(timeout=WAIT_S))
        told.append(events.get(timeout=WAIT_S))
        watching.watch(news)
        events.get(timeout=WAIT_S)
        with conn.session() as session, session.subscriber(news):
            of_topic = events.get(timeout=WAIT_S)
        with pytest.raises(hms.DestinationNotFound):
            watching.watch("nowhere")
    assert [event.kind for event in told] == [
        "consumer_not_ready",
        "consumer_ready",
        "consumer_not_ready",
    ]
    assert {event.destination for event in told} == {f"queue:{dest.name}"}
    assert (of_topic.kind, of_topic.destination) == ("consumer_ready", "topic:sport")


def test_watching_goes_on_after_the_node_was_killed(tmp_path):
    """F-E11: the node that was booted anew knows nothing of who watches."""
    events = queue.Queue()
    options = {"reconnect_interval_s": 0.05, "event_listener": events.put}

    def next_about_consumers():
        while not (event := events.get(timeout=WAIT_S)).destination:
            pass
        return event.kind

    with (
        node(store=tmp_path / "store", config="[hms.queue.q]\n") as own,
        hms.connect(own.address, **options) as conn,
    ):
        conn.watch("q")
        assert next_about_consumers() == "consumer_not_ready"
        own.kill()
        own.boot()
        with hms.connect(own.address) as other, other.session() as session, session.consumer("q"):
            assert next_about_consumers() == "consumer_ready"
        assert next_about_consumers() == "consumer_not_ready"


def test_the_context_acknowledges_and_recovers(running, dest):
    """F-B9: the simple case needs no session of its own."""
    with hms.context(running.address, ack=hms.AckMode.CLIENT) as context:
        for body in (b"a", b"b", b"c"):
            context.send(dest, body)
        context.receive(dest, timeout_s=WAIT_S)
        context.ack()
        context.receive(dest, timeout_s=WAIT_S)
        context.recover()
        assert context.receive(dest, timeout_s=WAIT_S).redelivered
        context.ack()
    with hms.context(running.address, transacted=True) as context:
        assert context.receive(dest, timeout_s=WAIT_S).body == b"c"
        context.send(dest, b"d")
        context.rollback()
        assert context.receive(dest, timeout_s=WAIT_S).body == b"c"
        context.commit()
    with hms.context(running.address) as context:
        with context.browser(dest) as browser:
            assert list(browser) == []
        with context.subscriber(hms.Topic("news"), durable="ctx") as subscriber:
            context.send(hms.Topic("news"), b"n")
            assert subscriber.receive(timeout_s=WAIT_S).body == b"n"
        context.unsubscribe(hms.Topic("news"), "ctx")
