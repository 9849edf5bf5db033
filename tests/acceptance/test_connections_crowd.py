"""Many honest clients at once, and one more than the limit. The long form has 2,000:

HMS_CONNECTIONS=2000 pytest tests/acceptance/test_connections_crowd.py
"""

import asyncio
import os

import pytest

import hms
from hms.boot.descriptors import raise_limit
from hms.testing import node

CONNECTIONS = int(os.environ.get("HMS_CONNECTIONS", "300"))
AT_ONCE = 50
DESCRIPTORS_OF_A_CLIENT = 8


@pytest.fixture
def running():
    """A node that is started as from a shell, with 1,024 descriptors."""
    config = {
        "domain": {"MAXSESSION": 4 * CONNECTIONS},
        "hms": {"queue": {"crowd": {}}},
        "node": {"node1": {"max_connections": CONNECTIONS, "heartbeat_s": 60}},
    }
    with node(config=config, command_prefix=["prlimit", "--nofile=1024:"]) as started:
        yield started


async def _all(work, clients):
    """Every client does it, a bounded number of them at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def bounded(number, client):
        async with free:
            return await work(number, client)

    return await asyncio.gather(*(bounded(*one) for one in enumerate(clients)))


async def _scene(address):
    async def connect(_number, _none):
        return await hms.aio.connect(address, connect_timeout_s=100)

    async def send(number, conn):
        session = await conn.session()
        producer = await session.producer("crowd")
        await producer.send(str(number))
        return producer

    async def send_again(number, producer):
        await producer.send(str(CONNECTIONS + number))

    async def close(_number, conn):
        await conn.close()

    conns = await _all(connect, [None] * CONNECTIONS)
    producers = await _all(send, conns)
    with pytest.raises(hms.TooManyConnections) as refused:
        await hms.aio.connect(address, reconnect=False)
    assert (refused.value.count, refused.value.limit) == (CONNECTIONS, CONNECTIONS)
    await _all(send_again, producers)
    consumer = await (await conns[0].session()).consumer("crowd")
    bodies = [(await consumer.receive(60)).body for _ in range(2 * CONNECTIONS)]
    await _all(close, conns)
    return bodies


def test_all_are_served_up_to_the_limit_and_one_more_is_told_why_it_is_not(running):
    """1,000 connections stopped a node that had 1,024 descriptors."""
    raise_limit(CONNECTIONS * DESCRIPTORS_OF_A_CLIENT)

    bodies = asyncio.run(_scene(running.address))

    assert sorted(map(int, bodies)) == list(range(2 * CONNECTIONS))
    with hms.connect(running.address) as conn:
        conn.session().producer("crowd").send(b"there is room again")
