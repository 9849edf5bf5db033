"""Global transactions whose only participants are queues: of services, of several connections."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hms
import hms.aio
from hms.testing import node
from hms.wire.branch_requests import ListActive
from tests.support.waiting import wait_until
from tpmon.tx.connection_place import place_of

WAIT_S = 60
QUEUES = {"put": {}, "taken": {"redelivery_limit": -1}, "sent": {}}


@pytest.fixture(scope="module")
def running():
    here = Path(__file__).parent
    config = {"hms": {"queue": QUEUES}}
    with node(config=config, serve=["queue_services"], python_path=[here]) as booted:
        yield booted


@pytest.fixture
def conn(running):
    with hms.connect(running.address, request_timeout_s=WAIT_S) as connection:
        wait_until(lambda: _offered(connection) >= {"PUT", "LOOK", "TAKE"}, WAIT_S)
        yield connection


def _offered(conn):
    return {one["name"] for one in conn.administer("service.list") if one["servers"]}


def _waiting(conn, name):
    with conn.session() as session:
        return [message.body.decode() for message in session.browser(name, oldest_first=True)]


def _active(conn):
    return [row for row in conn.request(ListActive()) if row[0] != b"HMS identity"]


def _rolled_back(conn, call):
    """A transaction that its application gives up after that call."""

    def fail():
        with conn.transaction(timeout_s=30):
            call()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_what_a_service_alone_has_sent_commits_with_its_caller(conn):
    """The caller, which decides, was told that there is no such branch."""
    with conn.transaction(timeout_s=30):
        conn.call("PUT", {"body": "alone"})
        assert "alone" not in _waiting(conn, "put")

    assert "alone" in _waiting(conn, "put")
    wait_until(lambda: _active(conn) == [], WAIT_S)


def test_what_a_service_has_received_comes_again_when_its_caller_rolls_back(conn):
    """It was held until the server ended."""
    with conn.session() as session:
        session.producer("taken").send(b"again")

    for _ in range(2):
        _rolled_back(conn, lambda: conn.call("TAKE", {"timeout_s": WAIT_S}))

    wait_until(lambda: _waiting(conn, "taken") == ["again"], WAIT_S)
    with conn.session() as session, session.consumer("taken") as consumer:
        assert consumer.receive(WAIT_S).body == b"again"


def test_what_a_service_has_received_comes_again_when_its_caller_is_lost(running, conn):
    """Nobody is left who could end it."""
    with conn.session() as session:
        session.producer("taken").send(b"lost")
    lost = hms.connect(running.address)

    def work():
        with lost.transaction(timeout_s=30):
            lost.call("TAKE", {"timeout_s": WAIT_S})
            with lost.lock:
                lost.driver.stop(hms.ConnectionLost(address="here", reason="it is cut"), 0)

    with pytest.raises(hms.HmsError):
        work()

    wait_until(lambda: _waiting(conn, "taken") == ["lost"], WAIT_S)
    with conn.session() as session, session.consumer("taken") as consumer:
        assert consumer.receive(WAIT_S).body == b"lost"
    lost.close()


@pytest.mark.parametrize("has_work", [False, True])
def test_a_transaction_in_which_services_only_look_ends_at_the_node(conn, has_work):
    """Each stayed active there until its connection ended; beyond 100,000 no more are begun."""
    with conn.session(xa=True) as session:
        for n in range(3):
            with conn.transaction(timeout_s=30):
                conn.call("LOOK", {"n": n})
                if has_work:
                    session.producer("sent").send(b"looked")

    wait_until(lambda: _active(conn) == [], WAIT_S)


def test_a_session_of_another_connection_joins_the_next_transaction_too(running, conn):
    """It was believed to be in the one before, which the decision had committed: what it sent then
    took effect at once, and no rollback took it back."""
    with (
        hms.connect(running.address) as other,
        conn.session(xa=True) as own,
        other.session(xa=True) as session,
    ):
        with conn.transaction(timeout_s=30):
            own.send("sent", b"own")
            session.send("sent", b"other's")
        _rolled_back(conn, lambda: session.send("sent", b"rolled back"))

        assert not own.resource.is_working
        assert not session.resource.is_working
        assert {"own", "other's"} <= set(_waiting(conn, "sent"))
        assert "rolled back" not in _waiting(conn, "sent")


def test_a_session_whose_connection_is_lost_for_good_joins_no_transaction(running, conn):
    """It could not, and so no transaction of its thread could begin, at any connection."""
    lost = hms.connect(running.address)
    session = lost.session(xa=True)
    with lost.lock:
        lost.driver.stop(hms.ConnectionLost(address="here", reason="it is cut"), 0)

    with conn.transaction(timeout_s=30):
        conn.call("LOOK", {"n": 1})

    assert not session.state.is_closed
    lost.close()


async def _cancelled_while_its_end_waits(address):
    """A block whose end waits for a thread of the loop's, of which all are busy."""
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with (
        await hms.aio.connect(address) as conn,
        conn.session(xa=True) as session,
        session.producer("sent") as producer,
    ):
        worked = asyncio.Event()

        async def work():
            async with conn.transaction(timeout_s=30) as transaction:
                await transaction.enlist(session)
                await producer.send(b"in a cancelled block")
                busy.append(asyncio.ensure_future(asyncio.to_thread(is_over.wait, WAIT_S)))
                worked.set()
                raise ZeroDivisionError

        busy: list[asyncio.Future[bool]] = []
        task = asyncio.ensure_future(work())
        await worked.wait()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        is_over.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.state.xid == b""
        await producer.send(b"outside")


def test_a_block_that_is_cancelled_before_its_end_has_begun_still_ends(running, conn):
    """Its session stayed in the branch: what it sent later was lost with the connection."""
    asyncio.run(_cancelled_while_its_end_waits(running.address))

    assert "outside" in _waiting(conn, "sent")
    assert "in a cancelled block" not in _waiting(conn, "sent")


def test_a_transaction_at_the_next_node_is_named_after_that_one():
    """Recovery of the first one would take it for its own, which it has never decided, and roll
    back in a database what the second one has committed."""
    config = {"hms": {"queue": QUEUES}}
    with node(config=config) as first, node(config=config) as second:
        addresses = [first.address, second.address]
        with hms.connect(addresses, request_timeout_s=WAIT_S) as conn:
            place = place_of(conn)
            at_first, its_log = place.log.node_uid, place.blocking.log_id
            with conn.transaction(timeout_s=30) as begun:
                first.kill()
                wait_until(lambda: place.blocking.log_id not in (its_log, None, b""), WAIT_S)
                assert begun.state == 0
            with hms.connect(second.address) as other:
                assert place.log.node_uid == place_of(other).log.node_uid != at_first
