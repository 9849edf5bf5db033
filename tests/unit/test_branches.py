"""Branches of distributed transactions in the engine: who works in them, and how they end."""

import pytest

from field_buffer.catalogue import TransactionRolledBack
from hms.engine.branches.codes import TMFAIL, TMJOIN, TMRESUME, TMSUSPEND, Code
from tests.support.branch_rig import OTHER, SECOND, XA, BranchRig, xid
from tests.support.engine_rig import delivered
from tpmon.xa import constants


@pytest.fixture
def rig():
    return BranchRig()


def _count(rig, queue="orders"):
    return len(rig.browse(queue).messages)


def test_codes_have_the_numbers_of_x_open(rig):
    """The engine may not import the client's constants; a wrong number would be a wrong outcome."""
    for code in Code:
        names = ("XA_" + code.name, "XAER_" + code.name)
        assert code in {getattr(constants, name, None) for name in names}, code.name


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


def test_an_idle_branch_is_rolled_back_when_its_time_is_over(rig):
    """XA_RBTIMEOUT: what it holds must not be held for ever."""
    rig.send(1)
    (message,) = rig.consume(9, session=XA, credit=1)
    rig.begin(timeout_ms=500)
    rig.acknowledge(9, [message])
    rig.end()
    assert rig.engine.due_ms() == rig.now_ms + 500
    rig.now_ms += 500

    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    assert rig.engine.state.queues["orders"].line.waiting_count == 1
    assert rig.prepare() == Code.RBTIMEOUT
    assert rig.prepare() == Code.NOTA


def test_what_is_sent_after_the_time_is_over_is_refused(rig):
    """It must not slip out of the branch and take effect alone."""
    rig.begin(timeout_ms=500)
    rig.now_ms += 500
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    with pytest.raises(TransactionRolledBack):
        rig.send(51)
    assert rig.end() == Code.RBTIMEOUT
    assert _count(rig) == 0


def test_a_prepared_branch_has_no_time_limit(rig):
    """It waits for its outcome, however long."""
    rig.begin(timeout_ms=500)
    rig.send(51)
    rig.end()
    rig.prepare()
    rig.now_ms += 10_000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    assert rig.commit() == Code.OK


def test_the_end_of_a_connection_rolls_back_what_is_not_prepared(rig):
    """F-H4: nobody is left who could vote for it."""
    rig.sent_in_branch(xid(1))
    rig.sent_in_branch(xid(2))
    rig.prepare(xid(2))

    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert rig.prepare(xid(1)) == Code.NOTA
    assert rig.commit(xid(2)) == Code.OK


def test_a_lost_joiner_takes_the_branch_with_it(rig):
    """Half of what it wanted to do may have been done."""
    rig.sent_in_branch()
    rig.begin(flags=TMJOIN, connection=SECOND, session=OTHER)

    rig.run(lambda fx: rig.engine.close_connection(SECOND, rig.now_ms, fx))

    assert rig.prepare() == Code.RBCOMMFAIL


def test_a_joiner_that_has_ended_may_go(rig):
    """A server process may end after its service has returned."""
    rig.sent_in_branch()
    rig.begin(flags=TMJOIN, connection=SECOND, session=OTHER)
    rig.end(connection=SECOND, session=OTHER)

    rig.run(lambda fx: rig.engine.close_connection(SECOND, rig.now_ms, fx))

    assert rig.prepare() == Code.OK


def test_a_branch_whose_connections_are_gone_is_forgotten(rig):
    """Nobody can ask for it any more, so its memory would stay for ever."""
    rig.begin()
    rig.begin(flags=TMJOIN, connection=SECOND, session=OTHER)
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.close_connection(SECOND, rig.now_ms, fx))

    assert rig.engine.state.branches.by_xid == {}


def test_a_session_that_was_opened_again_works_in_no_branch(rig):
    """Its client believes it in a branch that went with the connection: what it sends now must be
    refused, not taken as work of its own."""
    rig.engine.open_session(1, 6, 0, "xa", xid(3))
    rig.engine.open_producer(1, 61, 6, "queue", "orders")

    with pytest.raises(TransactionRolledBack):
        rig.send(61)
    assert rig.end(xid(3), session=6) == Code.RBCOMMFAIL
    rig.send(61)
    assert _count(rig) == 1


def test_who_got_no_answer_may_ask_again(rig):
    """A one-phase commit that took effect must not look like one that was rolled back."""
    rig.sent_in_branch()
    rig.commit(is_one_phase=True)

    assert rig.commit(is_one_phase=True, is_again=True) == Code.OK
    assert rig.commit(xid(2), is_one_phase=True, is_again=True) == Code.NOTA
    assert _count(rig) == 1


def test_a_vote_that_does_not_fit_into_a_record_is_a_no(rig):
    """It would have to be refused later, when it is too late."""
    small = BranchRig(transaction_bytes_max=1000)
    small.begin()
    small.send(51, body=b"x" * 600)
    branch = small.engine.state.branches.by_xid[xid()]
    small.end()
    branch.work.sends *= 2

    assert small.prepare() == Code.RBOTHER
    assert _count(small) == 0


def test_votes_beyond_the_memory_are_a_no(rig):
    """P8: what is in doubt is bounded like what waits."""
    small = BranchRig(memory_bytes_max=2000)
    codes = []
    for n in range(1, 6):
        small.begin(xid(n))
        small.send(51, body=b"x" * 400)
        small.end(xid(n))
        codes.append(small.prepare(xid(n)))

    assert codes[0] == Code.OK
    assert codes[-1] == Code.RBTRANSIENT


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
