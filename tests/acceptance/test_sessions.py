"""Acknowledgement modes, shared subscriptions, redelivery and events: on a real node."""

import itertools
import queue
import select

import pytest

import hms
from hms.testing import node
from tests.support.waiting import wait_until

CONNECT = {"reconnect": False}

CONFIG = (
    "".join(f"[hms.queue.s{n}]\n" for n in range(30))
    + """
[hms.queue.full]
max_messages = 3
[hms.topic.news]
[hms.topic.sport]
"""
)
WAIT_S = 60
TTL_S = 2
"""Long enough to be dispatched in."""
_names = itertools.count()


@pytest.fixture
def dest():
    """A queue that no other test uses."""
    return hms.Queue(f"s{next(_names)}")


def _send(conn, dest, count=5, **options):
    with conn.session() as session:
        session.producer(dest, **options).send_many([b"%d" % i for i in range(count)])


def _receive(consumer, count):
    return [consumer.receive(timeout_s=WAIT_S) for _ in range(count)]


def _show(conn, dest):
    return conn.administer("queue.show", {"name": dest.name})


# ---- DUPS_OK and NONE


@pytest.fixture
def _no_tick(monkeypatch):
    """What is held back stays so, however long the test takes."""
    monkeypatch.setattr("hms.client.settlement.LAZY_TICK_S", 600.0)


@pytest.mark.usefixtures("_no_tick")
def test_lazy_acknowledgement_waits_for_ten(conn, dest):
    """F-B3: nine are not acknowledged, ten are, in one batch."""
    _send(conn, dest, 25)
    with conn.session(ack=hms.AckMode.DUPS_OK) as session:
        consumer = session.consumer(dest)
        _receive(consumer, 9)
        assert _show(conn, dest)["acknowledged"] == 0
        _receive(consumer, 1)
        wait_until(lambda: _show(conn, dest)["acknowledged"] == 10)
        _receive(consumer, 5)
        assert _show(conn, dest)["acknowledged"] == 10
    assert _show(conn, dest)["acknowledged"] == 15


def test_lazy_acknowledgement_comes_when_nothing_more_does(conn, dest):
    """F-B3: the last messages of the day must not stay unacknowledged until the next morning."""
    _send(conn, dest, 3)
    with conn.session(ack=hms.AckMode.DUPS_OK) as session:
        _receive(session.consumer(dest), 3)
        wait_until(lambda: _show(conn, dest)["acknowledged"] == 3)


@pytest.mark.usefixtures("_no_tick")
def test_lazily_acknowledged_messages_come_twice_after_a_crash(tmp_path):
    """F-B3: that is the price, and it is flagged."""
    with node(store=tmp_path / "store", config="[hms.queue.q]\n") as own:
        conn = hms.connect(own.address, reconnect=False)
        _send(conn, hms.Queue("q"), 3)
        session = conn.session(ack=hms.AckMode.DUPS_OK)
        _receive(session.consumer("q"), 3)
        own.kill()
        conn.close()
        own.boot()
        with hms.connect(own.address) as conn, conn.session() as session:
            again = _receive(session.consumer("q"), 3)
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    assert all(message.redelivered for message in again)


def test_a_send_that_nobody_waits_for_has_no_id(conn, dest):
    """F-B4: it returns before the node answers, and still arrives."""
    message = hms.Message(b"x")
    with conn.session(ack=hms.AckMode.NONE) as session:
        producer = session.producer(dest)
        receipts = [producer.send(message), *producer.send_many([b"y", b"z"])]
    assert [receipt.message_id for receipt in receipts] == [None, None, None]
    assert _show(conn, dest)["waiting"] == 3


def test_without_acknowledgement_a_message_is_done_with_when_it_is_dispatched(conn, dest):
    """F-B4: recover() gives nothing back, and the prefetch limits what leaves the node."""
    _send(conn, dest, 20)
    with conn.session(ack=hms.AckMode.NONE) as session:
        consumer = session.consumer(dest, prefetch=4)
        wait_until(lambda: _show(conn, dest)["acknowledged"] == 4)
        first = _receive(consumer, 1)
        session.recover()
        rest = _receive(consumer, 19)
    assert [m.body for m in first + rest] == [b"%d" % i for i in range(20)]
    shown = _show(conn, dest)
    assert (shown["waiting"], shown["in_flight"], shown["redelivered"]) == (0, 0, 0)


@pytest.mark.parametrize("ack", [hms.AckMode.NONE, hms.AckMode.DUPS_OK])
def test_a_transacted_session_ignores_the_lazy_modes(conn, dest, ack):
    """F-B4, F-B5: what it receives is given back by rollback(), what it sends has an id."""
    _send(conn, dest, 1)
    with conn.session(ack=ack, transacted=True) as session:
        assert session.ack_mode is hms.AckMode.AUTO
        consumer = session.consumer(dest)
        _receive(consumer, 1)
        session.rollback()
        assert _receive(consumer, 1)[0].redelivered
        assert session.producer(dest).send(b"x").message_id


# ---- subscriptions


@pytest.mark.parametrize("kind", ["durable", "name"])
def test_subscribers_share_a_subscription(running, conn, kind):
    """F-E6: each message goes to one of them, and to every other subscription as well."""
    with hms.connect(running.address) as other, conn.session() as one, other.session() as two:
        given = {kind: f"team-{kind}", "shared": True, "prefetch": 1}
        members = [s.subscriber(hms.Topic("news"), **given) for s in (one, two)]
        alone = one.subscriber(hms.Topic("news"))
        one.producer(hms.Topic("news")).send_many([b"%d" % i for i in range(20)])
        bodies = []
        while len(bodies) < 20:
            found = [member.receive(0.05) for member in members]
            bodies += [message.body for message in found if message is not None]
        assert sorted(bodies, key=int) == [b"%d" % i for i in range(20)]
        assert len(_receive(alone, 20)) == 20
    if kind == "durable":
        with conn.session() as session:
            session.unsubscribe(hms.Topic("news"), f"team-{kind}")


def test_another_selector_on_a_shared_subscription_is_refused(conn):
    """F-E6: its members would not know what they get."""
    with conn.session() as session:
        session.subscriber(hms.Topic("sport"), name="team", shared=True, selector="A = 1")
        with pytest.raises(hms.DurableNameInUse):
            session.subscriber(hms.Topic("sport"), name="team", shared=True, selector="A = 2")
        with pytest.raises(hms.InvalidArgument):
            session.subscriber(hms.Topic("sport"), shared=True)


# ---- redelivery


def _fail_first(seen, done, count):
    """A listener that fails the very first message, once."""

    def listener(message):
        seen.append((message.body, message.delivery_count))
        if len(seen) == 1:
            raise ValueError("this one fails once")
        if len(seen) == count:
            done.put(None)

    return listener


def test_an_ordered_listener_gets_a_failed_message_before_those_behind_it(conn, dest):
    """F-E9: whoever books deposit and withdrawal cannot take them in another order."""
    _send(conn, dest, 5)
    seen, done = [], queue.Queue()
    with conn.session() as session:
        session.consumer(dest, ordered=True).listen(_fail_first(seen, done, 6))
        done.get(timeout=WAIT_S)
    assert [body for body, _ in seen] == [b"0", b"0", b"1", b"2", b"3", b"4"]
    assert [count for _, count in seen] == [1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize("prefetch", [1, 2, 3, 5])
def test_a_listener_goes_on_however_little_is_prefetched(conn, dest, prefetch):
    """Credit is given when it is used up, not with the next message: that waits for it."""
    taken = queue.Queue()
    with conn.session() as session:
        session.consumer(dest, prefetch=prefetch).listen(lambda message: taken.put(message.body))
        _send(conn, dest, 12)
        got = [taken.get(timeout=WAIT_S) for _ in range(12)]
    assert got == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("mode", [hms.AckMode.AUTO, hms.AckMode.CLIENT, hms.AckMode.DUPS_OK])
def test_what_expired_between_two_messages_is_told_whatever_becomes_of_them(conn, dest, mode):
    """It would count as in flight for ever, when the listener never comes for more."""
    waiting = queue.Queue()

    with conn.session(ack=mode) as session:
        session.consumer(dest).listen(lambda _: waiting.get(timeout=WAIT_S))
        _send(conn, dest, 1)
        _send(conn, dest, 2, ttl_s=TTL_S)
        _send(conn, dest, 1)
        wait_until(lambda: _show(conn, dest)["dispatched"] == 4)
        select.poll().poll(1000 * TTL_S + 200)
        waiting.put(None)
        wait_until(lambda: _show(conn, dest)["expired"] == 2)
        waiting.put(None)  # else the session's end would wait for the listener


def test_an_unordered_listener_goes_on_with_what_was_prefetched(conn, dest):
    """F-E9 is opt-in: taking everything back costs."""
    _send(conn, dest, 5)
    seen, done = [], queue.Queue()
    with conn.session() as session:
        session.consumer(dest).listen(_fail_first(seen, done, 6))
        done.get(timeout=WAIT_S)
    assert [body for body, _ in seen] == [b"0", b"1", b"2", b"3", b"4", b"0"]


def test_a_consumer_may_delay_what_failed_there(conn, dest):
    """F-C9: the others go on meanwhile; order and delay exclude each other."""
    _send(conn, dest, 2)
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        consumer = session.consumer(dest, redelivery_delay_s=0.2, prefetch=1)
        _receive(consumer, 1)
        session.recover()
        bodies = [message.body for message in _receive(consumer, 2)]
        with pytest.raises(hms.InvalidArgument):
            session.consumer(dest, redelivery_delay_s=1, ordered=True)
        with pytest.raises(hms.InvalidArgument):
            session.consumer(dest, redelivery_delay_s=-1)
        session.ack()
    assert bodies == [b"1", b"0"]


def test_a_message_may_bring_its_own_redelivery_limit(conn, dest):
    """F-C9: names that begin with JMS_HMS_ are for the sender; other JMS names stay reserved."""
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        producer, consumer = session.producer(dest), session.consumer(dest)
        producer.send(b"once", {"JMS_HMS_RedeliveryLimit": 1})
        message = _receive(consumer, 1)[0]
        assert message.properties["JMS_HMS_RedeliveryLimit"] == 1
        session.recover()
        wait_until(lambda: _show(conn, dest)["dead_lettered"] == 1)
        with pytest.raises(hms.ReservedProperty):
            producer.send(b"x", {"JMSFoo": 1})
