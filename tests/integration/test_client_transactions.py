"""Transacted sessions, and what a lost connection does to them, against a scripted node."""

import threading

import pytest
from client_rig import WAIT_S, in_thread, restart

import hms
from hms.errors.catalogue import TransactionTooLarge
from hms.wire.frames import Action, Kind
from hms.wire.structures import Commit
from tests.support.waiting import wait_until


def test_a_commit_after_lost_work_raises_and_the_next_one_works(connection, node, errors):
    """F-K7: half a transaction must never be committed."""
    session = connection.session(transacted=True)
    producer = session.producer("orders")
    producer.send(b"lost")
    node.drop()
    errors.get(timeout=WAIT_S)
    restart(node)
    producer.send(b"after the loss, before the commit")

    with pytest.raises(hms.TransactionRolledBack):
        session.commit()
    producer.send(b"new")
    session.commit()

    assert node.commits == {session.state.number: 1}


def test_sends_in_a_transaction_are_not_waited_for(connection, node):
    """A hundred sends ask the node twice: the first goes at once, the others when that is
    confirmed or at the commit, in one frame. Their receipts wait when they are read."""
    may_answer = threading.Event()

    def late(pack):
        assert may_answer.wait(WAIT_S)
        return node._usual(Kind.SEND, pack, pack)

    node.on[Kind.SEND] = late
    producer = connection.session(transacted=True).producer("orders")
    receipts = [producer.send(b"x") for _ in range(100)]
    may_answer.set()

    ids = [receipt.message_id for receipt in receipts]
    assert ids == sorted(set(ids))
    assert len(node.kinds(Kind.SEND)) == 2
    first, elapsed_s = receipts[0]
    assert (first, elapsed_s) == (receipts[0][0], receipts[0].elapsed_s)
    assert receipts[0] == (first, elapsed_s)
    assert hash(receipts[0]) == hash((first, elapsed_s))


def test_rollback_completes_during_an_outage(connection, node, errors):
    """F-K7: rollback always completes."""
    session = connection.session(transacted=True)
    session.producer("orders").send(b"lost")
    node.drop()
    errors.get(timeout=WAIT_S)

    session.rollback()
    restart(node)
    session.commit()

    assert node.requests(Commit) == []


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_without_a_reply_ends_as_it_really_did(connection, node, took_effect):
    """E09: the client is told the truth, from the number that OpenSession is answered with."""
    node.on[Commit] = lambda _: None
    session = connection.session(transacted=True)
    session.producer("orders").send(b"x")
    committing = in_thread(session.commit)
    node.wait(lambda: node.requests(Commit))
    node.drop()
    if took_effect:
        node.commits[session.state.number] = 1
    del node.on[Commit]

    restart(node)
    ended = committing.get(timeout=WAIT_S)

    assert ended is None if took_effect else isinstance(ended, hms.TransactionRolledBack)
    session.producer("orders").send(b"y")
    session.commit()


def test_leaving_the_block_commits_and_an_exception_rolls_back(connection, node):
    """The block is the transaction."""
    with connection.session(transacted=True) as session:
        session.producer("orders").send(b"x")
    with pytest.raises(hms.InvalidArgument), connection.session(transacted=True) as session:
        session.producer("orders").send(b"y", priority=10)

    assert len(node.commits) == 1


def test_what_a_transaction_consumed_is_acknowledged_before_its_commit(connection, node):
    """F-B5: receipts are final with the commit, and given back by the rollback."""
    session = connection.session(transacted=True)
    consumer = session.consumer("orders")
    node.deliver((1, b"a"), (2, b"b"))
    consumer.receive(WAIT_S)
    session.commit()
    assert node.settled(Action.ACKNOWLEDGE) == [1]
    consumer.receive(WAIT_S)
    session.rollback()

    assert node.settled(Action.ACKNOWLEDGE) == [1, 2]
    assert consumer.receive_nowait() is None


def test_what_a_callback_sends_is_a_part_of_the_commit(connection, node):
    """It was refused when the commit was asked for already, and the rest took effect without it."""
    refused = []

    def answer(pack):
        if node.kinds(Kind.SEND)[1:]:
            refused.append(pack)
            raise TransactionTooLarge(size=2, limit=1)
        return node._usual(Kind.SEND, pack, pack)

    node.on[Kind.SEND] = answer
    session = connection.session(transacted=True)
    producer = session.producer("orders")

    def send_more(_):
        wait_until(lambda: not session.state.has_futures, WAIT_S)  # commit() waits for callbacks
        producer.send_async(b"second")

    producer.send_async(b"first").add_done_callback(send_more)

    with pytest.raises(hms.TransactionRolledBack):
        session.commit()

    assert refused
    assert node.requests(Commit) == []
