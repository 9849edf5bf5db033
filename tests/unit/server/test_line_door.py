"""A second door beside the native one, through the same broker (tests/support/line_door.py)."""

import pytest

from hms.errors.catalogue import NodeStopping
from hms.wire import structures as wire
from hms.wire.frames import Kind, SendHead, decode_delivery, encode_send
from hms.wire.packed_messages import ROW, pack_messages, unpack_delivered
from tests.support.line_door import LineDoor
from tests.support.memory import MemoryNode
from tests.support.memory_peer import Peer

NATIVE = 7


class Outlet:
    """What the gateway would send to a peer of another door, as it crosses the wire."""

    def __init__(self, native):
        self.native, self.lines = native, {}

    def put(self, items):
        for peer, parts in items:
            if parts[0]:
                self.native.put([(peer, parts)])
            else:
                self.lines.setdefault(peer, []).append(parts[1].decode())

    def accept(self, peer):
        self.native.accept(peer)

    def forget(self, peer):
        self.native.forget(peer)


class Lines:
    """A client that types lines."""

    def __init__(self, node, name="typist"):
        self._node, self.peer = node, f"lines of {name}"
        self.door = node.broker.releases.doors[self.peer] = LineDoor()

    def type(self, *lines, cut_at=None):
        """Lines arrive, perhaps in two parts; what is answered once the log is durable."""
        self.arrive(*lines, cut_at=cut_at)
        self._node.step()
        return self.read()

    def arrive(self, *lines, cut_at=None):
        data = "".join(f"{line}\n" for line in lines).encode()
        for part in (data[:cut_at], data[cut_at:]) if cut_at else (data,):
            items = self.door.receive(part)
            if items:
                self._node.broker.handle(self.peer, items)

    def read(self):
        return "".join(self._node.both.lines.pop(self.peer, [])).splitlines()


@pytest.fixture
def node():
    node = MemoryNode()
    node.both = node.broker.releases.outlet = Outlet(node.outlet)
    return node


def delivered(node, peer):
    """Bodies that a native client was sent."""
    bodies = []
    for envelope, data in node.outlet.take(peer):
        if envelope.kind is Kind.DELIVER:
            _, count, at = decode_delivery(data)
            bodies += [bytes(body) for _, _, body in unpack_delivered(data, count, at)]
    return bodies


def test_a_client_of_another_door_sends_receives_and_acknowledges(node):
    """Connect, log in at an open node, send, receive, acknowledge: nothing of it is native."""
    lines = Lines(node)

    assert lines.type("CONNECT typist", "SESSION 1") == ["WELCOME memory", "OK 2"]
    assert lines.type("PRODUCER 1 1 orders", "CONSUMER 9 1 orders 10") == ["OK 3", "OK 4"]
    message, stored = lines.type("SEND 1 hello, world", cut_at=6)
    kind, line, message_id = stored.split()
    assert (kind, line) == ("STORED", "5")
    assert message == f"MESSAGE 9 {message_id} hello, world"
    assert node.engine.state.queues["orders"].line.out_count == 1
    assert lines.type(f"ACK 9 {message_id}") == ["OK 6"]
    assert node.engine.state.queues["orders"].line.out_count == 0
    assert lines.type("BYE") == []
    assert not node.engine.state.connections


def test_nothing_is_said_through_it_before_the_log_is_durable(node):
    """P1 holds at every door: the release keeps the order and the time, the door the words."""
    lines = Lines(node)
    lines.type("CONNECT typist", "SESSION 1", "PRODUCER 1 1 orders", "CONSUMER 9 1 orders 10")

    lines.arrive("SEND 1 hello")
    assert lines.read() == []

    node.step()
    assert [line.split()[0] for line in lines.read()] == ["MESSAGE", "STORED"]


def test_clients_of_both_doors_reach_one_another(node):
    """One queue, two protocols."""
    lines, native = Lines(node), Peer(node, NATIVE)
    lines.type("CONNECT typist", "SESSION 1", "PRODUCER 1 1 orders", "CONSUMER 9 1 ledger 10")
    native.request(wire.OpenConsumer(1, 1, "queue", "orders", 5))
    native.request(wire.OpenProducer(2, 1, "queue", "ledger"))

    lines.type("SEND 1 from a line")

    assert delivered(node, native.name) == [b"from a line"]
    pack = pack_messages([(ROW.pack(0, 13, 0, 0, 4, 0, 0, 0), b"", b"from a client")])
    native.ask(Kind.SEND, encode_send(SendHead(2, 1, 1, is_persistent=True), pack))
    (said,) = lines.read()
    assert said.startswith("MESSAGE 9 ")
    assert said.endswith(" from a client")


def test_a_refusal_and_what_is_not_understood_are_answered_by_the_door(node):
    """The number of the catalogue, at the line that is meant; the next line goes on."""
    lines = Lines(node)
    lines.type("CONNECT typist", "SESSION 1")

    said = lines.type("PRODUCER 1 1 nowhere", "SING", "CONSUMER x", "PRODUCER 1 1 orders")

    assert said == ["ERROR 3 4001", "ERROR 4 1001", "ERROR 5 1001", "OK 6"]


def test_a_node_that_stops_says_good_bye_at_every_door(node):
    """Each peer hears it in its own words."""
    lines, native = Lines(node), Peer(node, NATIVE)
    lines.type("CONNECT typist")

    node.broker.farewell(NodeStopping())

    assert lines.read() == [f"GOODBYE {NodeStopping().number}"]
    assert [envelope.kind for envelope, _ in node.outlet.take(native.name)] == [Kind.GOODBYE]
