"""A thousand consumers on one connection of hms.aio, cancelled at random, on a real node."""

import asyncio
import random

import hms
from hms.errors.catalogue import ConnectionLost

CONFIG = "[hms.queue.crowd]\n[node.demo]\nheartbeat_s = 60\n"
"""A machine that stands still must not cost the connection: what comes back is received again."""
CROWD, MESSAGES = 1000, 6000
ANSWERED = 0.3
"""Of the rounds of cancellations so many wait until the node has done what was asked before. One
that is slower than its crowd would have more and more before it, and each send behind all that."""


async def _show(conn):
    return await conn.administer("queue.show", {"name": "crowd"})


def test_a_crowd_of_consumers_that_is_cancelled_at_random_loses_nothing(running, record_property):
    """1,000 consumers on one connection: nothing is lost or stays; what comes twice is counted."""
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    crowd = _Crowd(random.Random(seed))

    try:
        sent, shown, sessions = asyncio.run(crowd.run(running.address))
    except TimeoutError as late:
        late.add_note(f"{len(crowd.received)} of {MESSAGES} came; {crowd.faults}; {running.log}")
        raise
    if shown["redelivered"]:
        losses = {str(one) for one in crowd.faults if isinstance(one, ConnectionLost)}
        why = [*losses, *[line for line in running.log.splitlines() if "is lost" in line]]
        figures = {"crowd, redelivered": shown["redelivered"], "why": why}
        record_property("figures", figures | {"doubled": len(crowd.received) - len(sent)})

    # a connection that is lost has its messages again, each flagged as such; without one, nothing
    assert crowd.faults or not shown["redelivered"]
    assert set(crowd.received) == set(sent)
    assert len(crowd.received) - len(sent) <= shown["redelivered"]
    assert (shown["consumers"], shown["waiting"], shown["in_flight"]) == (0, 0, 0)
    assert sessions == []


class _Crowd:
    """Consumers that come, wait, and are cancelled."""

    def __init__(self, rng):
        self.rng = rng
        self.received = []
        self.tasks = {}
        self.faults = []

    async def run(self, address):
        """Nothing of the client is left when it is over."""
        async with asyncio.timeout(250):
            async with hms.aio.connect(address, exception_listener=self.faults.append) as conn:
                result = await self.scene(conn)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not conn.link.asked
        assert not conn.driver._waiters
        return result

    async def scene(self, conn):
        sessions = [await conn.session() for _ in range(20)]
        for number in range(CROWD):
            self.start(sessions[number % 20])
        while (await _show(conn))["consumers"] < CROWD:
            pass
        sending = asyncio.create_task(self.send(conn))
        while not sending.done() or len(self.received) < MESSAGES:
            for task in self.rng.sample(sorted(self.tasks, key=id), 20):
                task.cancel()
                self.start(self.tasks[task])
            await asyncio.wait(self.tasks, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
            if self.rng.random() < ANSWERED:
                await _show(conn)
            for task in {sending, *self.tasks}:
                if task.done() and not task.cancelled():
                    task.result()
            self.tasks = {task: s for task, s in self.tasks.items() if not task.done()}
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        for session in sessions:
            await session.close()
        shown = await _show(conn)
        return await sending, shown, await conn.administer("session.list")

    def start(self, session):
        self.tasks[asyncio.create_task(self.consume(session))] = session

    async def consume(self, session):
        """Cancelled anywhere: while it opens, waits, or closes."""
        async with session.consumer("crowd", prefetch=4) as consumer:
            async for message in consumer:
                self.received.append(message.message_id)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(0)

    async def send(self, conn):
        async with conn.session() as session:
            producer = await session.producer("crowd", persistent=False)
            sent = []
            for _ in range(MESSAGES // 100):
                receipts = await producer.send_many([b"x" * 100] * 100)
                sent += [receipt.message_id for receipt in receipts]
        return sent
