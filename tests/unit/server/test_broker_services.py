"""Services through the broker: what a server that breaks the protocol costs its caller."""

import pytest

from hms.server.broker import Lost
from hms.wire import structures as wire
from hms.wire.frames import Kind, SendHead, encode_send
from hms.wire.structures import Advertise, CallHead, ResultHead
from tests.support.hello import hello_of
from tests.support.largest import pack
from tests.support.memory import MemoryNode


def test_a_server_that_answers_garbage_is_dismissed_and_its_caller_told_at_once():
    """TPESVCERR now, not TPETIME in half a minute."""
    node = MemoryNode()
    node.send("server", Kind.HELLO, wire.encode(hello_of(1, is_server=True)))
    node.send("server", Kind.REQUEST, wire.encode(Advertise("ECHO")))
    node.send("client", Kind.HELLO, wire.encode(hello_of(2)))
    node.send("client", Kind.CALL, wire.encode_with_body(CallHead("ECHO", 0), b""), 7)

    node.send("server", Kind.RESULT, b"\xff\xff\xff\xff garbage")

    ((envelope, payload),) = node.outlet.take("client")
    head, _ = wire.decode_with_body(payload, ResultHead)
    assert (envelope.kind, envelope.correlation) == (Kind.ANSWER, 7)
    assert wire.make_error(head.error_number, head.error_fields).symbol == "TPESVCERR"
    assert node.broker.monitor.describe() == []


@pytest.mark.parametrize("ack_mode", [0, 1])
@pytest.mark.parametrize("is_in_order", [False, True])
def test_what_no_service_was_given_when_its_listening_client_was_lost_was_not_delivered(
    ack_mode, is_in_order
):
    """The messages of a session run one after the other: the one behind has been seen by nobody,
    and a count of 2 would say that somebody may have."""
    node = MemoryNode()
    for number in (1, 2):
        node.send(f"server{number}", Kind.HELLO, wire.encode(hello_of(number, is_server=True)))
        node.send(f"server{number}", Kind.REQUEST, wire.encode(Advertise("WORK")))
    node.send("client", Kind.HELLO, wire.encode(hello_of(3)))
    opening = wire.OpenSession(1, ack_mode, is_asynchronous=True)
    node.send("client", Kind.REQUEST, wire.encode(opening))
    for handle in (1, 2):
        request = wire.OpenConsumer(handle, 1, "queue", "orders", 0, listener="WORK")
        node.send("client", Kind.REQUEST, wire.encode(request))
    node.send("client", Kind.REQUEST, wire.encode(wire.OpenSession(2)))
    node.send("client", Kind.REQUEST, wire.encode(wire.OpenProducer(1, 2, "queue", "orders")))
    head = SendHead(1, 2, 1, is_persistent=True)
    node.send("client", Kind.SEND, encode_send(head, pack(2, b"message")), count=2)
    line = node.engine.state.queues["orders"].line
    assert line.out_count == 2
    running = [name for name in ("server1", "server2") if node.outlet.take(name)]
    assert len(running) == 1

    if is_in_order:
        node.send("client", Kind.GOODBYE, b"")
    else:
        node.broker.handle("client", [Lost("cut")])

    assert [line.deliveries(message) for message in line.in_order()] == [1, 0]
    assert [line.attempts(message) for message in line.in_order()] == [0, 0]


def test_a_server_that_leaves_is_answered_when_clients_are_not_any_more():
    """As its node moves to another machine: it waited 5 s for that, and all clients with it."""
    node = MemoryNode()
    node.send("server", Kind.HELLO, wire.encode(hello_of(1, is_server=True)))
    node.send("server", Kind.REQUEST, wire.encode(Advertise("WORK")))
    node.send("client", Kind.HELLO, wire.encode(hello_of(3)))
    node.broker.draining.finish()

    leaving = wire.encode(wire.Unadvertise("WORK", is_leaving=True))

    assert node.send("client", Kind.REQUEST, wire.encode(wire.OpenSession(1)), 5) == []
    ((envelope, _),) = node.send("server", Kind.REQUEST, leaving, 6)
    assert (envelope.kind, envelope.correlation) == (Kind.REPLY, 6)
