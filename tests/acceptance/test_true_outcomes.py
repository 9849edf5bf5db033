"""What a client is told of its sends is what happened: doomed transactions, callbacks, forks."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading

import pytest

import hms

CONFIG = {
    "hms": {"queue": {"orders": {}, "small": {"max_messages": 5}}},
    "node": {
        "node1": {
            "max_message_bytes": "64 KiB",
            "max_transaction_bytes": "128 KiB",
            "segment_bytes": "1 MiB",
        }
    },
}
BODY = bytes(20_000)


@pytest.fixture
def conn(running):
    with hms.connect(running.address) as connection:
        yield connection
        for name in ("orders", "small"):
            connection.administer("queue.purge", {"name": name})


def _waiting(conn, name="orders"):
    return conn.administer("queue.show", {"name": name})["waiting"]


def _one_by_one(producer):
    for _ in range(30):
        producer.send(hms.Message(BODY))


def _many(producer):
    producer.send_many([BODY] * 30)


def _many_with_a_wrong_one(producer):
    producer.send_many([b"x"] * 600 + [bytes(100_000)])


def _async(producer):
    for future in [producer.send_async(BODY) for _ in range(30)]:
        future.result(60)


@pytest.mark.parametrize("way", [_one_by_one, _many, _many_with_a_wrong_one, _async])
def test_a_failed_send_dooms_its_transaction(conn, way):
    """TransactionTooLarge says that it can only be rolled back; commit() stored the other 20."""
    session = conn.session(transacted=True)
    producer = session.producer("orders")
    with pytest.raises(hms.HmsError):
        way(producer)

    with pytest.raises(hms.TransactionRolledBack) as rolled_back:
        session.commit()

    assert "a send in it failed" in str(rolled_back.value)
    assert _waiting(conn) == 0
    producer.send(b"of the next one")
    session.commit()
    assert _waiting(conn) == 1


def test_a_send_that_a_full_queue_refused_dooms_its_transaction(conn):
    """The others must not take effect without it."""
    session = conn.session(transacted=True)
    session.producer("orders").send(b"debit")
    small = session.producer("small")
    with pytest.raises(hms.TpQueueFull):
        small.send_many([b"credit"] * 10)
    with pytest.raises(hms.TpQueueFull):
        session.producer("orders").send(b"more")

    with pytest.raises(hms.TransactionRolledBack):
        session.commit()
    assert (_waiting(conn), _waiting(conn, "small")) == (0, 0)


def test_sends_that_are_not_waited_for_fail_with_their_transaction(conn):
    """send() of a bare body asks nobody; the next one tells, or commit() with the cause."""
    session = conn.session(transacted=True)
    producer = session.producer("orders")
    with contextlib.suppress(hms.TransactionTooLarge):
        for _ in range(30):
            producer.send(BODY)

    with pytest.raises(hms.TransactionRolledBack) as rolled_back:
        session.commit()

    assert isinstance(rolled_back.value.__cause__, hms.TransactionTooLarge)
    assert _waiting(conn) == 0


def test_rollback_lifts_the_doom(conn):
    """What comes is another transaction."""
    session = conn.session(transacted=True)
    producer = session.producer("orders")
    with pytest.raises(hms.TransactionTooLarge):
        _one_by_one(producer)
    session.rollback()

    producer.send(b"good")
    session.commit()

    assert _waiting(conn) == 1


def test_an_argument_that_the_client_refuses_dooms_nothing(conn):
    """Nothing was sent: whoever catches it goes on."""
    session = conn.session(transacted=True)
    producer = session.producer("orders")
    producer.send(b"good")
    with pytest.raises(hms.MessageTooLarge):
        producer.send(bytes(100_000))

    session.commit()

    assert _waiting(conn) == 1


def test_a_failed_send_rolls_a_global_transaction_back(conn):
    """A branch without one of its sends must not be prepared."""
    with pytest.raises(hms.HmsError), conn.transaction():  # noqa: PT012 - the block's end raises
        session = conn.session(xa=True)
        producer = session.producer("orders")
        with contextlib.suppress(hms.TransactionTooLarge):
            _one_by_one(producer)
    assert _waiting(conn) == 0


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_callbacks_have_run_when_their_transaction_ends(conn, end):
    """0 of 20 had run when commit() returned: an error that they count was unseen."""
    session = conn.session(transacted=True)
    producer, told = session.producer("orders"), []
    for _ in range(20):
        producer.send_async(b"x").add_done_callback(told.append)

    getattr(session, end)()

    assert len(told) == 20
    assert all(future.done() for future in told)


def test_a_callback_may_commit(conn):
    """It runs on the thread that would have to run those it would wait for."""
    session = conn.session(transacted=True)
    producer, is_committed = session.producer("orders"), threading.Event()

    def commit(_):
        session.commit()
        is_committed.set()

    producer.send_async(b"x").add_done_callback(commit)
    assert is_committed.wait(60)  # its result is told before its callbacks
    session.close()
    assert _waiting(conn) == 1


def test_callbacks_have_run_when_an_asyncio_transaction_ends(running):
    """The same promise in a loop."""

    async def scene():
        async with hms.aio.connect(running.address) as conn:
            session = await conn.session(transacted=True)
            producer, told = await session.producer("orders"), []
            for _ in range(20):
                producer.send_async(b"x").add_done_callback(told.append)
            await session.commit()
            count = len(told)
            await conn.administer("queue.purge", {"name": "orders"})
            return count

    assert asyncio.run(scene()) == 20


def test_call_async_on_a_closed_connection_raises(running):
    """Its future never ended."""
    conn = hms.connect(running.address)
    conn.close()
    with pytest.raises(hms.HmsError):
        conn.call_async("work", b"")


FORKS = """
import os, sys
import hms
conn = hms.connect(sys.argv[1])
session = conn.session()
producer = session.producer("orders")
producer.send(b"parent")
child = os.fork()
if not child:
    refused = 0
    for act in (lambda: producer.send(b"child"), session.close, conn.session, conn.close,
                lambda: producer.send_async(b"x"), lambda: producer.send_many([b"y"])):
        try:
            act()
        except hms.ConnectionForked as error:
            refused += error.owner == os.getppid() and error.own == os.getpid()
    with hms.connect(sys.argv[1]) as own:
        own.session().producer("orders").send(b"child")
    os._exit(refused)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
producer.send(b"parent")
conn.close()
sys.exit(0 if code == 6 else 100 + code)
"""


def test_a_forked_child_is_told_that_the_connection_is_not_its_own(running, conn):
    """It shared the parent's identity, and its sends were taken for repeats."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", FORKS, running.address], check=False, timeout=250, env=env
    )
    assert done.returncode == 0
    assert _waiting(conn) == 3


def test_a_commit_that_found_no_room_can_be_made_again(conn):
    """The second one returned as if there were nothing to commit, and nothing was."""
    conn.session().producer("small").send_many([b"x"] * 5)
    session = conn.session(transacted=True)
    session.producer("small").send(b"late")
    with pytest.raises(hms.QueueFull):
        session.commit()
    conn.administer("queue.purge", {"name": "small"})

    session.commit()

    assert _waiting(conn, "small") == 1


FORKS_A_LOOP = """
import asyncio, os, sys
import hms, hms.aio

async def main():
    async with await hms.aio.connect(sys.argv[1]) as conn:
        session = await conn.session()
        producer = await session.producer("orders")
        await producer.send(b"parent")
        child = os.fork()
        if not child:
            refused = 0
            for act in (lambda: producer.send(b"child").send(None), conn.session,
                        lambda: producer.send_async(b"x"), lambda: session.producer("orders"),
                        lambda: conn.close().send(None)):
                try:
                    act()
                except hms.ConnectionForked as error:
                    refused += error.owner == os.getppid() and error.own == os.getpid()
            os._exit(refused)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        await producer.send(b"parent")
        return code

code = asyncio.run(main())
sys.exit(0 if code == 5 else 100 + code)
"""


def test_a_forked_child_is_told_that_its_parents_event_loop_is_not_its_own(running, conn):
    """A future was never told, and a close took the parent's socket out of what its loop polls."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", FORKS_A_LOOP, running.address], check=False, timeout=250, env=env
    )
    assert done.returncode == 0
    assert _waiting(conn) == 2
