"""Hostile clients: whatever a frame says, the node answers with a typed error and lives on."""

import gc
import hashlib

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hms.errors.catalogue import HandleUnknown, ProtocolError
from hms.store.files import FileStore
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind
from hms.wire.packed_messages import ROW
from tests.support.effort import tries
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode

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
        st.one_of(st.integers(0, 1), st.integers(0, 2**64 - 1)),
        st.integers(0, 255),
        st.one_of(st.integers(0, 6), st.integers(0, 255)),
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


def scheduling():
    """A SCHEDULE that is almost right."""
    fields = st.tuples(
        st.integers(0, 3),
        st.sampled_from(["", "a", "b"]),
        st.one_of(st.integers(0, 200), ANY_INT),
        st.sampled_from(["", "", "* * * * *", "0 0 30 2 *", "x"]),
        st.sampled_from(["UTC", "Mars"]),
        st.one_of(st.just(0), ANY_INT),
        st.one_of(st.just(0), ANY_INT),
        st.integers(0, 3),
        st.sampled_from(["ONE", "ALL", "x"]),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 3),
    )
    row = st.tuples(*[st.integers(0, 3)] * 2, *[st.sampled_from([0, 0, 1, 2**63])] * 2)
    return st.builds(
        lambda head, row, rest, body: (
            Kind.SCHEDULE,
            len(head).to_bytes(4, "little") + head + ROW.pack(*row, *rest, 0, 0) + body,
        ),
        fields.map(msgspec.msgpack.encode),
        row,
        st.tuples(st.integers(0, 10), st.integers(0, 7)),
        st.binary(max_size=6),
    )


def filing():
    """A request about a file, or a block of one, that is almost right."""
    handle, size = st.integers(0, 2), st.one_of(st.integers(0, 8), ANY_INT)
    name = st.one_of(ANY_TEXT, st.just("0" * 16 + "-" + "0" * 8 + "-" + "0" * 64))
    digest = st.sampled_from(["", "00", hashlib.sha256(b"").hexdigest()])
    requests = st.one_of(
        st.builds(lambda h, s: ["OpenFile", h, s], handle, size),
        st.builds(lambda h, s, d: ["CloseFile", h, s, d], handle, size, digest),
        st.builds(lambda n, o, s: ["ReadFile", n, o, s], name, size, size),
    )
    block = st.builds(
        lambda head, data: (Kind.FILE, len(head).to_bytes(4, "little") + head + data),
        st.tuples(handle, size).map(msgspec.msgpack.encode),
        st.binary(max_size=8),
    )
    return st.one_of(st.tuples(st.just(Kind.REQUEST), requests.map(msgspec.msgpack.encode)), block)


def _open(node, peer="peer"):
    (answer,) = node.send(peer, Kind.HELLO, wire.encode(hello_of(1 + hash(peer) % 1000)))
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


@settings(max_examples=tries(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(request(), sending(), settling(), anything(), calling(), scheduling(), filing()),
        min_size=1,
        max_size=12,
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


class _NodeWithFiles(MemoryNode):
    """Its storage workers do their jobs when step() is called."""

    def __init__(self, folder):
        self.jobs = []
        super().__init__(files=FileStore(folder, 1 << 20))

    def submit(self, job):
        self.jobs.append(job)
        return True

    def step(self):
        while self.jobs:
            self.jobs.pop(0)()
        super().step()


@settings(
    max_examples=tries(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.one_of(filing(), filing(), sending()), min_size=1, max_size=15))
def test_no_file_frame_stops_the_node_or_leads_out_of_its_folder(tmp_path_factory, sent):
    """Names, sizes and offsets are the client's; the disk is the node's."""
    folder = tmp_path_factory.mktemp("files") / "files"
    node = _NodeWithFiles(folder)
    _open(node)
    for kind, payload in sent:
        node.send("peer", kind, payload)
    node.now_ms += 100_000_000
    node.broker._tick()
    node.step()
    assert _serves_a_good_client(node)
    assert [p.name for p in folder.parent.iterdir()] in ([], ["files"])


@pytest.mark.parametrize("uid", [-1, 0, 1 << 63, (1 << 64) - 1])
def test_a_number_of_a_client_s_own_choice_is_refused(uid):
    """A number that does not fit its field in the log must not get that far."""
    node = MemoryNode()
    hello = msgspec.msgpack.encode([uid, "", "", "", "", "", False, 0, b"s" * 16])
    assert node.send("edge", Kind.HELLO, hello)[0][0].kind is Kind.ERROR
    assert _serves_a_good_client(node)


def test_a_number_above_the_signed_range_is_stored():
    """Half of all digests are above 2^63."""
    node, hello = MemoryNode(), hello_of(0)
    assert hello.uid >> 63
    assert node.send("edge", Kind.HELLO, wire.encode(hello))[0][0].kind is Kind.WELCOME
    assert _serves_a_good_client(node)


def test_bad_frames_leave_nothing_for_the_garbage_collector():
    """An error whose traceback holds it again is collected with 50,000 others, under the lock: 70
    ms at a time, up to 320 on a busy machine."""
    node = MemoryNode()
    _open(node)
    gc.collect()
    before = _faults()  # of other tests, which may hold some
    gc.disable()
    try:
        for kind, payload in ((Kind.REQUEST, b"bad"), (Kind.SETTLE, b"bad"), (Kind.CALL, b"")):
            node.send("peer", kind, payload)
        node.send("peer", Kind.REQUEST, wire.encode(wire.CloseSession(99)))
        left = [one for one in _faults() if not any(one is known for known in before)]
    finally:
        gc.enable()
    assert left == []


def _faults():
    return [one for one in gc.get_objects() if isinstance(one, ProtocolError | HandleUnknown)]
