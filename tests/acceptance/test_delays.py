"""Messages with a delay, on a real node: never early, kept over crashes, in transactions."""

import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest

import hms
from hms.testing import node

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(20)) + "[hms.topic.news]\n"
WAIT_S = 60
DELAY_S = 0.7
_names = itertools.count()


@pytest.fixture
def queue():
    """A queue that no other test uses."""
    return hms.Queue(f"q{next(_names)}")


def test_a_delayed_message_comes_when_it_is_due_and_not_before(conn, queue):
    """F-D4: who plans for tomorrow must not be answered today."""
    with conn.session() as session:
        inn, out = session.consumer(queue), session.producer(queue, delay_s=DELAY_S)
        began = time.monotonic()
        sent = hms.Message(b"later")
        out.send(sent)
        received = inn.receive(timeout_s=WAIT_S)
        took_s = time.monotonic() - began

    assert received.body == b"later"
    assert took_s >= DELAY_S
    assert received.delivery_time_ms == sent.delivery_time_ms
    assert received.delivery_time_ms - received.timestamp_ms == DELAY_S * 1000
    assert received.properties["$DeliveryTime"] == received.delivery_time_ms


def test_a_message_is_sent_for_a_moment_instead_of_after_a_delay(conn, queue):
    """A date in next week's calendar is what people have."""
    with conn.session() as session:
        inn, out = session.consumer(queue), session.producer(queue)
        began, moment = time.monotonic(), datetime.now(UTC) + timedelta(seconds=1)
        out.send(b"then", deliver_at=moment)
        out.send(b"gone by", deliver_at=time.time() - 60)
        found = {m.body: m for m in [inn.receive(timeout_s=WAIT_S) for _ in range(2)]}

        assert time.monotonic() - began >= DELAY_S
        assert found.keys() == {b"gone by", b"then"}
        assert found[b"then"].delivery_time_ms >= moment.timestamp() * 1000 - 100
        assert found[b"gone by"].delivery_time_ms == found[b"gone by"].timestamp_ms
        with pytest.raises(hms.HmsError, match="time zone"):
            out.send(b"", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the fault
        with pytest.raises(hms.HmsError, match="not both"):
            out.send(b"", deliver_at=moment, delay_s=1)


@pytest.mark.parametrize("delay_s", [-1, float("nan"), float("inf"), 1e30])
def test_a_delay_that_is_none_is_refused(conn, queue, delay_s):
    """A typed error that names the value, before anything is sent."""
    with conn.session() as session, pytest.raises(hms.HmsError, match="delay_s"):
        session.producer(queue).send(b"", delay_s=delay_s)


def test_what_overtakes_a_delayed_message_does_not_wait_for_it(conn, queue):
    """One message for next year must not hold up today's."""
    with conn.session() as session:
        out = session.producer(queue)
        out.send(b"next year", delay_s=365 * 86_400)
        out.send(b"today")

        assert session.consumer(queue).receive(timeout_s=WAIT_S).body == b"today"
    shown = conn.administer("queue.show", {"name": queue.name})
    assert (shown["waiting"], shown["delayed"]) == (0, 1)


def test_the_delay_of_a_transaction_counts_from_the_send(conn, queue):
    """JMS 3.1 §7.9: the time of the commit is the node's business, that of the send the user's."""
    with conn.session() as plain, conn.session(transacted=True) as session:
        inn = plain.consumer(queue)
        session.producer(queue).send(b"due at commit", delay_s=0.2)
        assert inn.receive(timeout_s=0.6) is None
        session.commit()

        assert inn.receive(timeout_s=WAIT_S).body == b"due at commit"


def test_a_delayed_publication_goes_to_the_subscribers_of_the_send(conn):
    """JMS 3.1 §7.9: who subscribes in between was not there."""
    topic = hms.Topic("news")
    with conn.session() as session:
        first = session.subscriber(topic, durable="first")
        session.producer(topic).send(b"soon", delay_s=DELAY_S)
        late = session.subscriber(topic)

        assert first.receive(timeout_s=WAIT_S).body == b"soon"
        assert late.receive_nowait() is None


def test_a_retained_publication_cannot_be_delayed(conn):
    """It is there at once for whoever comes; a delay would say two things."""
    with conn.session() as session, pytest.raises(hms.HmsError, match="retains"):
        session.producer(hms.Topic("news")).send(b"", retain=True, delay_s=1)


def test_delayed_messages_are_there_after_a_crash_and_still_not_early(tmp_path):
    """Durable: a plan that a crash forgets is none."""
    with node(store=tmp_path / "store", config=CONFIG) as started:
        with hms.connect(started.address) as conn, conn.session() as session:
            out, began = session.producer("queue:q0"), time.monotonic()
            out.send_many([b"0", b"1", b"2"])
            out.send(b"later", delay_s=3)
            out.send(b"much later", delay_s=86_400)
        started.kill()
        started.boot(warm=True)
        with hms.connect(started.address) as conn, conn.session() as session:
            inn = session.consumer("queue:q0")
            bodies = [inn.receive(timeout_s=WAIT_S).body for _ in range(4)]
            took_s = time.monotonic() - began
            left = conn.administer("queue.show", {"name": "q0"})["delayed"]

    assert bodies == [b"0", b"1", b"2", b"later"]
    assert took_s >= 3
    assert left == 1
