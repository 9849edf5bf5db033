"""HMS as a resource manager on a real node: crashes, outages, many branches.

HMS_IN_DOUBT=10000 pytest tests/acceptance/test_xa_node.py     after a night with a dead coordinator
"""

import queue
import uuid
from itertools import count

import pytest
from kills_rig import sized

import hms
import hms.aio
from hms.testing import node
from hms.wire import branch_requests as wire
from hms.wire.xa_constants import (
    TMJOIN,
    TMONEPHASE,
    XA_OK,
    XA_RBCOMMFAIL,
    XA_RBTIMEOUT,
    XAER_NOTA,
    XAER_PROTO,
)
from hms.wire.xid import Xid
from tpmon.xa.resource import scan

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(30))
WAIT_S = 60
IN_DOUBT = sized("HMS_IN_DOUBT", 1000)
"""More than a page of a scan."""
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


def _moved(session, source, target, xid):
    """Move a message from one queue to the other in a branch, and end it."""
    resource = session.resource
    consumer, producer = session.consumer(source), session.producer(target)
    assert resource.xa_start(xid) == XA_OK, resource.reason
    producer.send(consumer.receive(timeout_s=WAIT_S).body)
    assert resource.xa_end(xid) == XA_OK, resource.reason
    consumer.close()
    return resource


def test_a_prepared_branch_outlives_client_and_node(names, xid):
    """F-H4: kill -9 of both, and its transaction manager commits it all the same."""
    source, target = names
    with node(config=CONFIG) as own:
        with hms.connect(own.address, reconnect=False) as conn:
            _send(conn, source, "a", "b")
            session = conn.session(xa=True)
            resource = _moved(session, source, target, xid)
            assert resource.xa_prepare(xid) == XA_OK
            own.kill()
        own.boot()
        with hms.connect(own.address) as conn:
            assert (_bodies(conn, source), _bodies(conn, target)) == (["b"], [])
            other = conn.session(xa=True).resource
            assert list(scan(other)) == [xid]
            assert other.xa_commit(xid) == XA_OK
            assert (_bodies(conn, source), _bodies(conn, target)) == (["b"], ["a"])
        own.kill()
        own.boot()
        with hms.connect(own.address) as conn:
            assert (_bodies(conn, source), _bodies(conn, target)) == (["b"], ["a"])


def test_a_lost_client_takes_its_branch_with_it(running, conn, names, xid):
    """What is not prepared is rolled back when nobody is left who could prepare it."""
    source, target = names
    _send(conn, source, "a")
    with hms.connect(running.address, reconnect=False) as lost:
        _moved(lost.session(xa=True), source, target, xid)

    assert conn.session(xa=True).resource.xa_prepare(xid) == XAER_NOTA
    assert (_bodies(conn, source), _bodies(conn, target)) == (["a"], [])


def test_work_after_an_outage_is_refused_until_the_branch_ends(names, xid):
    """It must not take effect alone, outside the branch that was lost."""
    errors: queue.Queue[hms.HmsError] = queue.Queue()
    with (
        node(config=CONFIG) as own,
        hms.connect(own.address, request_timeout_s=WAIT_S, exception_listener=errors.put) as conn,
    ):
        session = conn.session(xa=True)
        producer, resource = session.producer(names[0]), session.resource
        assert resource.xa_start(xid) == XA_OK
        producer.send("lost with the node")
        own.kill()
        errors.get(timeout=WAIT_S)
        own.boot()

        with pytest.raises(hms.TransactionRolledBack):
            producer.send("behind the outage")
        assert resource.xa_end(xid) == XA_RBCOMMFAIL
        producer.send("in no branch")

        assert _bodies(conn, names[0]) == ["in no branch"]
        assert resource.xa_rollback(xid) == XAER_NOTA


def test_the_outcome_of_a_commit_in_one_phase_is_told_after_an_outage(names, xid):
    """Its answer may be lost with the node; a second one must not be given as a guess."""
    with node(config=CONFIG) as own:
        with hms.connect(own.address) as conn:
            session = conn.session(xa=True)
            producer, resource = session.producer(names[0]), session.resource
            assert resource.xa_start(xid) == XA_OK
            producer.send("a")
            assert resource.xa_end(xid) == XA_OK
            assert resource.xa_commit(xid, flags=TMONEPHASE) == XA_OK
        own.kill()
        own.boot()
        with hms.connect(own.address) as conn:
            again = wire.XaCommit(xid.pack(), is_one_phase=True, is_again=True)
            assert conn.request(again)["code"] == XA_OK


def test_a_branch_is_joined_by_another_process_connection(running, conn, names, xid):
    """A service called in a transaction works in its caller's branch."""
    caller = conn.session(xa=True)
    assert caller.resource.xa_start(xid) == XA_OK
    caller.producer(names[0]).send("caller")
    assert caller.resource.xa_end(xid) == XA_OK
    with hms.connect(running.address) as server:
        session = server.session(xa=True)
        assert session.resource.xa_start(xid, flags=TMJOIN) == XA_OK
        session.producer(names[1]).send("service")
        assert caller.resource.xa_prepare(xid) == XAER_PROTO
        assert session.resource.xa_end(xid) == XA_OK

    assert caller.resource.xa_commit(xid, flags=TMONEPHASE) == XA_OK
    assert (_bodies(conn, names[0]), _bodies(conn, names[1])) == (["caller"], ["service"])


def test_an_idle_branch_is_rolled_back_in_time(conn, names, xid):
    """What it has received must not be locked for ever."""
    _send(conn, names[0], "a")
    session = conn.session(xa=True)
    session.resource.timeout_s = 3.0  # the work itself is done by then
    resource = _moved(session, *names, xid)
    with conn.session() as other, other.consumer(names[0]) as consumer:
        assert consumer.receive(timeout_s=WAIT_S).body == "a"

    assert resource.xa_prepare(xid) == XA_RBTIMEOUT


@pytest.mark.timeout(600)  # five round trips each, on any machine
def test_many_branches_in_doubt_are_found_and_ended(conn, names):
    """After a night with a dead coordinator."""
    session = conn.session(xa=True)
    producer, resource = session.producer(names[0]), session.resource
    wanted = [Xid(11, b"%05d" % n, b"b") for n in range(IN_DOUBT)]
    for xid in wanted:
        resource.xa_start(xid)
        producer.send("x")
        resource.xa_end(xid)
        assert resource.xa_prepare(xid) == XA_OK

    found = [xid for xid in scan(resource, 700) if xid.format_id == wanted[0].format_id]

    assert found == wanted
    for xid in wanted:
        assert resource.xa_rollback(xid) == XA_OK
    assert _bodies(conn, names[0]) == []
