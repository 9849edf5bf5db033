"""Who asks how the node is gets an answer while the log waits."""

import pytest

from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind, SendHead, encode_send
from tests.support.gated import GatedNode
from tests.support.hello import hello_of
from tests.support.largest import pack
from tests.support.memory import SETTINGS, MemoryNode
from tests.support.secured import PASSWORD, document


def kinds_of(node, peer, kind, payload, count=1):
    """Of the frames that answer before anything is synced."""
    node.broker.handle(peer, [(Envelope(kind, 7, count, len(payload)), payload)])
    return [envelope.kind for envelope, _ in node.outlet.take(peer)]


@pytest.fixture
def node():
    """A send of `p` waits for the log; `o` has asked for nothing yet."""
    made = MemoryNode(SETTINGS)
    for number, peer in enumerate("po", 1):
        made.send(peer, Kind.HELLO, wire.encode(hello_of(number)))
    for request in (wire.OpenSession(1), wire.OpenProducer(1, 1, "queue", "orders")):
        made.send("p", Kind.REQUEST, wire.encode(request))
    kept = encode_send(SendHead(1, 1, 1, is_persistent=True), pack(1))
    assert kinds_of(made, "p", Kind.SEND, kept) == []
    return made


@pytest.mark.parametrize(("verb", "answers"), [("status", [Kind.REPLY]), ("queue.list", [])])
@pytest.mark.parametrize("peer", ["p", "o"])
def test_how_the_node_is_does_not_wait_for_the_log(node, peer, verb, answers):
    """A node that has lost its other copies confirms nothing, and said nothing either. What is in a
    queue is told when it is sure."""
    asked = wire.encode(wire.Administer(verb, {}))

    assert kinds_of(node, peer, Kind.REQUEST, asked) == answers


def test_who_logs_in_does_not_wait_for_the_log():
    """That somebody did is a record, and an operator comes in while the log is stuck."""
    node = GatedNode(document(audit_logins=True, u=[]))
    node.hello("p", 1)
    auth = wire.encode(wire.Auth("PASSWORD", "u", PASSWORD.encode()))
    node.broker.handle("p", [(Envelope(Kind.AUTH, 7, 1, len(auth)), auth)])
    node.workers.run()

    assert [envelope.kind for envelope, _ in node.outlet.take("p")] == [Kind.WELCOME]
    assert node.engine.state.audit.number == 1
