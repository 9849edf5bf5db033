"""What a secured node costs more than an open one, counted in calls of Python."""

import sys
from types import SimpleNamespace

import pytest

from hms.wire import structures as wire
from hms.wire.frames import SETTLE_ITEM, Action, Envelope, Kind
from tests.support.gated import GatedNode
from tests.support.hello import hello_of
from tests.support.largest import pack, send
from tests.support.memory import SETTINGS, MemoryNode
from tests.support.secured import document

CALL = (Kind.CALL, wire.encode_with_body(wire.CallHead("ECHO", 0), b"?"))
CREDIT = SETTLE_ITEM.pack(Action.CREDIT, 1, 0, 5)


def opened(node):
    """A client with a producer and a consumer."""
    if isinstance(node, GatedNode):
        node.login("p", "u", 1)
    else:
        node.send("p", Kind.HELLO, wire.encode(hello_of(1)))
    for request in (
        wire.OpenSession(1),
        wire.OpenProducer(1, 1, "queue", "orders"),
        wire.OpenConsumer(1, 1, "queue", "orders", 100),
    ):
        node.send("p", Kind.REQUEST, wire.encode(request))
    return node


def serving(node):
    """A server, and a client that has called it before."""
    for number, peer in enumerate("sc", 1):
        if isinstance(node, GatedNode):
            node.login(peer, "u", number)
        else:
            node.send(peer, Kind.HELLO, wire.encode(hello_of(number)))
    node.send("s", Kind.REQUEST, wire.encode(wire.Advertise("ECHO")))
    node.send("c", *CALL)
    node.send("s", *result_of(node))
    node.outlet.take("c")
    return node


def result_of(node):
    """What the server answers to the call that it got last."""
    (call,) = [data for envelope, data in node.outlet.take("s") if envelope.kind is Kind.INVOKE]
    head, _ = wire.decode_with_body(call, wire.InvokeHead)
    return Kind.RESULT, wire.encode_with_body(wire.ResultHead(head.call, 2), b"!")


def calls_of(node, kind, payload, peer="p"):
    """How many calls of the broker's code are made for a frame."""
    # Whether a hold is the longest so far, which takes two calls more, is up to the machine.
    node.broker._holds = SimpleNamespace(ended=lambda *_: None)
    frame = Envelope(kind, 1, 1, len(payload)), payload
    counted = calls_in(lambda: node.broker.handle(peer, [frame]))
    node.step()
    return counted


def calls_in(work):
    """How many calls of our code are made; not those of a collection of garbage, which may begin
    meanwhile: of who watches it, and of the ends of what others left."""
    counted = 0

    def count(frame, event, _argument):
        nonlocal counted
        is_ours = frame.f_globals["__name__"].startswith(("hms.", "tpmon."))
        counted += event == "call" and is_ours and frame.f_code.co_name != "__del__"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize(
    "frame", [send(1, 1, 1, pack(1)), send(1, 1, 100, pack(100)), (Kind.SETTLE, CREDIT)]
)
def test_a_frame_costs_one_call_more_and_a_message_none(frame):
    """What it does is permitted when its producer or consumer is opened."""
    secured = opened(GatedNode(document(u=["produce queue:*", "consume queue:*"])))

    assert calls_of(secured, *frame) == calls_of(opened(MemoryNode(SETTINGS)), *frame) + 1


def test_a_call_and_its_result_cost_one_call_more_each():
    """Whether a service may be called is found once for a version of the policy."""
    counts = []
    for node in (
        serving(GatedNode(document(u=["call service:*", "advertise service:*"]))),
        serving(MemoryNode(SETTINGS)),
    ):
        called = calls_of(node, *CALL, "c")
        answered = calls_of(node, *result_of(node), "s")
        assert [envelope.kind for envelope, _ in node.outlet.take("c")] == [Kind.ANSWER]
        counts.append((called, answered))

    (secured_call, secured_result), (call, result) = counts
    assert (secured_call, secured_result) == (call + 1, result + 1)


def test_idle_connections_cost_no_call_each():
    """Whether a login ends soon, or has ended, is asked every second of as many as there are."""
    node, counts = GatedNode(document(u=[])), []
    for count in (1, 20):
        for number in range(len(node.authorization.logins) + 1, count + 1):
            node.login(f"p{number}", "u", number)
        counts.append(calls_in(lambda: asked(node)))

    assert counts[0] == counts[1]


def asked(node):
    changes = node._changes()
    assert not changes.is_any_over(node.now_ms)
    assert not node.gate.is_warning_due(node.now_ms)
