"""The same client for asyncio: the same names, awaited, in one event loop and without a thread.

    async with hms.aio.connect("tcp://127.0.0.1:7700") as connection:
        async with connection.session() as session:
            await (await session.producer(hms.Queue("orders"))).send(b"…", {"Type": "News"})
            async for message in session.consumer(hms.Queue("orders")):
                ...

What opens something, such as session(), producer() or consumer(), returns it at once; awaiting it,
or entering its block, waits until the node has granted it.
"""

from hms.client.aio.browser import Browser
from hms.client.aio.connection import Connection, connect
from hms.client.aio.consumer import Consumer
from hms.client.aio.context import JMSContext, context
from hms.client.aio.producer import Producer
from hms.client.aio.session import Session

__all__ = [
    "Browser",
    "Connection",
    "Consumer",
    "JMSContext",
    "Producer",
    "Session",
    "connect",
    "context",
]
