"""session.consumer(queue, priority=N) on a real node."""

import asyncio
import threading

import pytest

import hms
import hms.aio

WAIT_S = 60
BODIES = ["a", "b", "c"]
QUEUES = ("work", "heard", "aio", "none")
CONFIG = {"hms": {"queue": {name: {} for name in QUEUES}, "topic": {"news": {}}}}


def test_the_higher_one_gets_what_its_prefetch_has_room_for(conn):
    """The lower one gets what is left; the operator sees who is first."""
    session = conn.session(ack=hms.AckMode.CLIENT)
    low = session.consumer("work", prefetch=10)
    high = session.consumer("work", prefetch=2, priority=5)
    assert (low.priority, high.priority) == (0, 5)

    conn.session().producer("work").send_many(BODIES)

    assert low.receive(WAIT_S).body == "c"
    shown = conn.administer("queue.show", {"name": "work"})["held_by"]
    assert [(row["count"], row["priority"]) for row in shown] == [(2, 5), (1, 0)]
    assert [high.receive(WAIT_S).body, high.receive(WAIT_S).body] == ["a", "b"]


def test_a_shared_subscription_and_its_listeners(conn):
    """The same for a listener."""
    heard, is_full = [], threading.Event()

    def listen(message):
        heard.append(message.body)
        if len(heard) == len(BODIES):
            is_full.set()

    low = conn.session().subscriber("news", shared=True, name="s")
    high = conn.session().subscriber("news", shared=True, name="s", priority=1)
    high.listen(listen)

    for body in BODIES:
        conn.session().producer(hms.Topic("news")).send(body)

    assert is_full.wait(WAIT_S)
    assert heard == BODIES
    assert low.receive_nowait() is None


def test_in_asyncio(running):
    """The same consumer."""

    async def run():
        async with hms.aio.connect(running.address) as conn, conn.session() as session:
            low = await session.consumer("aio", priority=-1)
            high = await session.consumer("aio", prefetch=3)
            producer = await session.producer("aio")
            await producer.send_many(BODIES)
            assert [(await high.receive(WAIT_S)).body for _ in BODIES] == BODIES
            assert await low.receive_nowait() is None

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [128, -129, 1.5, "high", True, None])
def test_a_wrong_priority_is_refused(conn, wrong):
    """Before anything is asked of the node."""
    session = conn.session()
    with pytest.raises(hms.InvalidArgument, match="priority"):
        session.consumer("none", priority=wrong)
    with pytest.raises(hms.InvalidArgument, match="priority"):
        session.subscriber("news", priority=wrong)
