"""XA sessions on a real node: in a branch and outside of one, in threads and asyncio."""

import asyncio
import uuid
from itertools import count

import pytest

import hms
import hms.aio
import tpmon
from hms.wire.xa_constants import (
    XA_OK,
)
from hms.wire.xid import Xid

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(30))
WAIT_S = 60
_numbers = count()


@pytest.fixture
def names():
    """Two queues that no other test uses."""
    return f"q{next(_numbers)}", f"q{next(_numbers)}"


@pytest.fixture
def xid():
    return Xid(9, uuid.uuid4().bytes, b"hms")


def _bodies(conn, name):
    with conn.session() as session:
        return [m.body for m in session.browser(name, oldest_first=True)]


def _send(conn, name, *bodies):
    with conn.session() as session:
        session.producer(name).send_many(bodies)


def test_in_a_branch_a_session_commits_nothing_itself(conn, names, xid):
    """F-B6: nor does it outside of one."""
    session = conn.session(xa=True)
    for _ in range(2):
        for call in (session.commit, session.rollback):
            with pytest.raises(hms.IllegalState):
                call()
        session.resource.xa_start(xid)
    with pytest.raises(hms.IllegalState):
        session.recover()
    with pytest.raises(hms.IllegalState):
        conn.session().resource  # noqa: B018 - the property refuses


def test_only_synchronous_receives_take_part(conn, names):
    """F-B6: a listener's messages would be acknowledged in whatever branch is active just then."""
    session = conn.session(xa=True)
    with pytest.raises(hms.IllegalState):
        session.consumer(names[0]).set_listener(print)


async def _in_asyncio(address, names, xid):
    async with (
        await hms.aio.connect(address) as conn,
        conn.session(xa=True) as session,
        session.consumer(names[0]) as consumer,
        session.producer(names[1]) as producer,
    ):
        resource = session.resource
        assert await resource.xa_start(xid) == XA_OK
        message = await consumer.receive(timeout_s=WAIT_S)
        await producer.send(message.body)
        with pytest.raises(hms.IllegalState):
            await session.commit()
        assert await resource.xa_end(xid) == XA_OK
        assert await resource.xa_prepare(xid) == XA_OK
        assert await resource.xa_recover(10) == [xid]
        assert await resource.xa_commit(xid) == XA_OK


def test_asyncio_has_the_same(running, conn, names, xid):
    """The client is written once; this holds its second shell to it."""
    _send(conn, names[0], "a")
    asyncio.run(_in_asyncio(running.address, names, xid))

    assert _bodies(conn, names[1]) == ["a"]


def test_what_was_rolled_back_comes_again_before_what_was_prefetched(conn, names):
    """As after rollback() of a transacted session: the order of a queue must not depend on it."""
    _send(conn, names[0], *"abcd")
    session = conn.session(xa=True)
    resource, consumer = session.resource, session.consumer(names[0])
    for n in range(2):
        xid = Xid(9, uuid.uuid4().bytes, b"hms")
        assert resource.xa_start(xid) == XA_OK
        assert [consumer.receive(timeout_s=WAIT_S).body for _ in range(2)] == ["a", "b"], n
        assert resource.xa_end(xid) == XA_OK
        assert resource.xa_prepare(xid) == XA_OK
        assert resource.xa_rollback(xid) == XA_OK

    assert [consumer.receive(timeout_s=WAIT_S).body for _ in range(4)] == list("abcd")


def test_the_function_of_tmax_makes_such_a_session(running, conn, names, xid, monkeypatch):
    """hms_create_xa_session, over the connection of tpstart()."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    session = hms.hms_create_xa_session("hms")
    resource = session.resource
    assert resource.xa_start(xid) == XA_OK
    session.producer(names[0]).send("a")
    with pytest.raises(hms.IllegalState):
        hms.hms_commit(session)
    assert resource.xa_end(xid) == XA_OK
    assert resource.xa_prepare(xid) == XA_OK
    tpmon.tpend()

    assert conn.session(xa=True).resource.xa_commit(xid) == XA_OK
    assert _bodies(conn, names[0]) == ["a"]
