"""A transacted session's block that an exception leaves: what it received was a failed attempt."""

import asyncio

import pytest

import hms

CONFIG = """
[hms.queue.orders]
redelivery_limit = 3
[hms.queue.letters]
redelivery_limit = 3
"""
FAILED, ENDED = ValueError, KeyboardInterrupt


def _work(connection, taken, error):
    with connection.session(transacted=True) as session:
        message = session.consumer("orders").receive(timeout_s=20)
        session.send("orders", "never")
        taken.append((message.body, message.redelivered, message.delivery_count))
        raise error


async def _work_async(connection):
    async with connection.session(transacted=True) as session:
        await session.consumer("letters").receive(timeout_s=20)
        raise FAILED


def test_an_exception_counts_and_the_end_of_the_program_does_not(conn):
    """A worker that is started again for ever by one bad order never got rid of it."""
    with conn.session() as session:
        session.send("orders", "bad")

    taken = []
    for error in (FAILED, ENDED, FAILED, ENDED, FAILED):
        with pytest.raises(error):
            _work(conn, taken, error)

    assert taken == [("bad", n > 1, n) for n in range(1, 6)]
    with conn.session() as session:
        letter = session.consumer("HMS.DLQ").receive(timeout_s=20)
        assert (letter.body, letter.properties["$DeadCount"]) == ("bad", 3)
        assert session.consumer("orders").receive_nowait() is None


def test_the_same_holds_for_asyncio(running):
    """Both clients close a session by the same steps."""

    async def work():
        async with hms.aio.connect(running.address) as connection:
            async with connection.session() as session:
                await session.send("letters", "bad")
            for _ in range(3):
                with pytest.raises(FAILED):
                    await _work_async(connection)
            async with connection.session() as session:
                letter = await session.consumer("HMS.DLQ").receive(timeout_s=20)
                return letter.body

    assert asyncio.run(work()) == "bad"
