"""In-process listeners on a real node: how they end, what they close, what they raise."""

import asyncio
import itertools
import queue
import threading

import pytest

import hms
from tests.support.waiting import wait_until

WAIT_S = 60
CONFIG = None
_names = itertools.count()


@pytest.fixture
def told():
    """What the exception listener was told."""
    return queue.Queue()


@pytest.fixture
def conn(running, told):
    with hms.connect(
        running.address, request_timeout_s=WAIT_S, exception_listener=told.put
    ) as connection:
        yield connection


@pytest.fixture
def dest(conn):
    """A queue that no other test uses."""
    with conn.session() as session:
        return session.create_queue(f"listening{next(_names)}?redelivery-limit=3")


def _send(conn, dest, *bodies):
    with conn.session() as session:
        session.producer(dest).send_many(bodies)


def _shown(conn, dest):
    return conn.administer("queue.show", {"name": dest.name})


class Held:
    """A listener that waits until it may end."""

    def __init__(self):
        self.begun, self.may_end, self.seen = threading.Event(), threading.Event(), []

    def __call__(self, message):
        self.seen.append((message.body, message.delivery_count))
        self.begun.set()
        assert self.may_end.wait(WAIT_S)


def _in_thread(call):
    """Run it in a thread, which has begun."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_consumer_closes_when_its_own_listener_has_ended_and_nobody_gets_its_message(conn, dest):
    """Beside another consumer that listens in the same session."""
    _send(conn, dest, b"one")
    held = Held()
    with conn.session() as session, conn.session() as others:
        consumer = session.consumer(dest, prefetch=1)
        consumer.listen(held)
        assert held.begun.wait(WAIT_S)
        session.consumer(dest, prefetch=1).listen(held)
        other = others.consumer(dest)
        closing = _in_thread(consumer.close)
        assert other.receive(0.05) is None
        assert closing.is_alive()
        held.may_end.set()
        closing.join(WAIT_S)
        assert not closing.is_alive()
        wait_until(lambda: _shown(conn, dest)["acknowledged"] == 1)
        assert other.receive(0) is None
    assert held.seen == [(b"one", 1)]


def test_a_connection_closes_when_its_listeners_have_ended(running, conn, dest):
    """As a session does: their messages are settled by then."""
    _send(conn, dest, b"one")
    held = Held()
    connection = hms.connect(running.address, request_timeout_s=WAIT_S)
    connection.session().consumer(dest).listen(held)
    assert held.begun.wait(WAIT_S)
    closing = _in_thread(connection.close)
    with conn.session() as session:
        assert session.consumer(dest).receive(0.05) is None
    assert closing.is_alive()
    held.may_end.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert _shown(conn, dest)["acknowledged"] == 1
    assert _shown(conn, dest)["waiting"] == 0


def test_listeners_of_two_sessions_may_both_close_their_connection(running, conn, dest):
    """Neither waits for the other's close."""
    _send(conn, dest, b"one", b"two")
    connection = hms.connect(running.address, request_timeout_s=WAIT_S)
    both = threading.Barrier(2)

    def listener(_message):
        both.wait(WAIT_S)
        connection.close()

    for _ in range(2):
        connection.session().consumer(dest, prefetch=1).listen(listener)
    wait_until(lambda: connection.is_ended)
    wait_until(lambda: _shown(conn, dest)["acknowledged"] == 2)  # another connection told it


def test_a_task_that_a_listener_made_may_close_what_the_listener_works_in(running, conn, dest):
    """In asyncio a listener's own tasks count as the listener: they do not wait for it."""
    _send(conn, dest, b"one")

    async def tell():
        ended = asyncio.Event()
        async with hms.aio.connect(running.address) as connection, connection.session() as session:

            async def listener(_message):
                await asyncio.gather(session.close())
                ended.set()

            (await session.consumer(dest)).listen(listener)
            await asyncio.wait_for(ended.wait(), WAIT_S)

    asyncio.run(tell())
    wait_until(lambda: _shown(conn, dest)["acknowledged"] == 1)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_would_end_a_listeners_thread_is_told_and_its_message_comes_again(
    conn, dest, told, kind
):
    """It ended the session's listening silently."""
    _send(conn, dest, b"one")

    def listener(_message):
        raise kind(3)

    with conn.session() as session:
        consumer = session.consumer(dest)
        consumer.listen(listener)
        error = told.get(timeout=WAIT_S)
        assert isinstance(error, hms.ListenerInterrupted)
        assert kind.__name__ in str(error)
        again = consumer.receive(WAIT_S)
    assert (again.body, again.redelivered, again.delivery_count) == (b"one", True, 2)


def test_without_an_exception_listener_the_next_call_is_told(running, conn, dest):
    """Once; a new listener goes on."""
    _send(conn, dest, b"one")
    got = queue.Queue()

    def listener(message):
        raise SystemExit(message.body)

    with hms.connect(running.address) as quiet, quiet.session() as session:
        consumer = session.consumer(dest)
        consumer.listen(listener)
        wait_until(lambda: session.state.interruption is not None)
        with pytest.raises(hms.ListenerInterrupted):
            consumer.receive(WAIT_S)
        consumer.listen(lambda message: got.put(message.delivery_count))
        assert got.get(timeout=WAIT_S) == 2


def test_the_event_loop_goes_on_when_a_listener_there_raises_system_exit(running, conn, dest):
    """It is told as with threads."""
    _send(conn, dest, b"one")

    async def tell():
        heard = asyncio.Queue()
        async with (
            hms.aio.connect(running.address, exception_listener=heard.put_nowait) as connection,
            connection.session() as session,
        ):

            async def listener(_message):
                raise SystemExit(1)

            consumer = await session.consumer(dest)
            await consumer.listen(listener)
            error = await asyncio.wait_for(heard.get(), WAIT_S)
            return error, await consumer.receive(WAIT_S)

    error, again = asyncio.run(tell())
    assert isinstance(error, hms.ListenerInterrupted)
    assert again.delivery_count == 2


def test_a_listener_is_replaced_by_another_one(conn, dest):
    """Without listen(None) in between."""
    first, second = queue.Queue(), queue.Queue()
    with conn.session() as session:
        consumer = session.consumer(dest)
        consumer.listen(lambda message: first.put(message.body))
        _send(conn, dest, b"one")
        assert first.get(timeout=WAIT_S) == b"one"
        consumer.listen(lambda message: second.put(message.body))
        _send(conn, dest, b"two")
        assert second.get(timeout=WAIT_S) == b"two"
    assert first.empty()


@pytest.mark.parametrize("kind", ["AUTO", "CLIENT", "transacted"])
def test_a_listener_rejects_its_message_which_is_a_dead_letter_at_once(conn, dest, kind):
    """hms.Reject, as in a service."""
    _send(conn, dest, b"never", b"next")
    seen = queue.Queue()
    options = {"transacted": True} if kind == "transacted" else {"ack": hms.AckMode[kind]}

    with conn.session(**options) as session, conn.session() as reading:

        def listener(message):
            seen.put((message.body, message.delivery_count))
            if message.body == b"never":
                raise hms.Reject("of no use")

        session.consumer(dest, prefetch=1).listen(listener)
        assert seen.get(timeout=WAIT_S) == (b"never", 1)
        assert seen.get(timeout=WAIT_S) == (b"next", 1)
        letter = reading.consumer(hms.Queue("HMS.DLQ")).receive(WAIT_S)
    assert (letter.body, letter.property("$DeadReason")) == (b"never", "REJECTED")
    assert letter.property("$DeadCount") == 1


@pytest.mark.parametrize("kind", ["AUTO", "CLIENT", "transacted"])
def test_a_listener_has_its_message_tried_again_after_a_delay(conn, dest, kind):
    """hms.Retry: those behind it go on meanwhile."""
    _send(conn, dest, b"later", b"next")
    seen = queue.Queue()
    options = {"transacted": True} if kind == "transacted" else {"ack": hms.AckMode[kind]}

    with conn.session(**options) as session:

        def listener(message):
            seen.put((message.body, message.delivery_count))
            if message.body == b"later" and message.delivery_count == 1:
                raise hms.Retry(delay_s=2)  # its credit for the next one is a word of its own
            if kind == "transacted":
                session.commit()

        session.consumer(dest, prefetch=1).listen(listener)
        got = [seen.get(timeout=WAIT_S) for _ in range(3)]
    assert got == [(b"later", 1), (b"next", 1), (b"later", 2)]


@pytest.mark.parametrize("is_listener", [False, True])
def test_a_consumers_delay_holds_after_a_rollback(conn, dest, is_listener):
    """What came behind is taken first; without the delay it is the other way round."""
    _send(conn, dest, b"one", b"two")
    seen = queue.Queue()
    with conn.session(transacted=True) as session:
        consumer = session.consumer(dest, redelivery_delay_s=0.3, prefetch=1)
        if is_listener:

            def listener(message):
                seen.put((message.body, message.delivery_count))
                if message.body == b"one" and message.delivery_count == 1:
                    raise ValueError("not now")
                session.commit()

            consumer.listen(listener)
            got = [seen.get(timeout=WAIT_S) for _ in range(3)]
        else:
            first = consumer.receive(WAIT_S)
            session.rollback()
            rest = [consumer.receive(WAIT_S) for _ in range(2)]
            got = [(m.body, m.delivery_count) for m in (first, *rest)]
            session.commit()
    assert got == [(b"one", 1), (b"two", 1), (b"one", 2)]
