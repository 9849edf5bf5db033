"""Hostile clients: whatever a frame says, the node answers with a typed error and lives on."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from field_buffer.packing import ROW
from tests.support.memory import MemoryNode
from tpmon.protocol import frames
from tpmon.protocol import structures as wire
from tpmon.protocol.frames import Kind

CLIENT_KINDS = [kind for kind in Kind if kind < Kind.WELCOME and kind is not Kind.HEARTBEAT]
ANY_INT = st.one_of(
    st.integers(0, 3), st.integers(-(1 << 63), (1 << 64) - 1), st.sampled_from([2**32, 2**64 - 1])
)
ANY_TEXT = st.one_of(
    st.sampled_from(["", "orders", "news", "queue", "topic", "a = 1", "billing", "HMS.DLQ"]),
    st.text(max_size=20),
)
REQUESTS = [kind.__name__ for kind in wire.Request.__args__]
FIELDS = st.one_of(ANY_INT, ANY_TEXT, st.booleans(), st.none(), st.just({}))


def request():
    """A request that is almost right."""
    return st.tuples(
        st.just(Kind.REQUEST),
        st.builds(
            lambda name, fields: msgspec.msgpack.encode([name, *fields]),
            st.sampled_from(REQUESTS),
            st.lists(FIELDS, max_size=11),
        ),
    )


def sending():
    """A SEND with any row."""
    row = st.tuples(
        st.integers(0, 40),
        st.integers(0, 40),
        st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)),
        st.integers(0, 1),
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
    )
    head = st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.one_of(st.integers(0, 4), st.just(2**64 - 1))
    )
    return st.builds(
        lambda head, flags, rows, rest: (
            Kind.SEND,
            frames.SEND_HEAD.pack(*head, flags, 0)
            + b"".join(ROW.pack(*row) for row in rows)
            + rest,
        ),
        head,
        st.integers(0, 255),
        st.lists(row, max_size=3),
        st.binary(max_size=100),
    )


def settling():
    """A SETTLE with any ranges."""
    ids = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
    item = st.builds(
        lambda action, consumer, epoch, ranges: (
            frames.SETTLE_ITEM.pack(action, consumer, epoch, len(ranges))
            + b"".join(frames.RANGE.pack(*r) for r in ranges)
        ),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 2),
        st.lists(st.tuples(ids, ids), max_size=3),
    )
    return st.builds(lambda items: (Kind.SETTLE, b"".join(items)), st.lists(item, max_size=3))


def anything():
    """Any bytes as any kind."""
    return st.tuples(st.sampled_from(CLIENT_KINDS), st.binary(max_size=80))


def calling():
    """A CALL, RESULT or HELLO that is almost right."""
    fields = st.lists(FIELDS, max_size=9).map(msgspec.msgpack.encode)
    body = st.builds(
        lambda head, rest: len(head).to_bytes(4, "little") + head + rest,
        fields,
        st.binary(max_size=10),
    )
    return st.one_of(
        st.tuples(st.sampled_from([Kind.CALL, Kind.RESULT]), body),
        st.tuples(st.just(Kind.HELLO), fields),
    )


def _open(node, peer="peer"):
    (answer,) = node.send(peer, Kind.HELLO, wire.encode(wire.Hello(1 + hash(peer) % 1000)))
    assert answer[0].kind is Kind.WELCOME
    for request in (
        wire.OpenSession(1, 2),
        wire.OpenProducer(1, 1, "queue", "orders"),
        wire.OpenConsumer(1, 1, "queue", "orders", 5),
        wire.OpenSession(2, 0, is_transacted=True),
        wire.OpenProducer(2, 2, "topic", "news"),
        wire.OpenConsumer(2, 2, "queue", "ledger", 5),
    ):
        assert node.send(peer, Kind.REQUEST, wire.encode(request))[0][0].kind is Kind.REPLY


def _serves_a_good_client(node):
    _open(node, "good")
    row = ROW.pack(0, 2, 0, 0, 4, 0, 0, 0)
    send = frames.encode_send(frames.SendHead(1, 1, 1, is_persistent=True), row + b"ok")
    kinds = [envelope.kind for envelope, _ in node.send("good", Kind.SEND, send)]
    return Kind.CONFIRM in kinds


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(request(), sending(), settling(), anything(), calling()), min_size=1, max_size=12
    )
)
def test_no_sequence_of_frames_stops_the_node_or_the_other_clients(sent):
    """An exception that escapes from the broker stops the node: that would be a remote kill."""
    node = MemoryNode()
    _open(node)
    for kind, payload in sent:
        node.send("peer", kind, payload)
    node.now_ms += 5_000
    node.broker._tick()
    node.step()
    assert _serves_a_good_client(node)
    MemoryNode(store=node.store)  # and what it wrote into the log can be read again


@pytest.mark.parametrize("uid", [-1, 1 << 63, (1 << 64) - 1])
def test_numbers_at_the_edge_are_refused_or_stored(uid):
    """A number that does not fit its field in the log must not get that far."""
    node = MemoryNode()
    hello = msgspec.msgpack.encode([uid, "", "", "", "", "", False])
    kind = node.send("edge", Kind.HELLO, hello)[0][0].kind
    assert kind is (Kind.ERROR if uid < 0 else Kind.WELCOME)
    assert _serves_a_good_client(node)
