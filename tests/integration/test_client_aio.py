"""hms.aio against a scripted node: cancellation, timeouts, losses of the connection."""

import asyncio
import contextlib
from functools import partial

import pytest
from client_rig import WAIT_S, FakeNode, patient

import hms
from hms.client.core.operations import Outside
from hms.wire.frames import Action, Kind
from hms.wire.structures import CloseConsumer, CloseSession, OpenConsumer, OpenProducer


@pytest.fixture
def play(node: FakeNode):
    """Runs a coroutine function with a connection; nothing may be left of it afterwards."""

    def play(scene, **options):
        async def whole():
            given = {"request_timeout_s": WAIT_S, "reconnect_interval_s": 0.05} | options
            async with asyncio.timeout(60):
                async with hms.aio.connect(node.address, **given) as conn:
                    await scene(conn)
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert (conn.link.asked, len(conn.driver._waiters)) == ({}, 0)

        asyncio.run(whole())

    return play


async def heard(node, found):
    """Wait until the node has heard it, while the loop goes on."""
    return await asyncio.to_thread(node.wait, found)


async def cancel(task):
    """Cancel it and see it end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_cancelled_receive_takes_no_message(play, node):
    """The message must be there for the next receive, also when both happen at once."""

    async def scene(conn):
        consumer = await (await conn.session()).consumer("orders")
        for number in range(1, 21):
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            node.deliver((number, b"%d" % number))
            if number % 2:
                await asyncio.sleep(0)
            await cancel(waiting)
            if waiting.cancelled():
                assert (await consumer.receive(WAIT_S)).body == b"%d" % number
        await heard(node, lambda: node.settled(Action.ACKNOWLEDGE) == list(range(1, 21)))

    play(scene)


def test_an_operation_that_never_waits_gives_way_and_can_be_cancelled(play):
    """A file whose blocks are always here already would hold up everything else."""

    async def scene(conn):
        done = []

        def steps():
            for number in range(100):
                yield Outside(partial(done.append, number), gives_way=True)

        running = asyncio.create_task(conn.run(steps()))
        for _ in range(10):
            await asyncio.sleep(0)
        await cancel(running)
        assert running.cancelled()
        assert 5 < len(done) < 20

    play(scene)


def test_many_are_received_at_once_and_a_cancelled_wait_takes_none(play, node):
    """What a cancelled receive_many() waited for is there for the next one."""

    async def scene(conn):
        consumer = await (await conn.session()).consumer("orders")
        waiting = asyncio.create_task(consumer.receive_many(10))
        await asyncio.sleep(0)
        await cancel(waiting)
        node.deliver((1, b"1"), (2, b"2"), (3, b"3"))
        got = await consumer.receive_many(2, WAIT_S) + await consumer.receive_many(2, WAIT_S)
        assert [m.body for m in got] == [b"1", b"2", b"3"]
        assert await consumer.receive_many(2, 0.02) == []
        with pytest.raises(hms.InvalidArgument):
            await consumer.receive_many(0)
        await heard(node, lambda: node.settled(Action.ACKNOWLEDGE) == [1, 2, 3])

    play(scene)


def test_timeouts_of_asyncio_work_on_receive(play, node):
    """asyncio.timeout() and wait_for() cancel what waits."""

    async def scene(conn):
        consumer = await (await conn.session()).consumer("orders")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.02)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await consumer.receive()
        node.deliver((1, b"x"))
        assert (await asyncio.wait_for(consumer.receive(), WAIT_S)).body == b"x"

    play(scene)


def test_a_cancelled_send_leaves_nothing_behind(play, node):
    """It was sent or not; the next one has its place in the order."""

    async def scene(conn):
        producer = await (await conn.session()).producer("orders")
        node.on[Kind.SEND] = lambda _: None
        sending = asyncio.create_task(producer.send(b"x"))
        await heard(node, lambda: len(node.kinds(Kind.SEND)) == 1)
        await cancel(sending)
        assert sending.cancelled()
        node.drop()
        del node.on[Kind.SEND]
        node.restart()
        assert (await producer.send(b"y")).message_id

    play(scene)


def test_what_was_open_is_opened_again(play, node):
    """F-K5: tasks that wait go on with the objects they have, listeners are told."""

    async def scene(conn):
        session = await conn.session()
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        node.drop()
        sending = asyncio.create_task(producer.send(b"during the outage"))
        await asyncio.sleep(0)
        node.restart()
        assert (await sending).message_id == "000000000001"
        await heard(node, lambda: node.consumers)
        node.deliver((5, b"again"), count=2)
        assert (await waiting).redelivered
        assert len(node.requests(OpenProducer)) == len(node.requests(OpenConsumer)) == 2

    play(scene)


def test_the_listeners_of_a_loss_may_be_coroutine_functions(play, node):
    """F-E10, F-E11: they are called in the loop."""
    errors, told, done = [], [], []

    async def tell(event):
        await asyncio.sleep(0)
        told.append(event.kind)
        if event.kind is hms.EventKind.RECONNECTED:
            done[0].set()

    async def scene(conn):
        done.append(asyncio.Event())
        node.drop()
        await asyncio.sleep(0)
        node.restart()
        await done[0].wait()

    play(scene, exception_listener=errors.append, event_listener=tell)
    assert [type(error) for error in errors] == [hms.ConnectionLost]
    assert (told[0], told[-1]) == ("closed", "reconnected")


def test_a_call_gives_up_when_the_outage_is_too_long(play, node):
    """F-K6, F-K8."""

    async def scene(conn):
        with patient(conn):
            session = await conn.session()
            producer, consumer = await session.producer("orders"), await session.consumer("orders")
        node.drop()
        with pytest.raises(hms.ConnectionLost):
            await consumer.receive()
        with pytest.raises(hms.ConnectionLost):
            await producer.send(b"x")
        with pytest.raises(hms.ConnectionLost):
            await conn.administer("queue.list")

    play(scene, request_timeout_s=0.2)


def test_without_reconnect_every_waiting_call_ends(play, node):
    """F-M7: at once."""

    async def scene(conn):
        consumer = await (await conn.session()).consumer("orders")
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        node.drop()
        with pytest.raises(hms.ConnectionLost):
            await waiting
        with pytest.raises(hms.ConnectionLost):
            await conn.session()

    play(scene, reconnect=False)


def test_closing_waits_for_what_is_on_its_way(play, node):
    """Only what was confirmed counts as sent, and sessions are closed in order."""

    async def scene(conn):
        session = await conn.session()
        producer = await session.producer("orders")
        futures = [producer.send_async(b"x") for _ in range(5000)]
        await conn.close()
        receipts = await asyncio.gather(*futures)
        assert len({receipt.message_id for receipt in receipts}) == 5000

    play(scene)
    assert len(node.requests(CloseSession)) == 1


def test_too_many_waiting_sends_are_refused(play, node):
    """P8: a program that never awaits must not fill its memory."""

    async def scene(conn):
        producer = await (await conn.session()).producer("orders")
        node.on[Kind.SEND] = lambda _: None
        futures = []
        with pytest.raises(hms.TooManyRequests):
            futures.extend(producer.send_async(b"x") for _ in range(30_000))
        conn.driver.stop(hms.ConnectionClosed(what="connection"), 0)
        await asyncio.wait(futures)
        assert all(future.exception() for future in futures)  # else asyncio logs each of them

    play(scene)


def test_a_cancelled_close_still_closes(play, node):
    """A program that is told to hurry must not leave its consumers behind."""

    async def scene(conn):
        session = await conn.session()
        consumer = await session.consumer("orders")
        node.on[CloseConsumer] = node.on[CloseSession] = lambda _: None
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await cancel(closing)
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        await cancel(closing)
        await heard(node, lambda: node.requests(CloseConsumer) and node.requests(CloseSession))

    play(scene)


def test_a_listener_that_is_cancelled_inside_does_not_end_the_others(play, node):
    """A CancelledError of its own doing is a failure like any other."""

    async def scene(conn):
        bodies, done = [], asyncio.Event()

        async def listener(message):
            bodies.append(message.body)
            if len(bodies) == 1:
                raise asyncio.CancelledError
            done.set()

        async with conn.session() as session:
            await (await session.consumer("orders")).listen(listener)
            node.deliver((1, b"a"), (2, b"b"))
            await done.wait()
        assert bodies == [b"a", b"b"]
        assert node.settled(Action.FAIL) == [1]

    play(scene)
