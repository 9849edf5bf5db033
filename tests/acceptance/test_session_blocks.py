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
NAMES = ("$DeadReason", "$DeadText", "$DeadCount")


def _work(connection, taken, error):
    with connection.session(transacted=True) as session:
        message = session.consumer("orders").receive(timeout_s=60)
        session.send("orders", "never")
        taken.append((message.body, message.redelivered, message.delivery_count))
        raise error


async def _work_async(connection):
    async with connection.session(transacted=True) as session:
        await session.consumer("letters").receive(timeout_s=60)
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
        letter = session.consumer("HMS.DLQ").receive(timeout_s=60)
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
                letter = await session.consumer("HMS.DLQ").receive(timeout_s=60)
                return letter.body

    assert asyncio.run(work()) == "bad"


def _reject(connection, count):
    with connection.session(transacted=True) as session:
        consumer = session.consumer("orders")
        for _ in range(count):
            assert consumer.receive(timeout_s=60) is not None
        raise hms.Reject("too heavy")


def test_a_block_or_a_rollback_that_says_why_leaves_that_in_the_letter(conn):
    """hms.Reject is a dead letter at once there as in a listener; what else was raised is the text
    of the letter, at the last attempt."""
    with conn.session() as session:
        for body in ("reject", "rollback", "after a commit", "fails"):
            session.send("orders", body)
    with pytest.raises(hms.Reject):
        _reject(conn, 1)
    with conn.session(transacted=True) as session:
        consumer = session.consumer("orders")
        assert consumer.receive(timeout_s=60).body == "rollback"
        session.rollback(hms.Reject("not ours", "DECODE_ERROR"))
        assert consumer.receive(timeout_s=60).body == "after a commit"
        session.send("orders", consumer.receive(timeout_s=60).body)
        session.commit()
        assert consumer.receive(timeout_s=60).body == "fails"
        for _ in range(2):
            session.rollback(KeyError("tea"))
            assert consumer.receive(timeout_s=60).body == "fails"
        session.rollback(KeyError("tea"))

    with conn.session() as session:
        dead = session.consumer("HMS.DLQ")
        letters = [dead.receive(timeout_s=60) for _ in range(3)]
        said = [(one.body, *map(one.property, NAMES)) for one in letters]
    assert said == [
        ("reject", "REJECTED", "too heavy", 1),
        ("rollback", "DECODE_ERROR", "not ours", 1),
        ("fails", "REDELIVERY_LIMIT", "KeyError: 'tea'", 3),
    ]


def test_of_several_messages_a_block_rejects_none(conn):
    """Nobody knows which one is meant: each has failed once, and comes again."""
    with conn.session() as session:
        for body in ("first", "second"):
            session.send("orders", body)
    with pytest.raises(hms.Reject):
        _reject(conn, 2)

    with conn.session() as session:
        consumer = session.consumer("orders")
        again = [consumer.receive(timeout_s=60) for _ in range(2)]
    assert [(one.body, one.delivery_count) for one in again] == [("first", 2), ("second", 2)]


def test_a_rollback_takes_an_exception_only(conn):
    """A text would be taken for the reason of nothing."""
    with conn.session(transacted=True) as session, pytest.raises(hms.InvalidArgument):
        session.rollback("because")
