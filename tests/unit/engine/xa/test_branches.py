"""Branches of distributed transactions in the engine: who works in them, and how they end."""

import pytest

from hms.engine.engine import ConsumerRequest
from hms.engine.xa.xa_codes import TMFAIL, TMJOIN, TMRESUME, TMSUSPEND, Code
from hms.wire import xa_constants
from tests.support.branch_rig import OTHER, SECOND, XA, xid
from tests.support.engine_rig import delivered


def _count(rig, queue="orders"):
    return len(rig.browse(queue).messages)


def test_codes_have_the_numbers_of_x_open(rig):
    """The engine may not import the client's constants; a wrong number would be a wrong outcome."""
    for code in Code:
        names = ("XA_" + code.name, "XAER_" + code.name)
        assert code in {getattr(xa_constants, name, None) for name in names}, code.name


def test_work_outside_a_branch_takes_effect_at_once(rig):
    """F-B6: outside a transaction an XA session is like any other."""
    rig.send(51)

    assert _count(rig) == 1


def test_work_in_a_branch_shows_only_when_it_is_committed(rig):
    """All or nothing, and not before."""
    rig.sent_in_branch(count=3)
    assert _count(rig) == 0
    assert rig.prepare() == Code.OK
    assert _count(rig) == 0

    assert rig.commit() == Code.OK
    assert _count(rig) == 3
    assert rig.commit() == Code.NOTA


def test_a_commit_in_one_phase_is_one_record(rig):
    """A transaction with one participant costs what a local one does."""
    rig.sent_in_branch()
    before = len(rig.log)

    assert rig.commit(is_one_phase=True) == Code.OK

    assert len(rig.log) == before + 1


def test_what_a_branch_received_is_nobody_elses_until_it_ends(rig):
    """A locked message must not be delivered twice, and not be lost."""
    rig.send(1, 2)
    messages = rig.consume(9, session=XA)
    rig.begin()
    rig.acknowledge(9, messages)
    rig.end()
    rig.prepare()
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))
    assert rig.consume(8) == []

    fx = rig.run(lambda fx: rig.branches.rollback(xid(), rig.now_ms, fx))

    assert [m.id for m in delivered(fx)] == [m.id for m in messages]


def test_a_rolled_back_receipt_counts_as_an_attempt(rig):
    """F-C8: redelivery limits wait for the outcome, and then count."""
    rig.send(1)
    (message,) = rig.consume(9, session=XA, credit=1)
    rig.begin()
    rig.acknowledge(9, [message])
    rig.end()

    rig.rollback()

    line = rig.engine.state.queues["orders"].line
    assert line.attempts(message) == 1


def test_a_branch_that_did_nothing_votes_read_only(rig):
    """Nobody has to come back for it."""
    rig.begin()
    rig.end()

    assert rig.prepare() == Code.RDONLY
    assert rig.commit() == Code.NOTA
    assert rig.recover()["xids"] == []


def test_a_branch_is_joined_by_another_connection(rig):
    """A service called in a transaction works in its caller's branch."""
    rig.sent_in_branch()
    assert rig.begin(flags=TMJOIN, connection=SECOND, session=OTHER) == Code.OK
    rig.send(1, connection=SECOND)
    assert rig.prepare() == Code.PROTO
    assert rig.end(connection=SECOND, session=OTHER) == Code.OK

    assert rig.commit(is_one_phase=True) == Code.OK
    assert _count(rig) == 2


def test_a_suspended_branch_goes_on_where_it_was(rig):
    """tpsuspendtx: between the two, the session's work is its own again."""
    rig.begin()
    rig.send(51)
    assert rig.end(flags=TMSUSPEND) == Code.OK
    rig.send(51)
    assert _count(rig) == 1
    assert rig.prepare() == Code.PROTO
    assert rig.begin(flags=TMRESUME) == Code.OK
    rig.send(51)
    rig.end()

    rig.commit(is_one_phase=True)

    assert _count(rig) == 3


@pytest.mark.parametrize("flags", [TMJOIN, TMRESUME])
def test_what_is_not_there_cannot_be_joined(rig, flags):
    """XAER_NOTA."""
    assert rig.begin(flags=flags) == Code.NOTA


def test_one_name_is_one_branch(rig):
    """XAER_DUPID: while it works, idle, or prepared."""
    rig.sent_in_branch()
    assert rig.begin() == Code.DUPID
    rig.prepare()
    assert rig.begin() == Code.DUPID


def test_a_session_works_in_one_branch_at_a_time(rig):
    """XAER_PROTO, and nothing has changed."""
    rig.begin()

    assert rig.begin(xid(2)) == Code.PROTO
    assert rig.end() == Code.OK


@pytest.mark.parametrize("name", [b"", b"\0\0\0\1\0\1x", b"\0\0\0\1\2\0x", b"\xff\0\0\1\1\0x"])
def test_a_name_that_is_none_is_refused(rig, name):
    """XAER_INVAL: the null xid, no gtrid, and lengths that do not fit."""
    answer = rig.branches.start(1, XA, name, 0, 0, rig.now_ms)

    assert answer.code is Code.INVAL


def test_a_transacted_session_cannot_work_in_a_branch(rig):
    """Its work has an outcome already."""
    assert rig.begin(session=2) == Code.PROTO


def test_failed_work_can_only_be_rolled_back(rig):
    """TMFAIL is the application's veto, also for those who have joined."""
    rig.begin()
    rig.send(51)
    assert rig.end(flags=TMFAIL) == Code.OK

    assert rig.begin(flags=TMJOIN) == Code.RBROLLBACK
    assert rig.commit(is_one_phase=True) == Code.RBROLLBACK
    assert _count(rig) == 0


def test_a_scan_comes_in_pages_in_the_order_of_the_votes(rig):
    """10,000 branches do not fit into one reply."""
    wanted = [xid(n) for n in range(1, 8)]
    for name in wanted:
        rig.sent_in_branch(name)
        rig.prepare(name)
    found, after, has_more = [], 0, True
    while has_more:
        page = rig.recover(after, 3)
        found += page["xids"]
        after, has_more = page["position"], page["has_more"]

    assert found == wanted


def test_a_branch_takes_what_a_listeners_service_was_given(rig):
    """A message and the change of a database that it causes are one transaction: the service's
    reply settles nothing then."""
    rig.send(1)
    rig.engine.open_session(1, 7, 0, "asynchronous")
    (message,) = _listened(rig)
    listener = (1, 70)
    take = lambda session: rig.branches.take(SECOND, session, listener, [message])  # noqa: E731
    assert take(OTHER).code is Code.PROTO
    rig.begin(connection=SECOND, session=OTHER)
    assert take(OTHER).code is Code.OK
    assert take(OTHER).code is Code.NOTA
    rig.end(connection=SECOND, session=OTHER)
    rig.run(lambda fx: rig.engine.listener_done(*listener, [message], None, None, 1000, fx))
    assert rig.engine.state.queues["orders"].line.out_count == 1

    rig.commit(is_one_phase=True)

    assert rig.engine.state.queues["orders"].line.out_count == 0
    rig.start()
    assert _count(rig) == 0


def _listened(rig):
    """What is out to a new listener of orders."""
    request = ConsumerRequest(70, 7, "queue", "orders", 1, listener="ORDER")
    rig.run(lambda fx: rig.engine.open_consumer(1, request, 1, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.listener_credit(1, 70, 1, rig.now_ms, fx))
    return list(rig.engine.state.connections[1].consumers[70].out.values())
