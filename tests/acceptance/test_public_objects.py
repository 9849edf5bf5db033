"""What users look for first: send() of a session, header options, readable options, contexts."""

import asyncio
import inspect

import pytest

import hms
from hms.client.kept_producers import KEPT_MAX
from hms.client.public_names import PUBLIC

CONFIG = "[node.NODE1]\nopen_topics = true\n[hms.queue.orders]\n[hms.topic.news]\n"
CONNECT = {"client_id": "billing"}
ORDERS, NEWS = hms.Queue("orders"), hms.Topic("news")
WAIT_S = 60
INTERNALS = """acknowledging_all acknowledging committing closing run link lock flush begin stop
    join mark_sent encode received received_many readable writable reserved delivered_id uploaded
    prepared sending added adding submit_packs settle set_listener take_for_listener handling
    state listening check_open sends_settled at_hand taken saving request run_service start_call"""


def test_a_session_sends_without_a_producer(conn):
    """JMS's producer without a destination: where an answer goes is known from the message only."""
    with conn.session() as session:
        answers = session.temporary_queue()
        inn, news = session.consumer(answers), session.subscriber(NEWS)

        receipt = session.send(answers, "one", {"n": 1}, priority=7)
        session.send(str(answers), b"two", ttl_s=60)
        session.send(NEWS, "three")

        first, second = (inn.receive(timeout_s=WAIT_S) for _ in range(2))
        assert (first.body, first.priority, first.message_id) == ("one", 7, receipt.message_id)
        assert (second.body, news.receive(timeout_s=WAIT_S).body) == (b"two", "three")
        with pytest.raises(hms.DestinationNotFound):
            session.send(hms.Queue("nowhere"), "lost")
        session.send(answers, "the session goes on")


def test_what_a_session_sends_belongs_to_its_transaction(conn):
    """It is a send like any other."""
    with conn.session(transacted=True) as work, conn.session() as other:
        work.send(ORDERS, "dropped")
        work.rollback()
        work.send(ORDERS, "kept")
        work.commit()

        inn = other.consumer(ORDERS)
        assert inn.receive(timeout_s=WAIT_S).body == "kept"
        assert inn.receive(timeout_s=0) is None


def test_a_session_keeps_no_more_producers_than_its_limit(conn):
    """Whoever answers thousands of clients must not hold a producer for each."""
    with conn.session() as session:
        for number in range(KEPT_MAX + 10):
            session.send(hms.Topic("", f"clients/{number}"), "hello")

        assert len(session.state.senders) <= KEPT_MAX + 1
        assert session.send(hms.Topic("", "clients/0"), "again").message_id


def test_a_bare_body_gets_its_header_from_the_send(conn):
    """Without a Message around it; a Message has a header of its own."""
    with conn.session() as session:
        out, inn = session.producer(ORDERS), session.consumer(ORDERS)
        how = {"correlation_id": "c-1", "type": "order", "reply_to": "queue:answers"}

        out.send("text", {"n": 1}, **how)
        out.send_async(b"bytes", **how).result(WAIT_S)

        for body in ("text", b"bytes"):
            message = inn.receive(timeout_s=WAIT_S)
            assert (message.body, message.correlation_id, message.type) == (body, "c-1", "order")
            assert message.reply_to == hms.Queue("answers")
        with pytest.raises(hms.InvalidArgument, match="correlation_id"):
            out.send(hms.Message(b"x"), correlation_id="c-2")


def test_options_can_be_read_where_they_were_given(conn):
    """A library that is handed a producer or consumer sees what it does."""
    assert conn.client_id == "billing"
    with conn.session() as session:
        out = session.producer(
            NEWS, name="p", persistent=False, ttl_s=1.5, priority=7, retain=True, compress=True
        )
        assert (out.destination, out.name, out.persistent, out.ttl_s) == (NEWS, "p", False, 1.5)
        assert (out.priority, out.delay_s, out.retain, out.compress) == (7, 0, True, "zlib")
        late = session.producer(ORDERS, delay_s=2)
        assert (late.delay_s, late.retain, late.compress) == (2, False, "")

        inn = session.subscriber(
            NEWS, name="c", durable="d", shared=True, no_local=True, prefetch=7, selector="n > 1",
            redelivery_delay_s=2.5,
        )  # fmt: skip
        assert (inn.destination, inn.name, inn.durable, inn.selector) == (NEWS, "c", "d", "n > 1")
        assert (inn.shared, inn.no_local, inn.prefetch) == (True, True, 7)
        assert (inn.ordered, inn.redelivery_delay_s) == (False, 2.5)


def test_the_version_is_that_of_the_distribution():
    """The first line of every report of a fault."""
    assert hms.__version__.split(".")[0].isdigit()
    assert "__version__" in dir(hms)


def test_a_context_is_made_from_a_context(running):
    """JMSContext.createContext: one connection, which is closed with the last of them."""
    first = hms.context(running.address)
    with first.context(transacted=True) as second:
        second.send(ORDERS, "in a transaction")
        assert first.receive(ORDERS, timeout_s=0) is None
        first.close()
        first.close()
        second.commit()
        assert second.receive(ORDERS, timeout_s=WAIT_S).body == "in a transaction"
        assert second.connection.is_connected
    assert second.connection.is_ended


def test_asyncio_has_the_same(running):
    """session.send, header options, contexts, readable options."""

    async def run():
        async with (
            hms.aio.connect(running.address, client_id="aio") as conn,
            conn.session() as session,
        ):
            answers = await session.temporary_queue()
            inn = await session.consumer(answers, prefetch=3)
            await asyncio.gather(*(session.send(answers, str(n), type="t") for n in range(20)))
            got = [await inn.receive(timeout_s=WAIT_S) for _ in range(20)]
            assert sorted(int(one.body) for one in got) == list(range(20))
            assert {one.type for one in got} == {"t"}
            assert (conn.client_id, inn.prefetch) == ("aio", 3)
            with pytest.raises(hms.DestinationNotFound):
                await session.send(hms.Queue("nowhere"), "lost")
            for number in range(KEPT_MAX + 5):
                await session.send(hms.Topic("", f"aio/{number}"), "hello")
            assert len(session.state.senders) <= KEPT_MAX + 1
        async with hms.aio.context(running.address) as first:
            async with first.context(transacted=True) as second:
                await second.send(ORDERS, "x")
            assert (await first.receive(ORDERS, timeout_s=WAIT_S)).body == "x"
            assert first.connection.is_connected
        assert first.connection.is_ended

    asyncio.run(run())


def _objects(conn):
    session = conn.session()
    yield from (conn, session, session.producer(ORDERS), session.consumer(NEWS))
    yield from (session.browser(ORDERS), hms.Message(b"x"))


def test_dir_shows_what_is_promised_and_no_internals(conn):
    """Who explores an object in a shell must find the few names that are for him."""
    for shown in _objects(conn):
        names = [name for name in dir(shown) if not name.startswith("_")]
        promised = PUBLIC[type(shown).__name__]
        assert sorted(names) == sorted(promised)
        assert not set(names) & set(INTERNALS.split())
        assert [name for name in names if name != "resource" and not hasattr(shown, name)] == []


@pytest.mark.parametrize("kind", sorted(set(PUBLIC) - {"Message"}))
def test_asyncio_promises_the_same_names(kind):
    """They are awaited, that is all; conversations need a thread."""
    blocking, awaited = getattr(hms, kind, None), getattr(hms.aio, kind)
    instance_only = {"connection", "session", "addresses", "request_timeout_s", "transacted"}

    for name in set(PUBLIC[kind]) - instance_only - {"conversation"}:
        assert inspect.getattr_static(blocking, name, None) is not None, name
        assert inspect.getattr_static(awaited, name, None) is not None, name
