"""hms.aio.context() on a real node: the twin of hms.context()."""

import asyncio
import itertools

import pytest

import hms

CONFIG = "".join(f"[hms.queue.c{n}]\n" for n in range(6)) + "[hms.topic.news]\n"
WAIT_S = 60
_names = itertools.count()


@pytest.fixture
def dest():
    """A queue that no other test uses."""
    return hms.Queue(f"c{next(_names)}")


@pytest.fixture
def play(running):
    """Runs a coroutine function with a context, and looks what is left of it afterwards."""

    def play(scene, **options):
        async def whole():
            async with asyncio.timeout(250):
                async with hms.aio.context(running.address, **options) as context:
                    result = await scene(context)
                assert context.connection.is_ended
                assert not context.connection.driver._waiters
            return result

        return asyncio.run(whole())

    return play


def test_the_context_of_asyncio_acknowledges_and_recovers(play, dest):
    """F-B9: as the blocking one."""

    async def scene(context):
        for body in (b"a", b"b"):
            await context.send(dest, body)
        await context.receive(dest, WAIT_S)
        await context.ack()
        await context.receive(dest, WAIT_S)
        await context.recover()
        again = await context.receive(dest, WAIT_S)
        await context.ack()
        return again

    again = play(scene, ack=hms.AckMode.CLIENT)
    assert again.body == b"b"
    assert again.redelivered


def test_the_block_of_a_transacted_context_commits_or_rolls_back(play, dest):
    """Whoever leaves by an exception has not done the work."""

    async def sending(context):
        await context.send(dest, b"kept")

    async def failing(context):
        await context.send(dest, b"dropped")
        raise ZeroDivisionError

    async def taking(context):
        await context.rollback()
        message = await context.receive(dest, WAIT_S)
        await context.commit()
        return message.body, await context.receive(dest, 0)

    with pytest.raises(ZeroDivisionError):
        play(failing, transacted=True)
    play(sending, transacted=True)
    assert play(taking, transacted=True) == (b"kept", None)


def test_many_tasks_share_what_a_context_makes(play, dest):
    """Tasks that begin at once use one producer and one consumer, and their order is kept."""

    async def scene(context):
        await asyncio.gather(*[context.send(dest, b"%d" % n) for n in range(50)])
        bodies = [await context.receive(dest, WAIT_S) for _ in range(50)]
        shown = await context.connection.administer("queue.show", {"name": dest.name})
        return [int(message.body) for message in bodies], shown

    bodies, shown = play(scene)
    assert bodies == list(range(50))
    assert (shown["producers"], shown["consumers"]) == (1, 1)


def test_what_is_refused_or_cancelled_can_be_tried_again(play, dest):
    """A context must not keep a producer or consumer that the node does not have."""

    async def scene(context):
        for _ in range(2):
            with pytest.raises(hms.DestinationNotFound):
                await context.send("nowhere", b"x")
            with pytest.raises(hms.SelectorSyntaxError):
                await context.receive(dest, 0, selector="((")
        task = asyncio.ensure_future(context.receive(dest))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await context.send(dest, b"x")
        message = await context.receive(dest, WAIT_S)
        shown = await context.connection.administer("queue.show", {"name": dest.name})
        return message.body, shown["consumers"]

    assert play(scene) == (b"x", 1)


def test_the_context_of_asyncio_subscribes_and_browses(play, dest):
    """The rest of JMSContext."""
    news = hms.Topic("news")

    async def scene(context):
        await context.send(dest, b"seen")
        async with context.browser(dest) as browser:
            seen = [message.body async for message in browser]
        async with context.subscriber(news, durable="aio") as subscriber:
            await context.send(news, b"n")
            heard = await subscriber.receive(WAIT_S)
        await context.unsubscribe(news, "aio")
        return seen, heard.body

    assert play(scene) == ([b"seen"], b"n")


def test_a_context_that_was_not_awaited_says_so():
    """AttributeError would look like a bug of ours."""
    context = hms.aio.context("tcp://127.0.0.1:1")

    with pytest.raises(hms.IllegalState):
        context.browser("q")
