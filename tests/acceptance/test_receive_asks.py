"""receive(0), receive_nowait() and a receive whose time is over ask the node: None is its word."""

import asyncio

import pytest

import hms
import hms.aio
import hms.testing

SMALL = {"max_memory_bytes": "1 MiB", "auto_destinations": True, "open_topics": True}
"""Little enough that the bodies of a backlog wait in the log."""
TIMES = 40


@pytest.fixture(scope="module", params=["log", "sqlite"])
def address(request, tmp_path_factory):
    """A node that keeps its messages in its log, or in a database."""
    folder = tmp_path_factory.mktemp("asks")
    config = {"node": {"node1": dict(SMALL)}}
    if request.param == "sqlite":
        config["node"]["node1"]["database"] = f"sqlite:{folder / 'messages.db'}"
    with hms.testing.node(folder / "store", config) as node:
        yield node.address


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A node that answers late on a busy machine is waited for; its answer is what counts here."""
    monkeypatch.setattr("hms.client.consumer_steps.POLL_S", 60.0)


@pytest.fixture
def connections(address):
    """Two clients."""
    with hms.connect(address) as one, hms.connect(address) as other:
        yield one, other


@pytest.mark.parametrize("ack", [hms.AckMode.AUTO, hms.AckMode.CLIENT, hms.AckMode.DUPS_OK])
def test_what_was_confirmed_to_another_client_is_received_at_once(connections, ack, request):
    """296 of 300 confirmed messages were not there for receive_nowait()."""
    sending, receiving = connections
    queue = hms.Queue(request.node.name)
    with sending.session() as out, receiving.session(ack=ack) as session:
        producer, consumer = out.producer(queue), session.consumer(queue)
        for number in range(TIMES):
            producer.send(f"{number}")
            message = consumer.receive_nowait()
            assert message is not None
            assert message.body == f"{number}"
        assert consumer.receive_nowait() is None
        assert consumer.receive(timeout_s=0.01) is None


def test_a_new_consumer_is_given_what_waits(connections):
    """Its credit has just been sent when it asks."""
    sending, receiving = connections
    queue = hms.Queue("new")
    with sending.session() as out, receiving.session(transacted=True) as session:
        producer = out.producer(queue)
        for number in range(TIMES):
            producer.send(f"{number}")
            with session.consumer(queue) as consumer:
                message = consumer.receive(0)
                assert message is not None
                assert message.body == f"{number}"
                session.commit()


def test_a_backlog_whose_bodies_wait_in_the_store_is_read_to_its_end(connections):
    """Bodies that are read from a disk come later, and so must the answer."""
    sending, receiving = connections
    queue, body = hms.Queue("paged"), bytes(40_000)
    with sending.session() as out, receiving.session() as session:
        out.producer(queue).send_many(body for _ in range(60))
        consumer = session.consumer(queue, prefetch=7)
        count = 0
        while (message := consumer.receive(0)) is not None:
            assert message.body == body
            count += 1
        assert count == 60


def test_many_at_once_ask_as_well(connections):
    """receive_many() is a receive like any other."""
    sending, receiving = connections
    queue = hms.Queue("many")
    with sending.session() as out, receiving.session() as session:
        consumer = session.consumer(queue)
        out.producer(queue).send("x")
        assert len(consumer.receive_many(10, timeout_s=0)) == 1
        assert consumer.receive_many(10, timeout_s=0) == []


def test_asyncio_asks_as_well(address):
    """One core, two shells."""

    async def exchange() -> int:
        queue, count = hms.Queue("aio"), 0
        async with await hms.aio.connect(address) as one, await hms.aio.connect(address) as other:
            producer = await (await one.session()).producer(queue)
            consumer = await (await other.session()).consumer(queue)
            for number in range(TIMES):
                await producer.send(f"{number}")
                count += await consumer.receive(0) is not None
            assert await consumer.receive(0) is None
        return count

    assert asyncio.run(exchange()) == TIMES
