"""How often a large body is copied on its way: once by its sender into a frame, once by the node to
keep it and once into the frame of its delivery, and once by its receiver out of that.
"""

import tracemalloc
from functools import partial

import pytest
import zmq

from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.accepted_sockets import Arrivals
from hms.server.gateway import GatewayLimits
from hms.server.listening_sockets import ListenAt, Listener
from hms.wire.frames import Kind, SendHead, encode_send, frame
from hms.wire.packed_messages import DELIVERED_ROW, ROW, message_parts, unpack_delivered
from tests.support.journal_node import JournalNode

MIB = 1 << 20
SIZES = pytest.mark.parametrize(("size", "count"), [(64 << 10, 8), (MIB, 1)])
WAIT_MS = 60_000


def life(path, memory_bytes_max):
    settings = EngineSettings(
        memory_bytes_max=memory_bytes_max,
        message_bytes_max=2 * MIB,
        transaction_bytes_max=4 * MIB,
        destinations=(DestinationSettings("queue", "orders"), DestinationSettings("topic", "news")),
    )
    node = JournalNode(path, settings, segment_bytes=16 * MIB)
    node.broker.registry.numbers["peer"] = 1
    node.broker.releases.peers[1] = "peer"
    node.open_client()
    return node


def copies(call, size_bytes):
    """How many times so many bytes Python took at once, more or less, and what the call gave."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = call()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return round(peak / size_bytes), found


def send_of(size, count, sequence=1):
    """A SEND as a listener hands it on: a view of what libzmq has."""
    row = ROW.pack(0, size, 0, 0, 4, 0, 0, 0)
    parts = message_parts([(row, b"", bytes(size))] * count)
    return memoryview(encode_send(SendHead(1, count, sequence, is_persistent=True), *parts))


@SIZES
def test_a_body_is_copied_once_to_be_kept_and_never_for_the_log(tmp_path, size, count):
    """The log writes it from where libzmq received it."""
    node, payload = life(tmp_path, 64 * MIB), send_of(size, count)
    node.send("peer", Kind.SEND, payload[:], count=count)

    again = send_of(size, count, 1 + count)
    found, answers = copies(lambda: node.send("peer", Kind.SEND, again, count=count), size * count)

    assert [envelope.kind for envelope, _ in answers] == [Kind.CONFIRM]
    assert found == 1
    node.close()


@SIZES
def test_a_client_copies_a_body_once_into_a_frame_and_once_out_of_one(size, count):
    """What stands before it and behind it in a frame would have to be lent to libzmq, too."""
    row, body = ROW.pack(0, size, 0, 0, 4, 0, 0, 0), bytes(size)
    head = SendHead(1, count, 1, is_persistent=True)
    rows = DELIVERED_ROW.pack(1, 2, 3, 4, 0, size, 5, 6, 7, 8) * count
    pack = rows + bytes(size * count)

    parts = message_parts([(row, b"", body)] * count)
    into, _ = copies(lambda: encode_send(head, *parts), size * count)
    out, found = copies(lambda: unpack_delivered(pack, count), size * count)

    assert [len(body) for _, _, body in found] == [size] * count
    assert (into, out) == (1, 1)


@SIZES
def test_a_body_is_copied_once_into_the_frame_of_its_delivery(tmp_path, size, count):
    """The protocol has a payload in one part."""
    node = life(tmp_path, 64 * MIB)
    node.send("peer", Kind.SEND, send_of(size, count), count=count)

    found, _ = copies(lambda: node.consume(1, count), size * count)

    assert [e.kind for e, _ in node.outlet.take("peer")][-1] is Kind.DELIVER
    assert found == 1
    node.close()


@SIZES
def test_a_body_that_is_in_the_log_only_is_read_to_where_it_is_joined_from(tmp_path, size, count):
    """A large one is read alone: out of one read of many it would be copied once more."""
    node = life(tmp_path, size)
    node.send("peer", Kind.SEND, send_of(size, count), count=count)
    waiting = list(node.engine.state.queues["orders"].line.in_order())
    paged = [m for m in waiting if m.is_paged]
    assert paged

    found, _ = copies(lambda: node.broker._bodies.of_all(paged), size * len(paged))

    assert found == 1
    node.close()


@pytest.fixture
def pair():
    """A listener, and a socket that is connected to it."""
    context, callers, arrivals = zmq.Context(), [], Arrivals()
    limits = GatewayLimits(
        frame_bytes_max=4 * MIB, peers_max=4, heartbeat_s=10, pending_bytes_per_peer=8 * MIB
    )
    listener = Listener(context, ListenAt("tcp://127.0.0.1:*"), limits, callers, arrivals)
    client = context.socket(zmq.DEALER)
    client.connect(listener.endpoint)
    yield listener, client
    client.close(0)
    listener.close()
    arrivals.close()
    context.term()


def test_a_socket_copies_no_large_payload(pair):
    """What came is looked at where libzmq has it, what goes is lent to libzmq."""
    listener, client = pair
    counted = []
    for _ in range(2):  # what only a first frame needs is no copy
        client.send_multipart(frame(Kind.SEND, bytes(MIB)))
        assert listener.socket.poll(WAIT_MS)
        came, (peer, parts) = copies(listener.receive, MIB)
        answer = frame(Kind.DELIVER, bytes(MIB))
        went, is_sent = copies(partial(listener.send, peer, answer), MIB)
        assert is_sent
        assert client.poll(WAIT_MS)
        assert [len(part) for part in client.recv_multipart()] == [len(parts[0]), MIB]
        counted.append((came, went))

    assert counted[-1] == (0, 0)
