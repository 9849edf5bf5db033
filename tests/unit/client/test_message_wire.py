"""A message's way over the wire: encoding, header fields, lazy and hostile heads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_buffer import Short
from hms.client.destinations import Queue, Topic
from hms.client.message import Message
from hms.constants import BodyKind, DeliveryMode
from hms.errors.catalogue import DestinationNameError, MessageFormatError, PropertyTypeError
from hms.wire.packed_messages import (
    DELIVERED_ROW,
    DeliveredRow,
    Head,
    encode_head,
    pack_messages,
    slice_payloads,
    unpack_delivered,
    unpack_rows,
)

ROW = DeliveredRow(0x00010000002A, 1_700_000_000_500, 1_700_000_060_500, 2, 0, 0, 7, 1, 1)
ORDERS = Queue("orders")


def through_the_node(message):
    """Packed by the sender, unpacked by the node, delivered, unpacked by the receiver."""
    pack = pack_messages([message.encode(60_000, 0, 7)])
    (row,) = unpack_rows(pack, 1)
    (payload,) = slice_payloads(pack, [row])
    delivered = DELIVERED_ROW.pack(
        ROW.message_id, 5, 0, 1, row.head_bytes, row.body_bytes, row.priority, row.kind, 1, 9
    )
    ((out, head, body),) = unpack_delivered(delivered + payload, 1)
    return Message.received(out, head, body, ORDERS)


def test_typed_values_and_header_survive_the_whole_way():
    """The sender's message, field by field, at the receiver."""
    sent = Message.map(
        {"a": [1]},
        {"n": Short(3), "t": "x"},
        correlation_id="c-1",
        reply_to=Topic("answers"),
        type="order",
    )
    got = through_the_node(sent)
    assert got.body == {"a": [1]}
    assert type(got.properties["n"]) is Short
    assert (got.correlation_id, got.reply_to, got.type) == ("c-1", Topic("answers"), "order")
    assert (got.message_id, got.priority, got.destination) == ("00010000002a", 7, ORDERS)


def test_a_body_without_properties_has_no_head():
    """The path of most messages: nothing to encode, nothing to decode."""
    row, head, body = Message(b"abc").encode(1, 2, 3)
    assert (head, body) == (b"", b"abc")
    (decoded,) = unpack_rows(row + body, 1)
    assert (decoded.ttl_ms, decoded.delay_ms, decoded.priority, decoded.kind) == (1, 2, 3, 0)


def test_a_received_message_tells_its_header():
    """F-F4."""
    message = Message.received(ROW, b"", b"x", ORDERS)
    assert message.message_id == "00010000002a"
    assert (message.timestamp_ms, message.timestamp) == (1_700_000_000_500, 1_700_000_000.5)
    assert (message.expires_at_ms, message.expiration) == (1_700_000_060_500, 1_700_000_060.5)
    assert (message.delivery_mode, message.persistent) == (DeliveryMode.PERSISTENT, True)
    assert (message.priority, message.delivery_count, message.redelivered) == (7, 2, True)
    assert message.destination == ORDERS
    assert message.kind is BodyKind.TEXT


def test_the_header_is_read_only():
    """Only the node can say when it took a message."""
    message = Message.received(ROW, b"", b"x", ORDERS)
    for name in ("message_id", "timestamp", "destination", "priority", "redelivered", "kind"):
        with pytest.raises(AttributeError):
            setattr(message, name, None)


def test_a_message_that_was_not_sent_has_no_header():
    """None is honest; zero would be a time."""
    message = Message(b"")
    for name in (
        "message_id",
        "timestamp",
        "timestamp_ms",
        "destination",
        "delivery_mode",
        "expiration",
        "expires_at_ms",
        "correlation_id",
        "reply_to",
        "type",
    ):
        assert getattr(message, name) is None
    assert (message.priority, message.delivery_count, message.redelivered) == (4, 0, False)
    assert message.properties.get("$MessageID") is None
    assert "$MessageID" not in message.properties


def test_a_sent_message_gains_its_header():
    """F-D5: the id is known when the send succeeded."""
    message = Message(b"")
    message.mark_sent(ORDERS, 42, 1000, ttl_ms=500, priority=9, is_persistent=False, elapsed_s=0.25)
    assert (message.message_id, message.timestamp_ms, message.priority) == ("00000000002a", 1000, 9)
    assert (message.expires_at_ms, message.delivery_mode) == (1500, DeliveryMode.NON_PERSISTENT)
    assert message.redelivered is False
    assert message.properties["$TimeStamp"] == 0.25
    assert message.properties["$Expiration"] == 0.5


def test_a_send_without_an_answer_gives_no_id():
    """F-B4: with NONE_ACK the id is None."""
    message = Message(b"")
    message.mark_sent(ORDERS, 0, 1000)
    assert message.message_id is None


def test_sending_a_received_message_on_keeps_the_id_to_acknowledge():
    """Acknowledging the new id would leave the old message to come again."""
    message = Message.received(ROW, b"", b"x", ORDERS)
    message.mark_sent(Queue("next"), 99, 1000)
    assert message.message_id == "000000000063"
    assert message.delivered_id == 0x00010000002A
    assert Message(b"").delivered_id == 0


def test_reserved_properties_are_readable_but_not_among_the_others():
    """F-F3."""
    head = encode_head(
        Head({"a": 1}, b"", "c", "queue:answers", "order", {"$DeadReason": "expired"})
    )
    message = Message.received(ROW, head, b"x", ORDERS)
    expected = {
        "$MessageID": "00010000002a",
        "$TimeStamp": 1_700_000_000.5,
        "$Destination": "orders",
        "$DeliveryMode": 1,
        "$Expiration": 60.0,
        "$CorrelationID": "c",
        "$ReplyTo": "queue:answers",
        "$Redelivered": True,
        "$Type": "order",
        "$Priority": 7,
        "$DeliveryCount": 2,
        "$DeadReason": "expired",
        "JMSXDeliveryCount": 2,
    }
    for name, value in expected.items():
        assert message.property(name) == message.properties[name] == value
        assert name in message.properties
    assert message.get_int("$Priority") == 7
    assert message.properties.get("$Nothing", "none") == "none"
    assert list(message.properties) == ["a", "$DeadReason"], "why it is a dead letter"


def test_a_sender_cannot_forge_what_the_node_says():
    """Another library may not check names: the header wins."""
    forged = {"$MessageID": "ffffffffffff", "$DeadReason": "none", "JMSXDeliveryCount": 9}
    message = Message.received(ROW, encode_head(Head(forged)), b"", ORDERS)
    assert message.properties["$MessageID"] == "00010000002a"
    assert message.properties.get("$DeadReason") is None
    assert message.properties["JMSXDeliveryCount"] == 2
    assert dict(message.properties) == {}


def test_a_forwarded_message_keeps_its_properties_and_drops_what_the_node_added():
    """`node` is set by the node only; a dead letter that is sent again is no dead letter."""
    head = encode_head(Head({"a": 3}, b"\x02", "c", None, None, {"$DeadReason": "expired"}))
    forwarded = through_the_node(Message.received(ROW, head, b"x", ORDERS))
    assert type(forwarded.properties["a"]) is Short
    assert forwarded.correlation_id == "c"
    assert forwarded.properties.get("$DeadReason") is None


def test_a_head_is_decoded_only_when_it_is_asked_for():
    """A receiver of bodies pays nothing for heads, and a bad head does not hide a good body."""
    message = Message.received(ROW, b"garbage", b"text", ORDERS)
    assert (message.body, message.message_id, message.priority) == ("text", "00010000002a", 7)
    with pytest.raises(MessageFormatError):
        _ = message.properties["a"]
    with pytest.raises(MessageFormatError):
        _ = message.correlation_id


def test_two_messages_without_a_head_share_nothing():
    """An empty head is one object inside; a change to one message must not reach another."""
    one, other = (Message.received(ROW, b"", b"", ORDERS) for _ in range(2))
    one.clear_properties()
    one.properties["a"] = 1
    one.correlation_id = "c"
    assert not other.properties
    assert other.correlation_id is None


@given(st.binary(max_size=200))
def test_a_garbled_head_raises_only_a_format_error(head):
    """Heads come from the network."""
    message = Message.received(ROW, head, b"", ORDERS)
    for ask in (lambda: dict(message.properties), lambda: message.reply_to, message.encode):
        try:
            ask()
        except MessageFormatError:
            continue


@pytest.mark.parametrize(
    "head",
    [
        [{"a": 1}, b"\x02\x03"],
        [{"a": 1, "b": 2}, b"\x02"],
        [{"a": 1}, b"\x00"],
        [{"a": 1}, b"\x0a"],
        [{"a": 70000}, b"\x02"],
        [{"a": "x"}, b"\x02"],
        [{"a": 1}, b"\x09"],
        [{"a": 1}, b"\x07"],
        [{"a": 1e300}, b"\x05"],
        [{"a": 2**64 - 1}],
        [{"a": [1]}],
        [{"a": None}],
        [{1: 1}],
        [{}, b"", 7],
        {"a": 1},
    ],
)
def test_a_head_that_breaks_a_rule_is_a_format_error(head):
    """Decoding holds the same rules as setting."""
    message = Message.received(ROW, msgspec.msgpack.encode(head), b"", ORDERS)
    with pytest.raises(MessageFormatError):
        dict(message.properties)


@pytest.mark.parametrize("text", ["topic:", "", "queue:\n", "x" * 300])
def test_a_garbled_reply_to_is_a_format_error(text):
    """The name inside comes from the sender."""
    message = Message.received(ROW, encode_head(Head(reply_to=text)), b"", ORDERS)
    with pytest.raises(MessageFormatError):
        _ = message.reply_to


def test_correlation_reply_to_and_type_can_be_set_and_taken_back():
    """They are the sender's, also on a message that was received."""
    message = Message.received(ROW, b"", b"x", ORDERS)
    message.correlation_id, message.reply_to, message.type = "c", "topic:answers", "t"
    assert (message.correlation_id, message.reply_to, message.type) == ("c", Topic("answers"), "t")
    message.correlation_id = message.reply_to = message.type = None
    assert message.encode()[1] == b""


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("correlation_id", 7, PropertyTypeError),
        ("correlation_id", b"x", PropertyTypeError),
        ("type", 7, PropertyTypeError),
        ("reply_to", "", DestinationNameError),
        ("reply_to", 7, DestinationNameError),
    ],
)
def test_a_wrong_header_value_is_refused_where_it_is_given(field, value, error):
    """Not at the receiver."""
    with pytest.raises(error):
        Message(b"", **{field: value})


def test_messages_pack_together_in_order():
    """Many messages travel in one pack."""
    messages = [Message(b"a"), Message.text("b", {"n": 1}), Message(None)]
    pack = pack_messages([message.encode() for message in messages])
    rows = unpack_rows(pack, 3)
    assert [row.kind for row in rows] == [0, 1, 6]
    assert [
        p[row.head_bytes :] for p, row in zip(slice_payloads(pack, rows), rows, strict=True)
    ] == [
        b"a",
        b"b",
        b"",
    ]
