"""hms.aio on a real node: the same behaviour as the blocking client, and safe to cancel."""

import asyncio
import contextlib
import itertools

import pytest

import hms

CONFIG = (
    "".join(f"[hms.queue.a{n}]\n" for n in range(30))
    + """
[hms.topic.news]
"""
)
WAIT_S = 60
_names = itertools.count()


@pytest.fixture
def dest():
    """A queue that no other test uses."""
    return hms.Queue(f"a{next(_names)}")


@pytest.fixture
def play(running):
    """Runs a coroutine function with a connection, and looks what is left of it afterwards."""

    def play(scene, **options):
        async def whole():
            async with asyncio.timeout(250):
                async with hms.aio.connect(running.address, **options) as conn:
                    result = await scene(conn)
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert not conn.link.asked
                assert not conn.driver._waiters
            return result

        return asyncio.run(whole())

    return play


async def _show(conn, dest):
    return await conn.administer("queue.show", {"name": dest.name})


def test_everything_that_is_sent_is_received_in_order(play, dest):
    """One by one, as futures and many at once: the order is the order of the calls (F-D6)."""

    async def scene(conn):
        async with conn.session() as session:
            producer = await session.producer(dest)
            first = await producer.send(b"0")
            futures = [producer.send_async(b"%d" % i) for i in range(1, 1000)]
            many = await producer.send_many([b"%d" % i for i in range(1000, 3000)])
            receipts = [first, *[await future for future in futures], *many]
            consumer = await session.consumer(dest)
            messages = [await consumer.receive(WAIT_S) for _ in range(3000)]
            assert await consumer.receive(timeout_s=0.02) is None
            assert await consumer.receive_nowait() is None
        return receipts, messages

    receipts, messages = play(scene)
    assert [message.body for message in messages] == [b"%d" % i for i in range(3000)]
    assert [m.message_id for m in messages] == [receipt.message_id for receipt in receipts]


def test_what_was_not_acknowledged_comes_back(play, dest):
    """F-B2, F-B8: m.ack(), s.ack() and recover(), awaited."""

    async def scene(conn):
        async with conn.session(ack=hms.AckMode.CLIENT) as session:
            await (await session.producer(dest)).send_many([b"a", b"b", b"c"])
            consumer = session.consumer(dest)
            first, _ = await consumer.receive(WAIT_S), await consumer.receive(WAIT_S)
            await first.ack()
            await session.recover()
            again = [message async for message in _take(consumer, 2)]
            await session.ack()
        return [(m.body, m.redelivered) for m in again], await _show(conn, dest)

    again, shown = play(scene)
    assert again == [(b"b", True), (b"c", False)]
    assert (shown["waiting"], shown["in_flight"]) == (0, 0)


async def _take(consumer, count):
    async for message in consumer:
        yield message
        count -= 1
        if not count:
            return


def test_a_transaction_commits_with_its_block_and_rolls_back_with_an_exception(play, dest):
    """F-B5, awaited."""

    async def scene(conn):
        async with conn.session(transacted=True) as session:
            producer = await session.producer(dest)
            await producer.send(b"dropped")
            await session.rollback()
            await producer.send(b"kept")
        with contextlib.suppress(KeyError):
            async with conn.session(transacted=True) as session:
                await (await session.consumer(dest)).receive(WAIT_S)
                raise KeyError
        async with conn.session() as session, session.browser(dest) as browser:
            return [message.body async for message in browser]

    assert play(scene) == [b"kept"]


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_a_listener_is_called_in_order_and_what_fails_comes_again(play, dest, is_coroutine):
    """F-E2: a plain function or a coroutine function, one message at a time."""

    async def scene(conn):
        seen, done = [], asyncio.Event()

        def handle(message):
            seen.append(message.body)
            if len(seen) == 1:
                raise ValueError("this one fails once")
            if len(seen) == 4:
                done.set()

        async def handle_later(message):
            await asyncio.sleep(0)
            handle(message)

        async with conn.session() as session:
            consumer = await session.consumer(dest, ordered=True)
            await consumer.listen(handle_later if is_coroutine else handle)
            await session.producer(dest).send_many([b"a", b"b", b"c"])
            await done.wait()
        return seen

    assert play(scene) == [b"a", b"a", b"b", b"c"]


def test_subscribers_and_their_durable_subscription(play):
    """F-E4, F-E6, awaited."""

    async def scene(conn):
        news = hms.Topic("news")
        async with conn.session() as session:
            durable = await session.subscriber(news, durable="aio")
            await durable.close()
            async with session.subscriber(news, name="team", shared=True) as shared:
                await (await session.producer(news)).send(b"n")
                assert (await shared.receive(WAIT_S)).body == b"n"
            durable = await session.subscriber(news, durable="aio")
            body = (await durable.receive(WAIT_S)).body
            await durable.close()
            await session.unsubscribe(news, "aio")
            with pytest.raises(hms.SubscriptionNotFound):
                await session.unsubscribe(news, "aio")
        return body

    assert play(scene) == b"n"


def test_a_refusal_is_raised_by_whoever_awaits_or_uses(play, running, dest):
    """Something that is used before it was granted must not hang or look empty."""

    async def scene(conn):
        session = await conn.session()
        with pytest.raises(hms.DestinationNotFound):
            await session.producer("nowhere")
        with pytest.raises(hms.DestinationNotFound):
            await session.producer("nowhere").send(b"x")
        with pytest.raises(hms.DestinationNotFound):
            await session.consumer("nowhere").receive(WAIT_S)
        with pytest.raises(hms.SelectorSyntaxError):
            await session.browser(dest, selector="A =")
        with pytest.raises(hms.IllegalState):
            await session.commit()
        with pytest.raises(hms.IllegalState):
            hms.aio.connect(running.address).session()
        await session.close()
        with pytest.raises(hms.ConnectionClosed):
            await session.consumer(dest)

    play(scene)


def test_opening_that_was_cancelled_leaves_nothing_open(play, dest):
    """Its caller never got it, so nobody else could close it."""

    async def scene(conn):
        async with conn.session() as session:
            for make in (session.consumer, session.producer) * 20:
                task = asyncio.ensure_future(make(dest)._granted())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():  # it was quicker, and somebody got it
                    await task.result().close()
            shown = await _show(conn, dest)
        return shown["consumers"], shown["producers"]

    assert play(scene) == (0, 0)
