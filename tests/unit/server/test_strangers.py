"""What a connection may do to the branches and decisions of others (P12)."""

import pytest

from hms.engine.settings import EngineSettings
from hms.errors.catalogue import ConsumerLimit, DecisionRefused, IllegalState
from hms.errors.tree import HmsError
from hms.server.broker import Lost
from hms.wire import branch_requests as tx
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.largest import pack, send
from tests.support.memory import MemoryNode

XID = bytes([0, 0, 0, 1, 2, 1]) + b"gtb"
GTRID, IDENTITY = b"transfer", b"HMS identity"
OK, NOTA, SUCCESS = 0, -4, 0x04000000


@pytest.fixture
def node():
    """With an owner of a branch, its fellow and a stranger."""
    made = MemoryNode()
    for number, name in enumerate(("owner", "fellow", "stranger"), 1):
        made.send(name, Kind.HELLO, wire.encode(hello_of(number)))
        ask(made, name, wire.OpenSession(1, is_xa=True))
    return made


def ask(node, name, request):
    """The reply, or the error."""
    ((envelope, data),) = node.send(name, Kind.REQUEST, wire.encode(request))
    return wire.decode_reply(data) if envelope.kind is Kind.REPLY else wire.decode_error(data)


def code(node, name, request):
    return ask(node, name, request)["code"]


def work(node):
    """An idle branch of the owner in which the fellow has worked too."""
    assert code(node, "owner", tx.XaStart(1, XID)) == OK
    ask(node, "owner", wire.OpenProducer(1, 1, "queue", "orders"))
    node.send("owner", *send(1, 1, 1, pack(1)))
    assert code(node, "owner", tx.XaEnd(1, XID, SUCCESS)) == OK
    assert code(node, "fellow", tx.XaStart(1, XID, 0x00200000)) == OK
    assert code(node, "fellow", tx.XaEnd(1, XID, SUCCESS)) == OK


@pytest.mark.parametrize(
    "request_", [tx.XaPrepare(XID), tx.XaCommit(XID, is_one_phase=True), tx.XaRollback(XID)]
)
def test_a_branch_that_is_not_prepared_is_unknown_to_strangers(node, request_):
    """They ended it, knowing no more than its name; who has worked in it may end it."""
    work(node)
    assert code(node, "stranger", request_) == NOTA
    assert code(node, "fellow", request_) == OK


def test_the_owner_may_come_back_under_its_identity(node):
    """The number of its connection is another one then; a branch that is not prepared is gone."""
    work(node)
    assert code(node, "owner", tx.XaPrepare(XID)) == OK
    node.broker.handle("owner", [Lost("gone")])
    node.send("owner again", Kind.HELLO, wire.encode(hello_of(1)))
    assert code(node, "owner again", tx.XaPrepare(XID, is_again=True)) == OK
    assert code(node, "owner again", tx.XaCommit(XID)) == OK


def test_a_prepared_branch_is_there_for_whoever_recovers(node):
    """A resource manager's recovery comes with an identity of its own."""
    work(node)
    assert code(node, "owner", tx.XaPrepare(XID)) == OK
    assert ask(node, "stranger", tx.XaRecover())["xids"] == [XID]
    assert code(node, "stranger", tx.XaRollback(XID)) == OK


def test_a_stranger_s_decision_takes_no_branch_of_others(node):
    """A decision commits branches too."""
    work(node)
    ask(node, "stranger", tx.BeginGlobal(GTRID))
    assert isinstance(ask(node, "stranger", tx.Decide(GTRID, b"", [XID])), DecisionRefused)
    assert code(node, "owner", tx.XaRollback(XID)) == OK


def test_a_coordinator_decides_for_the_services_that_it_has_called(node):
    """Their branches bear the name of its transaction; one that is active is nobody else's."""
    work(node)
    gtrid = XID[6:8]
    ask(node, "stranger", tx.BeginGlobal(gtrid))
    assert isinstance(ask(node, "owner", tx.BeginGlobal(gtrid)), DecisionRefused)
    assert "at_ms" in ask(node, "stranger", tx.Decide(gtrid, b"", [XID]))
    assert code(node, "owner", tx.XaRollback(XID)) == NOTA


def test_nobody_takes_the_node_s_identity_away(node):
    """With another one it would take its own branches in databases for those of others."""
    ask(node, "owner", tx.BeginGlobal(IDENTITY))
    ask(node, "owner", tx.Decide(IDENTITY, b"12345678"))
    node.broker.handle("owner", [Lost("gone")])
    for request in (tx.ForgetDecision(IDENTITY), tx.NoteDecision(IDENTITY, b"another")):
        assert isinstance(ask(node, "stranger", request), IllegalState)
    ask(node, "stranger", tx.BeginGlobal(IDENTITY))
    ask(node, "stranger", tx.Decide(IDENTITY, b"another"))
    assert ask(node, "stranger", tx.AskDecision(IDENTITY))["participants"] == b"12345678"


def test_one_connection_leaves_sessions_to_others():
    """One client that never closes them kept everybody else out."""
    node = MemoryNode(EngineSettings(sessions_max=8))
    for number, name in enumerate(("greedy", "honest"), 1):
        node.send(name, Kind.HELLO, wire.encode(hello_of(number)))

    answers = [ask(node, "greedy", wire.OpenSession(handle)) for handle in range(1, 9)]

    assert [type(one) for one in answers if isinstance(one, HmsError)] == [ConsumerLimit] * 2
    assert ask(node, "honest", wire.OpenSession(1)) == {"last_commit": 0}
