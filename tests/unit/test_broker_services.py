"""Services through the broker: what a server that breaks the protocol costs its caller."""

from hms.wire import structures as wire
from hms.wire.frames import Kind
from hms.wire.structures import Advertise, CallHead, ResultHead
from tests.support.hello import hello_of
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
