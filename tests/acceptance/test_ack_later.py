"""session.ack(wait=False) on a real node: what is confirmed by whom, and what a crash leaves."""

import asyncio

import hms
from hms.testing import node

CONFIG = "[hms.queue.q]\n"
WAIT_S = 60


def _fill(address: str, count: int) -> None:
    with hms.connect(address) as conn, conn.session() as session:
        session.producer("q").send_many([b"%d" % i for i in range(count)])


def test_an_ack_that_waits_answers_for_those_that_did_not(tmp_path):
    """A node killed after it brings nothing again, of either."""
    with node(store=tmp_path / "store", config=CONFIG) as own:
        _fill(own.address, 6)
        conn = hms.connect(own.address, reconnect=False)
        session = conn.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer("q")
        for _ in range(2):
            assert consumer.receive(WAIT_S) is not None
            assert consumer.receive(WAIT_S) is not None
            session.ack(wait=False)
        session.ack()
        own.kill()
        conn.close()
        own.boot()
        with hms.connect(own.address) as conn, conn.session() as session:
            consumer = session.consumer("q")
            left = [consumer.receive(WAIT_S).body for _ in range(2)]
            assert consumer.receive(0.2) is None
    assert left == [b"4", b"5"]


def test_closing_waits_for_what_was_acknowledged_without_waiting(tmp_path):
    """As in AUTO: what was received before an orderly end does not come again."""
    with node(store=tmp_path / "store", config=CONFIG) as own:
        _fill(own.address, 3)
        with (
            hms.connect(own.address) as conn,
            conn.session(ack=hms.AckMode.CLIENT) as session,
            session.consumer("q") as consumer,
        ):
            assert [consumer.receive(WAIT_S).body for _ in range(3)] == [b"0", b"1", b"2"]
            session.ack(wait=False)
        own.kill()
        own.boot()
        with hms.connect(own.address) as conn, conn.session() as session:
            assert session.consumer("q").receive(0.2) is None


def test_it_is_the_same_in_an_event_loop(tmp_path):
    """There each wait is one that the loop could use."""

    async def work(address: str) -> list[bytes]:
        async with await hms.aio.connect(address) as conn:
            async with conn.session(ack=hms.AckMode.CLIENT) as session:
                consumer = await session.consumer("q")
                found = [(await consumer.receive(WAIT_S)).body for _ in range(3)]
                await session.ack(wait=False)
                await session.ack()
            async with conn.session() as session:
                consumer = await session.consumer("q")
                assert await consumer.receive(0.2) is None
        return found

    with node(store=tmp_path / "store", config=CONFIG) as own:
        _fill(own.address, 3)
        assert asyncio.run(work(own.address)) == [b"0", b"1", b"2"]
