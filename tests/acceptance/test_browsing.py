"""Browsers show what is there when a pass begins, on request what is in flight too."""

import asyncio

import pytest

import hms
import hms.aio

WAIT_S = 60
CONFIG = {"node": {"node1": {"auto_destinations": True}}}
CONNECT = {"client_id": "looking"}


def send(conn, queue, *bodies):
    with conn.session() as session:
        session.producer(queue).send_many(bodies)


def shown(browser):
    return [(message.body, message.is_in_flight) for message in browser]


def test_a_pass_shows_what_waits_when_it_begins(conn):
    """It showed the page that was read when the browser was made."""
    queue = hms.Queue("passes")
    send(conn, queue, "before")
    with conn.session() as session:
        browser = session.browser(queue, oldest_first=True)
        send(conn, queue, "after")

        assert [m.body for m in browser] == ["before", "after"]
        send(conn, queue, "later")
        assert [m.body for m in browser] == ["before", "after", "later"]


@pytest.mark.parametrize("what", ["browser", "session", "connection"])
def test_a_browser_ends_with_its_session(running, what):
    """It answered after its session was closed, from the page that it had."""
    queue = hms.Queue(f"closed-{what}")
    with hms.connect(running.address) as conn:
        send(conn, queue, "a", "b")
        session = conn.session()
        browser = session.browser(queue)
        assert browser.next_message() is not None

        {"browser": browser, "session": session, "connection": conn}[what].close()

        with pytest.raises(hms.ConnectionClosed):
            browser.next_message()
        with pytest.raises(hms.ConnectionClosed):
            list(browser)


def test_what_is_in_flight_is_shown_with_a_mark_on_request(conn):
    """A newcomer saw an empty queue while a consumer had its 500 messages."""
    queue = hms.Queue("held")
    send(conn, queue, *"abcde")
    with (
        conn.session(transacted=True) as holding,
        holding.consumer(queue, prefetch=3) as consumer,
        conn.session() as session,
    ):
        assert consumer.receive(timeout_s=WAIT_S).body == "a"

        marked = session.browser(queue, oldest_first=True, in_flight=True)
        plain = session.browser(queue, oldest_first=True)

        flying = [body for body, is_in_flight in shown(marked) if is_in_flight]
        assert [body for body, _ in shown(marked)] == list("abcde")
        assert flying == list("abcde")[: len(flying)]
        assert len(flying) >= 3
        assert shown(plain) == [(body, False) for body in "abcde"[len(flying) :]]
        holding.rollback()


def test_a_queue_says_who_holds_how_many(conn):
    """The sum is what is in flight, also of what a transaction has received."""
    queue = hms.Queue("holders")
    send(conn, queue, *"abcdefgh")
    with (
        conn.session(transacted=True) as one,
        conn.session(ack=hms.AckMode.CLIENT) as other,
    ):
        first = one.consumer(queue, prefetch=2, name="first")
        assert first.receive(timeout_s=WAIT_S) is not None
        assert first.receive(timeout_s=WAIT_S) is not None
        second = other.consumer(queue, prefetch=2, name="second")
        assert second.receive(timeout_s=WAIT_S) is not None

        about = conn.administer("queue.show", {"name": "holders"})

        assert sum(row["count"] for row in about["held_by"]) == about["in_flight"] > 0
        assert {"first", "second"} & {row["name"] for row in about["held_by"]}
        assert {row["client_id"] for row in about["held_by"]} == {"looking"}
        other.ack()
        one.rollback()
    assert conn.administer("queue.show", {"name": "holders"})["held_by"] == []


def test_asyncio_looks_the_same_way(running):
    """One core, two shells."""

    async def look():
        queue = hms.Queue("aio")
        async with hms.aio.connect(running.address) as conn, conn.session() as session:
            producer = await session.producer(queue)
            browser = await session.browser(queue, oldest_first=True, in_flight=True)
            await producer.send_many(["a", "b"])
            seen = [m.body async for m in browser]
            await session.close()
            with pytest.raises(hms.ConnectionClosed):
                await browser.next_message()
            return seen

    assert asyncio.run(look()) == ["a", "b"]
