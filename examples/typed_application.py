"""An application as its authors write it, checked as strictly as the checkers can."""

import asyncio

import hms
import hms.aio
import tpmon
from tpmon import Request, service


@service("PRICE")
def price(request: Request) -> dict[str, int]:
    """What so many cups cost."""
    return {"cents": 250 * int(request.data["cups"])}


def take(message: hms.Message) -> None:
    """Print a message."""
    print(message.body, message.properties["Table"], message.message_id)


def main() -> None:
    """Queues, transactions, services and operation, in threads."""
    with hms.connect("tcp://127.0.0.1:7700", client_id="app") as connection:
        with connection.session(transacted=True) as session:
            producer = session.producer(hms.Queue("orders"))
            receipt = producer.send(b"two", {"Table": 5})
            print(receipt.message_id)
            consumer = session.consumer(hms.Queue("orders"), selector="Table > 4")
            message = consumer.receive(timeout_s=5)
            if message is not None:
                take(message)
            session.commit()
        with (
            connection.session(ack=hms.AckMode.CLIENT) as session,
            session.consumer(hms.Queue("orders")) as consumer,
        ):
            consumer.listen(take)
        reply = connection.call("PRICE", {"cups": 2}, timeout_s=1)
        print(reply.data)
        for row in connection.administer("queue.list"):
            print(row)
        with connection.transaction(timeout_s=30):
            pass
        try:
            connection.call("NONE")
        except hms.ServiceNotFound as error:
            print(error.number, error.cure)


async def later() -> None:
    """The same in asyncio."""
    async with (
        hms.aio.connect("tcp://127.0.0.1:7700") as connection,
        await connection.session() as session,
    ):
        producer = await session.producer(hms.Queue("orders"))
        await producer.send("text")
        consumer = await session.consumer(hms.Queue("orders"))
        message = await consumer.receive(timeout_s=1)
        if message is not None:
            print(message.body)


def tmax() -> None:
    """The same as a Tmax client."""
    tpmon.tpstart()
    tpmon.tpset_timeout(5)
    print(tpmon.tpcall("PRICE", {"cups": 2}, timeout_s=0.5).data)
    tpmon.tpend()


if __name__ == "__main__":
    main()
    asyncio.run(later())
    tmax()
