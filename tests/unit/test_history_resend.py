"""Messages of the history as the client sends them."""

from types import SimpleNamespace

import pytest

import hms
from field_buffer.packing import ROW, Head, Row, encode_head
from hms.history import resend
from hms.history.resend import as_message, open_sender

QUEUE = hms.Queue("again")


def row(head=b"", body=b"", priority=4, kind="carray"):
    """A row as Spark gives it: binary columns are bytearrays."""
    return SimpleNamespace(head=bytearray(head), body=bytearray(body), priority=priority, kind=kind)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        encode_head(Head({"a": 1, "b": 0.5}, type="T", reply_to="queue:r")),
        encode_head(Head({"a": 1}, types=b"\x02")),
        b"\xc1 nobody can read this",
    ],
)
def test_head_and_body_leave_byte_for_byte(head):
    """What a foreign client wrote must arrive as it was, also where this one cannot read it."""
    _, sent_head, sent_body = as_message(row(head, b"\x00\xff"), QUEUE).encode()

    assert (sent_head, sent_body) == (head, b"\x00\xff")
    assert type(sent_head) is type(sent_body) is bytes


def test_kind_and_priority_are_its_own_whatever_the_producer_says():
    """One producer sends messages of every priority in one go, so that their order stays."""
    message = as_message(row(body=b"ab", priority=9, kind="map"), QUEUE)
    packed, _, _ = message.encode(ttl_ms=0, delay_ms=0, priority=4)

    assert Row._make(ROW.unpack(packed)) == Row(0, 2, priority=9, kind=2)


def test_a_kind_that_this_version_does_not_know_leaves_as_bytes():
    """The body is opaque anyway."""
    packed, _, _ = as_message(row(kind=None), QUEUE).encode()

    assert Row._make(ROW.unpack(packed)).kind == 0


@pytest.mark.parametrize(
    ("into", "destination"),
    [
        ((None, "a"), hms.Queue("a")),
        (("queue", "a"), hms.Queue("a")),
        (("topic", "a"), hms.Topic("a")),
    ],
)
def test_the_destination_is_a_queue_unless_a_topic_is_named(monkeypatch, into, destination):
    """`--into orders.replay` needs no prefix."""
    opened = []

    class Node:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def session(self):
            return self

        def producer(self, where):
            opened.append(where)
            return self

    monkeypatch.setattr(resend.hms, "connect", lambda *_, **__: Node())
    with open_sender("tcp://127.0.0.1:1", into):
        pass

    assert opened == [destination]
