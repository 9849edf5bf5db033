"""Compressed messages through a real node: selectors, stores, bombs."""

import struct

import pytest

import hms
from hms.wire.frames import Kind, SendHead, encode_send
from hms.wire.packed_messages import KIND_COMPRESSED, ROW, pack_messages

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(9))
WAIT_S = 60
TEXT = " ".join(f"line {n} of many that are alike" for n in range(500))


@pytest.mark.parametrize(("codec", "queue"), [("zlib", "q0"), ("zstd", "q1"), (True, "q2")])
def test_a_body_is_compressed_on_its_way_and_read_as_it_was(running, codec, queue):
    """F-D7: on the wire and in the store, while the selector reads the properties."""
    with hms.connect(running.address) as conn, conn.session() as session:
        out = session.producer(f"queue:{queue}", compress=codec)
        before = conn.administer("queue.show", {"name": queue})["bytes"]
        out.send(hms.Message.text(TEXT, {"Month": 5}))
        out.send_many([TEXT.encode(), hms.Message.map({"text": TEXT})])
        stored = conn.administer("queue.show", {"name": queue})["bytes"] - before
        chosen = session.consumer(f"queue:{queue}", selector="Month > 4").receive(timeout_s=WAIT_S)
        inn = session.consumer(f"queue:{queue}")
        rest = [inn.receive(timeout_s=WAIT_S) for _ in range(2)]

    assert chosen.body == TEXT
    assert chosen.compression == ("zlib" if codec is True else codec)
    assert chosen.kind == hms.BodyKind.TEXT
    assert [m.body for m in rest] == [TEXT.encode(), {"text": TEXT}]
    assert stored < len(TEXT)


def test_a_received_message_is_sent_on_as_it_came(running):
    """Inflating it only to compress it again would be a waste."""
    with hms.connect(running.address) as conn, conn.session() as session:
        session.producer("queue:q3").send(TEXT, compress=True)
        first = session.consumer("queue:q3").receive(timeout_s=WAIT_S)
        session.producer("queue:q4").send(first)
        second = session.consumer("queue:q4").receive(timeout_s=WAIT_S)

    assert (second.compression, second.body) == ("zlib", TEXT)


def test_a_bomb_is_a_typed_error_and_the_next_message_comes(running):
    """Who reads it may acknowledge or reject it; its process lives."""
    body = struct.pack("<BQ", 1, 1 << 40) + b"boom"
    row = ROW.pack(0, len(body), 0, 0, 4, KIND_COMPRESSED, 0, 0)
    with hms.connect(running.address) as conn, conn.session(hms.AckMode.CLIENT) as session:
        out = session.producer("queue:q5")
        number = out._sender.number
        head = SendHead(number, 1, 1, is_persistent=True)
        frame = encode_send(head, pack_messages([(row, b"", body)]))
        with conn.lock:
            conn.link.tell(Kind.SEND, frame)
            conn.flush()
        inn = session.consumer("queue:q5")
        bomb = inn.receive(timeout_s=WAIT_S)
        with pytest.raises(hms.InflatedTooLarge, match="inflate"):
            _ = bomb.body
        with pytest.raises(hms.InflatedTooLarge):
            bomb.inflate(bytes_max=1 << 39)
        bomb.ack()
        assert inn.receive_nowait() is None


def test_a_wrong_compression_is_refused_when_the_producer_is_made(running):
    """At once, with the words that are right."""
    with (
        hms.connect(running.address) as conn,
        conn.session() as session,
        pytest.raises(hms.HmsError, match="zlib"),
    ):
        session.producer("queue:q5", compress="rar")
