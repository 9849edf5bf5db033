"""What was not confirmed is repeated at the log that may hold it only; elsewhere it is in doubt."""

import queue
from contextlib import ExitStack

import pytest
from client_rig import WAIT_S, FakeNode, fake_node, in_thread, patient

import hms
from hms.client.xa_resource import HmsResource
from hms.wire.branch_requests import XaCommit, XaEnd, XaPrepare, XaStart
from hms.wire.frames import Kind
from hms.wire.structures import Commit, encode
from hms.wire.xa_constants import XA_OK, XAER_NOTA, XAER_RMFAIL
from hms.wire.xid import Xid

BRIEF_S = 1.5
"""A request_timeout_s of which a third is over soon."""


@pytest.fixture
def nodes():
    with ExitStack() as stack:
        both = [stack.enter_context(fake_node()) for _ in range(2)]
        both[0].log, both[1].log = b"first log", b"second log"
        yield both


def connect(nodes: list[FakeNode], **options):
    return hms.connect(
        [node.address for node in nodes],
        reconnect_interval_s=0.05,
        **{"request_timeout_s": WAIT_S} | options,
    )


def mute(node: FakeNode, what: object) -> None:
    """Whatever it hears of that kind, its answers get lost."""
    node.on[what] = lambda _: None


def lose(node: FakeNode, kind: Kind) -> None:
    """It is killed when it has heard a frame of that kind."""
    node.wait(lambda: node.kinds(kind))
    node.drop()


def greeted(node: FakeNode, times: int = 1) -> None:
    node.wait(lambda: len(node.kinds(Kind.HELLO)) >= times)


def test_a_send_is_not_repeated_at_another_log(nodes):
    """169 messages were stored twice in three hops, none of them flagged."""
    first, second = nodes
    mute(first, Kind.SEND)
    with connect(nodes, request_timeout_s=BRIEF_S) as connection:
        with patient(connection):
            producer = connection.session().producer("orders")
        future = producer.send_async(b"once")
        lose(first, Kind.SEND)

        with pytest.raises(hms.SendInDoubt) as doubt:
            future.result(WAIT_S)
        assert doubt.value.fields["count"] == 1
        assert not second.kinds(Kind.SEND)

        with patient(connection):
            producer.send(b"new work")
        assert len(second.kinds(Kind.SEND)) == 1


def test_a_send_in_doubt_tells_who_waits(nodes):
    """send() and send_many() raise it."""
    first, second = nodes
    mute(first, Kind.SEND)
    with connect(nodes, request_timeout_s=BRIEF_S) as connection:
        with patient(connection):
            producer = connection.session().producer("orders")
        ended = in_thread(lambda: producer.send_many([b"a", b"b"]))
        lose(first, Kind.SEND)

        error = ended.get(timeout=WAIT_S)
        assert isinstance(error, hms.SendInDoubt)
        assert error.receipts == [None, None]
        assert not second.kinds(Kind.SEND)


def test_it_is_repeated_at_its_own_log_when_that_comes_back(nodes):
    """Which recognises it; the other node is asked meanwhile, and turned away."""
    first, second = nodes
    mute(first, Kind.SEND)
    with connect(nodes) as connection:
        ended = in_thread(lambda: connection.session().producer("orders").send(b"once"))
        lose(first, Kind.SEND)
        greeted(second)
        first.on.clear()
        first.restart()

        assert isinstance(ended.get(timeout=WAIT_S), hms.Receipt)
        assert len(set(first.kinds(Kind.SEND))) == 1
        assert not second.kinds(Kind.SEND)


def test_nothing_in_doubt_moves_on_at_once(nodes):
    """A client with nothing unconfirmed does not wait for the node that is gone."""
    first, second = nodes
    errors: queue.Queue[hms.HmsError] = queue.Queue()
    with connect(nodes, request_timeout_s=600, exception_listener=errors.put) as connection:
        producer = connection.session().producer("orders")
        producer.send(b"one")
        first.drop()
        errors.get(timeout=WAIT_S)
        producer.send(b"two")
        assert len(second.kinds(Kind.SEND)) == 1


def test_a_commit_is_in_doubt_at_another_log(nodes):
    """It was said to be rolled back, by a node that knew nothing of it."""
    first, second = nodes
    mute(first, Commit)
    with connect(nodes, request_timeout_s=BRIEF_S) as connection:
        with patient(connection):
            session = connection.session(transacted=True)
            producer = session.producer("orders")
            producer.send(b"TRANSFER")
        ended = in_thread(session.commit)
        first.wait(lambda: first.requests(Commit))
        first.drop()

        error = ended.get(timeout=WAIT_S)
        assert isinstance(error, hms.CommitInDoubt)
        assert error.fields["commit"] == 1
        with patient(connection):
            producer.send(b"next")
            session.commit()
        assert [one.number for one in second.requests(Commit)] == [2]


def test_a_commit_has_its_outcome_from_its_own_log(nodes):
    """When the node comes back it says whether the commit took effect."""
    first, second = nodes
    mute(first, Commit)
    with connect(nodes) as connection:
        session = connection.session(transacted=True)
        session.producer("orders").send(b"TRANSFER")
        ended = in_thread(session.commit)
        (commit,) = first.wait(lambda: first.requests(Commit))
        first.drop()
        greeted(second)
        first.commits[commit.session] = commit.number
        first.restart()

        assert ended.get(timeout=WAIT_S) is None


def test_an_open_transaction_is_rolled_back_elsewhere(nodes):
    """No commit was sent, so that this is true."""
    first, second = nodes
    with connect(nodes) as connection:
        session = connection.session(transacted=True)
        session.producer("orders").send(b"TRANSFER")
        first.drop()
        greeted(second)
        with pytest.raises(hms.TransactionRolledBack):
            session.commit()


@pytest.mark.parametrize("what", ["send", "commit"])
def test_a_client_of_one_address_never_moves_silently(what):
    """The node was built anew, or booted COLD: its log is another one."""
    with fake_node() as node:
        node.log = b"first log"
        mute(node, Kind.SEND if what == "send" else Commit)
        with connect([node]) as connection:
            session = connection.session(transacted=what == "commit")
            producer = session.producer("orders")
            if what == "send":
                ended = in_thread(lambda: producer.send(b"once"))
                lose(node, Kind.SEND)
            else:
                producer.send(b"once")
                ended = in_thread(session.commit)
                node.wait(lambda: node.requests(Commit))
                node.drop()
            sends = len(node.kinds(Kind.SEND))
            node.on.clear()
            node.log = b"second log"
            node.restart()

            error = ended.get(timeout=WAIT_S)
            wanted = hms.SendInDoubt if what == "send" else hms.CommitInDoubt
            assert isinstance(error, wanted)
            assert len(node.kinds(Kind.SEND)) == sends


def test_a_branch_is_committed_at_its_own_log_only(nodes):
    """Another node's word that there is no such branch would have the decision forgotten."""
    first, second = nodes
    for node, code in ((first, XA_OK), (second, XAER_NOTA)):
        for request in (XaStart, XaEnd, XaPrepare, XaCommit):
            reply = Kind.REPLY, encode({"code": code, "reason": ""})
            node.on[request] = lambda _, reply=reply: reply
    errors: queue.Queue[hms.HmsError] = queue.Queue()
    xid = Xid(9, b"transfer", b"hms")
    with connect(nodes, request_timeout_s=BRIEF_S, exception_listener=errors.put) as connection:
        with patient(connection):
            rm = HmsResource(connection, connection.session(xa=True))
            assert rm.xa_start(xid) == rm.xa_end(xid) == rm.xa_prepare(xid) == XA_OK
        first.drop()
        errors.get(timeout=WAIT_S)

        assert rm.xa_commit(xid) == XAER_RMFAIL
        assert not second.requests(XaCommit)
