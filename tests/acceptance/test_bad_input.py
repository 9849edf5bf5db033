"""Bad input gets a typed error that names cause and cure, and changes nothing."""

import os
import subprocess
import sys

import pytest
import zmq

import field_buffer
import hms
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.hello import hello_of

CONNECT = {"reconnect": False}

CONFIG = """
[hms.queue.orders]
[hms.queue.alive]
[hms.queue.rows]
[hms.topic.news]
"""
FAULTY = """
[node.N1]
listen = ["tcp://127.0.0.1:7700"]
[svrgroup.hms01]
HMSMAXTHR = "two"
[hms.queue.ORDERS]
max_mesages = 10
[hms.topic.NEWS]
BOOT = "LUKEWARM"
"""


@pytest.fixture
def socket(running):
    context = zmq.Context()
    opened = context.socket(zmq.DEALER)
    opened.setsockopt(zmq.LINGER, 0)
    opened.setsockopt(zmq.RCVTIMEO, 60_000)
    opened.connect(running.address)
    yield opened
    opened.close()
    context.term()


def _is_alive(running):
    """A well-behaved client sends and receives."""
    with hms.connect(running.address) as conn, conn.session() as session:
        session.producer(hms.Queue("alive")).send(b"still here")
        message = session.consumer(hms.Queue("alive")).receive(timeout_s=60)
        return message is not None and message.body == b"still here"


def _answer(socket):
    """Kind and payload of the next frame that is no heartbeat: a slow machine brings those too."""
    while True:
        parts = socket.recv_multipart()
        kind = frames.decode_envelope(parts, 1 << 20).kind
        if kind is not frames.Kind.HEARTBEAT:
            return kind, parts[1]


def _error(socket):
    kind, payload = _answer(socket)
    assert kind is frames.Kind.ERROR
    return wire.decode_error(payload)


def _hello(socket):
    socket.send_multipart(frames.frame(frames.Kind.HELLO, wire.encode(hello_of(7)), 1))
    assert _answer(socket)[0] is frames.Kind.WELCOME


def test_random_bytes_get_a_protocol_error_and_the_node_goes_on(running, socket):
    """Anything may connect to a port; it must cost only itself."""
    for size in (0, 1, 16, 1000):
        socket.send_multipart([os.urandom(size), os.urandom(size)])
        assert isinstance(_error(socket), hms.ProtocolError)
    assert _is_alive(running)


def test_garbage_behind_a_good_envelope_is_refused_for_every_kind(running, socket):
    """The payload is decoded by a worker; a worker that dies of it would be a remote kill."""
    _hello(socket)
    for kind in (frames.Kind.REQUEST, frames.Kind.SEND, frames.Kind.SETTLE, frames.Kind.CALL):
        socket.send_multipart(frames.frame(kind, b"\xc1" * 40, 9))
        assert isinstance(_error(socket), hms.HmsError)
    assert _is_alive(running)


def test_a_send_whose_rows_do_not_add_up_is_refused_whole(running, socket):
    """Length fields are where brokers were broken most often."""
    _hello(socket)
    for n, request in enumerate(
        (wire.OpenSession(1), wire.OpenProducer(1, 1, "queue", "rows")), start=2
    ):
        socket.send_multipart(frames.frame(frames.Kind.REQUEST, wire.encode(request), n))
        assert _answer(socket)[0] is frames.Kind.REPLY
    good = pack_messages([(ROW.pack(0, 3, 0, 0, 4, 0, 0, 0), b"", b"abc")])
    huge = ROW.pack(0, 0xFFFFFFFF, 0, 0, 4, 0, 0, 0) + b"abc"
    for pack, count in ((good[:-1], 1), (good + b"x", 1), (good, 2), (good, 1 << 31), (huge, 1)):
        payload = frames.encode_send(frames.SendHead(1, count, 1, is_persistent=True), pack)
        socket.send_multipart(frames.frame(frames.Kind.SEND, payload, 5))
        assert isinstance(_error(socket), hms.HmsError)
    with hms.connect(running.address) as conn:
        assert conn.administer("queue.show", {"name": "rows"})["waiting"] == 0


def test_a_message_above_the_limit_is_refused_before_it_is_sent(conn):
    """The error names the size, the limit and the key that sets it."""
    out = conn.session().producer(hms.Queue("orders"))
    with pytest.raises(hms.MessageTooLarge, match="max_message_bytes"):
        out.send(bytes((1 << 20) + 1))
    out.send(b"a small one goes")


def test_an_unknown_destination_is_named_with_its_cure(conn):
    """A typo must not create a queue that nobody reads."""
    with pytest.raises(hms.DestinationNotFound, match=r"nowhere.*hms\.conf") as caught:
        conn.session().producer(hms.Queue("nowhere"))
    assert caught.value.tperrno == 6
    assert isinstance(caught.value, LookupError)
    with pytest.raises(hms.DestinationKindMismatch):
        conn.session().consumer(hms.Queue("news"))


def test_a_wrong_type_or_range_is_refused_where_it_is_set():
    """HMS_SHORT has 16 bits; a silent cut would be a wrong amount of money."""
    with pytest.raises(hms.PropertyTypeError):
        hms.Message(b"", {"amount": object()})
    with pytest.raises(hms.PropertyRangeError):
        field_buffer.Short(40_000)
    with pytest.raises(hms.ReservedProperty):
        hms.Message(b"", {"$MessageID": "1"})


def test_a_bad_selector_is_refused_when_the_consumer_is_created(conn):
    """Not at the first message, when nobody looks any more."""
    with pytest.raises(hms.SelectorSyntaxError) as caught:
        conn.session().consumer(hms.Queue("orders"), selector="Month > > 4")
    assert caught.value.position == 8


def test_three_faults_of_a_configuration_are_reported_at_once(tmp_path):
    """Nobody wants to boot three times to find three typos."""
    file = tmp_path / "hms.conf"
    file.write_text(FAULTY)
    command = [sys.executable, "-m", "hms.boot", "config", "check", "--config", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert result.returncode == 1
    said = result.stdout + result.stderr
    assert "hms.conf:5:" in said
    assert "HMSMAXTHR" in said
    assert "hms.conf:7:" in said
    assert "did you mean 'max_messages'" in said
    assert "hms.conf:9:" in said
    assert "LUKEWARM" in said
