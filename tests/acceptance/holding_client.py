"""A client that takes one message in each way there is, says what it was given, and then holds all
of them until it, or the node, is killed: python holding_client.py ADDRESS CELL…; a cell is
QUEUE:DOOR:MODE.
"""

import asyncio
import sys
import threading

import hms
import hms.aio

MODES = {mode.name: {"ack": mode} for mode in hms.AckMode} | {"transacted": {"transacted": True}}
WAIT_S = 60
_said = threading.Lock()


def say(queue, message):
    """One line for each message."""
    with _said:
        sys.stdout.write(f"{queue} {message.delivery_count} {int(message.redelivered)}\n")
        sys.stdout.flush()


def hold(connection, queue, door, mode):
    """In a thread's client; what a service is given, the service says."""
    if door == "service":
        session = connection.session(asynchronous=True, **MODES[mode])
        return session.consumer(queue, listener="HELD")
    consumer = connection.session(**MODES[mode]).consumer(queue)
    if door == "listener":
        consumer.listen(lambda message: (say(queue, message), threading.Event().wait()))
    else:
        say(queue, consumer.receive(WAIT_S))
    return consumer


async def hold_later(connection, queue, door, mode):
    """In an event loop."""
    consumer = await (await connection.session(**MODES[mode])).consumer(queue)
    if door == "aio receive":
        say(queue, await consumer.receive(WAIT_S))
        return consumer

    async def listener(message):
        say(queue, message)
        await asyncio.Event().wait()

    await consumer.listen(listener)
    return consumer


async def run_aio(address, cells):
    """Those of asyncio, for ever."""
    connection = await hms.aio.connect(address, request_timeout_s=WAIT_S)
    kept = [await hold_later(connection, *cell) for cell in cells]
    await asyncio.Event().wait()
    return kept


if __name__ == "__main__":
    address, *cells = sys.argv[1:]
    ways = [cell.split(":") for cell in cells]
    connection = hms.connect(address, request_timeout_s=WAIT_S)
    kept = [hold(connection, *way) for way in ways if not way[1].startswith("aio")]
    asyncio.run(run_aio(address, [way for way in ways if way[1].startswith("aio")]))
