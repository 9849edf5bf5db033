"""Branches that nobody ended in order: time, lost connections, limits, answers that were lost."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.engine.xa.branch_operations import transactions
from hms.engine.xa.xa_codes import TMJOIN, Code
from hms.errors.catalogue import TransactionRolledBack
from tests.support.branch_rig import OTHER, SECOND, XA, BranchRig, xid
from tests.support.engine_rig import DESTINATIONS


def _count(rig, queue="orders"):
    return len(rig.browse(queue).messages)


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


def test_branches_are_counted_by_state_and_the_oldest_in_doubt_has_an_age(rig):
    """One that is open is in no doubt, and one that was decided by hand is none of any age."""
    rig.sent_in_branch(xid(1))
    rig.sent_in_branch(xid(2))
    assert transactions(rig.engine.state)["in_doubt_oldest_s"] == 0
    rig.prepare(xid(2))
    rig.now_ms += 10_000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    told = transactions(rig.engine.state)
    assert (told["branches_in_doubt"], told["in_doubt_oldest_s"]) == (1, 10)
    states = {state for state, count in told["transactions"].items() if count}
    assert states == {"idle", "prepared"}
    assert rig.commit(xid(2)) == Code.OK
    assert transactions(rig.engine.state)["branches_in_doubt"] == 0


def test_each_branch_is_counted_once_by_how_it_ended(rig):
    """What an operator decided counts then, and not again when it is forgotten."""
    for number in range(1, 7):
        rig.sent_in_branch(xid(number))
    assert rig.begin(xid(7)) == rig.end(xid(7)) == 0
    assert rig.commit(xid(1), is_one_phase=True) == Code.OK
    for number in (2, 3, 4, 5):
        assert rig.prepare(xid(number)) == Code.OK
    assert rig.commit(xid(2)) == rig.rollback(xid(3)) == rig.rollback(xid(6)) == Code.OK
    rig.operate("transaction.commit", xid(4))
    rig.operate("transaction.rollback", xid(5))
    assert rig.forget(xid(4)) == rig.forget(xid(5)) == Code.OK
    assert rig.prepare(xid(7)) == Code.RDONLY
    assert rig.begin(xid(8)) == 0
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert transactions(rig.engine.state)["transaction_endings"] == {
        "committed": 2,
        "read only": 1,
        "rolled back": 3,
        "heuristically committed": 1,
        "heuristically rolled back": 1,
    }


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


def test_a_branch_for_which_there_is_no_room_is_not_promised():
    """F-C11: a limit is refused at the vote, when the others can still be rolled back; what was
    promised before is kept."""
    orders = DestinationSettings("queue", "orders", messages_max=3)
    rig = BranchRig(destinations=(orders, *DESTINATIONS[1:]))
    codes = []
    for n in range(1, 4):
        rig.sent_in_branch(xid(n), count=2)
        codes.append(rig.prepare(xid(n)) if n < 3 else rig.commit(xid(n), is_one_phase=True))
        if n == 1:
            rig.send(1, 2)

    assert codes == [Code.OK, Code.RBTRANSIENT, Code.RBTRANSIENT]
    assert rig.commit(xid(1)) == Code.OK
    assert _count(rig) == 4
