"""Branches over a crash, and what operators do to those that stay."""

import pytest

from hms.engine.effects import Effects
from hms.engine.xa.xa_codes import Code
from hms.errors.catalogue import (
    BranchNotFound,
    BranchStateWrong,
    DestinationInUse,
    InvalidArgument,
)
from hms.records import Cause, RecordType, decode_ranges
from tests.support.branch_rig import XA, BranchRig, xid


def _count(rig, queue="orders"):
    return len(rig.browse(queue).messages)


def _prepared(rig, name=None, *, receipts=1):
    """A branch that has moved orders to slow."""
    rig.send(1, receipts)
    messages = rig.consume(9, session=XA)
    rig.begin(name)
    rig.acknowledge(9, messages)
    rig.send(53, receipts)
    rig.end(name)
    assert rig.prepare(name) == Code.OK
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))
    return messages


def test_a_prepared_branch_is_there_again_after_a_crash(rig):
    """F-H4: its transaction manager may have decided to commit."""
    _prepared(rig, receipts=2)
    rig.start()
    assert rig.recover()["xids"] == [xid()]
    assert (_count(rig), _count(rig, "slow")) == (0, 0)

    assert rig.commit() == Code.OK

    assert (_count(rig), _count(rig, "slow")) == (0, 2)
    rig.start()
    assert (_count(rig), _count(rig, "slow")) == (0, 2)
    assert rig.recover()["xids"] == []


def test_a_prepared_branch_can_be_rolled_back_after_a_crash(rig):
    """And what it had received comes again, as one that was delivered before."""
    messages = _prepared(rig)
    rig.start()

    assert rig.rollback() == Code.OK

    assert (_count(rig), _count(rig, "slow")) == (1, 0)
    assert rig.browse().counts == [1]
    rig.start()
    assert [m.id for m in rig.browse().messages] == [m.id for m in messages]
    assert rig.engine.state.queues["orders"].line.attempts(messages[0]) == 1


def test_a_branch_that_was_not_prepared_is_gone_after_a_crash(rig):
    """F-H4."""
    rig.sent_in_branch()
    rig.start()

    assert rig.prepare() == Code.NOTA
    assert _count(rig) == 0


def test_a_publication_in_a_branch_goes_to_who_subscribes_when_it_is_committed():
    """As in a local transaction; also when its producer is of another life of the node."""
    rig = BranchRig(subscriptions=[("billing", "news")])
    rig.begin()
    rig.send(52, 2)
    rig.end()
    rig.prepare()
    rig.start(subscriptions=[("billing", "news"), ("audit", "news")])

    rig.commit()

    found = rig.engine.state.topics["news"].subscriptions
    assert [s.line.waiting_count for s in found] == [2, 2]


def test_message_ids_of_a_prepared_branch_are_not_given_again(rig):
    """An id twice would be two messages under one name."""
    rig.begin()
    rig.send(51)
    rig.end()
    rig.prepare()
    rig.start()
    rig.send(1)
    rig.commit()

    ids = [m.id for m in rig.browse().messages]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_cleaning_the_log_carries_branches_and_decisions_on(rig, is_cleaned):
    """The ring lets old segments go; a vote must not go with them."""
    messages = _prepared(rig)
    rig.engine.branches.begin_global(1, b"global", 0, "", rig.now_ms)
    rig.run(lambda fx: rig.branches.decide(1, b"global", b"who", [], rig.now_ms, fx))
    rig.send(1)
    if is_cleaned:
        _forget_the_old_log(rig)
    rig.start()

    assert rig.recover()["xids"] == [xid()]
    assert rig.branches.ask(b"global", Effects())["participants"] == b"who"
    assert rig.commit() == Code.OK
    assert (_count(rig), _count(rig, "slow")) == (1, 1)
    assert messages[0].id not in [m.id for m in rig.browse().messages]


def _forget_the_old_log(rig):
    """What cleaning leaves: the dictionary, what was moved, and what was told again."""
    state = rig.engine.state
    old = len(rig.log)
    dictionary = rig.engine.dictionary()
    held = [m for q in state.queues.values() for m in q.line.everything()]
    held += [m for b in state.branches.by_xid.values() for _, m in b.work.acknowledged]
    for message in held:
        message.block.placed(0)
    rig.run(lambda fx: rig.engine.move(0, [(m, m.payload) for m in held], rig.now_ms, fx))
    for keys in rig.branches.kept():
        rig.run(lambda fx, keys=keys: rig.branches.restate(keys, fx))
    first = (dictionary.type, b"".join(dictionary.parts))
    rig.log = [first, *rig.log[old:]]
    assert RecordType.MOVED in [kind for kind, _ in rig.log]


def test_an_operators_commit_is_told_until_it_is_forgotten(rig):
    """XA_HEURCOM, also after a crash: the transaction manager must hear of it."""
    _prepared(rig)
    rig.operate("transaction.commit")
    assert _count(rig, "slow") == 1
    rig.start()

    assert _count(rig, "slow") == 1
    assert rig.recover()["xids"] == [xid()]
    assert rig.rollback() == Code.HEURCOM
    assert rig.commit() == Code.HEURCOM
    assert rig.forget() == Code.OK
    rig.start()
    assert rig.forget() == Code.NOTA


def test_an_operators_rollback_is_told_until_it_is_forgotten(rig):
    """XA_HEURRB."""
    _prepared(rig)
    rig.operate("transaction.rollback")
    assert (_count(rig), _count(rig, "slow")) == (1, 0)
    rig.start()

    assert (_count(rig), _count(rig, "slow")) == (1, 0)
    assert rig.commit() == Code.HEURRB
    rig.operate("transaction.forget")
    assert rig.recover()["xids"] == []


def test_an_operator_decides_about_prepared_branches_only(rig):
    """What is not prepared belongs to its connection; what is gone, to nobody."""
    rig.sent_in_branch()
    with pytest.raises(BranchStateWrong):
        rig.operate("transaction.commit")
    with pytest.raises(BranchNotFound):
        rig.operate("transaction.rollback", xid(2))
    rig.prepare()
    with pytest.raises(BranchStateWrong):
        rig.operate("transaction.forget")
    assert rig.operate("transaction.show")["sends"] == {"queue:orders": 1}


def test_who_asks_again_after_a_crash_hears_the_outcome(rig):
    """The answer to a one-phase commit may have been lost with the node."""
    rig.sent_in_branch()
    rig.commit(is_one_phase=True)
    rig.start()

    assert rig.commit(is_one_phase=True, is_again=True) == Code.OK


def test_a_queue_to_which_a_branch_sends_cannot_be_deleted(rig):
    """Its messages would have no place to go to when the branch is committed."""
    _create(rig)
    rig.begin()
    rig.send(59)
    rig.end()
    rig.prepare()

    with pytest.raises(DestinationInUse):
        _administer(rig, "queue.delete")
    rig.rollback()
    _administer(rig, "queue.delete")


def test_what_is_sent_to_a_queue_that_has_not_outlived_the_node_is_a_dead_letter(rig):
    """P9: a queue that was made while the node ran ends with it; what a branch sent there does
    not."""
    _create(rig, "DYNAMIC")
    rig.begin()
    rig.send(59)
    rig.end()
    rig.prepare()
    rig.start()

    assert rig.commit() == Code.OK
    assert _count(rig, "HMS.DLQ") == 1


def _create(rig, life="CREATED"):
    _administer(rig, "queue.create", life=life)
    rig.engine.open_producer(1, 59, XA, "queue", "made")


def _administer(rig, verb, **arguments):
    arguments = {"name": "made"} | arguments
    rig.run(lambda fx: rig.engine.administer(verb, arguments, rig.now_ms, fx))


def test_a_cold_boot_takes_from_branches_what_it_takes_from_queues(rig):
    """F-H2: what the store holds for a destination is deleted, in doubt or not; who decides about
    the branch still finds it."""
    _prepared(rig, receipts=2)
    rig.start(is_warm=False)
    rig.start()

    assert rig.recover()["xids"] == [xid()]
    assert rig.commit() == Code.OK
    assert (_count(rig), _count(rig, "slow")) == (0, 0)
    causes = [decode_ranges(p).cause for k, p in rig.log if k == RecordType.DISCARDED]
    assert causes.count(Cause.COLD) == 2
    assert rig.engine.state.waiting_bytes == 0


def _states(rig, state=""):
    answers = []
    asked = {"place": "queue:orders", "state": state}

    def ask(fx):
        answers.append(rig.engine.administer("message.list", asked, rig.now_ms, fx))

    rig.run(ask)
    return [row["state"] for row in answers[0]["messages"]]


def test_what_a_prepared_branch_has_is_told_from_what_a_consumer_has(rig):
    """It comes back when somebody decides, not when a consumer settles or goes."""
    _prepared(rig)
    rig.send(1, 2)
    rig.consume(9, credit=1)
    assert _states(rig) == ["prepared", "in_flight", "waiting"]
    assert _states(rig, "prepared") == ["prepared"]
    assert _states(rig, "in_flight") == ["prepared", "in_flight"]
    rig.start()
    assert _states(rig) == ["prepared", "waiting", "waiting"]

    asked = {"place": "queue:orders", "state": "prepared"}
    with pytest.raises(InvalidArgument, match="not touched"):
        rig.run(lambda fx: rig.engine.administer("message.delete", asked, rig.now_ms, fx))
    assert rig.rollback() == Code.OK
    assert _states(rig, "prepared") == []
    assert _states(rig) == ["waiting"] * 3
