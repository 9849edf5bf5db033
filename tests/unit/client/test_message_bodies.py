"""Bodies: their kinds, what they hold, and what a receiver may do with them."""

import dataclasses
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_buffer import FieldBuffer, Short
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.constants import BodyKind
from hms.errors.catalogue import (
    BodyKindError,
    FileUnreadable,
    HmsError,
    IllegalState,
    InvalidArgument,
    MessageFormatError,
    MessageReadOnly,
    PropertyTypeError,
)
from hms.wire.packed_messages import ROW, DeliveredRow

_PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def received(message=None, *, kind=None, body=b"", head=b""):
    """The message as its receiver gets it."""
    row = DeliveredRow(42, 1_700_000_000_000, 0, 1, len(head), len(body), 4, kind or 0, 1)
    if message is not None:
        _, head, body = message.encode()
        row = row._replace(kind=int(message.kind))
    return Message.received(row, head, body, Queue("orders"))


@given(st.binary())
def test_a_bytes_body_arrives_as_it_was(body):
    """F-F5: the first kind is bytes, and nothing is done to them."""
    assert received(Message(body)).body == body


@given(st.text())
def test_a_text_body_arrives_as_it_was(body):
    """Any text that UTF-8 can hold, in any script."""
    message = received(Message.text(body))
    assert (message.kind, message.body) == (BodyKind.TEXT, body)
    assert message.body_bytes == body.encode()


@given(st.dictionaries(st.text(min_size=1), _PLAIN, max_size=4))
def test_a_map_body_arrives_as_it_was(body):
    """Names, values and their order; an empty name is refused (JMS 3.1, MapMessage)."""
    message = received(Message.map(body))
    assert message.kind is BodyKind.MAP
    assert message.body == body
    assert list(message.body) == list(body)


@given(st.lists(_PLAIN, max_size=4))
def test_a_stream_body_arrives_as_it_was(body):
    """A sequence of values in order."""
    message = received(Message.stream(body))
    assert (message.kind, message.body) == (BodyKind.STREAM, body)


@dataclasses.dataclass
class Order:
    number: int
    day: dt.date


def test_an_object_body_arrives_as_plain_data():
    """Nothing is pickled: a receiver never runs code of its sender."""
    message = received(Message.object(Order(7, dt.date(2024, 5, 1))))
    assert message.kind is BodyKind.OBJECT
    assert message.body == {"number": 7, "day": "2024-05-01"}


def test_a_message_may_have_no_body():
    """A signal is its properties."""
    message = received(Message(None, {"Type": "News"}))
    assert (message.kind, message.body) == (BodyKind.NONE, None)
    assert message.properties["Type"] == "News"


def test_typed_values_inside_a_body_become_plain():
    """A body's values have no field type of their own."""
    assert received(Message.map({"n": Short(3), "l": [Short(4)]})).body == {"n": 3, "l": [4]}


def test_a_bytes_like_body_is_copied():
    """A buffer that its owner fills again must not change the message."""
    data = bytearray(b"abc")
    message = Message(data)
    data[0] = 0
    assert message.body == Message(memoryview(b"abc")).body == b"abc"


def test_a_structured_body_is_taken_when_it_is_given():
    """A dict that changes afterwards must not change what is sent."""
    body = {"a": 1}
    message = Message.map(body)
    body["a"] = 2
    assert message.body == {"a": 1}


@pytest.mark.parametrize(
    "build",
    [
        lambda: Message("text"),
        lambda: Message({"a": 1}),
        lambda: Message([1]),
        lambda: Message(7),
        lambda: Message.text(b"x"),
        lambda: Message.text("\ud800"),
        lambda: Message.map([1]),
        lambda: Message.map({1: 2}),
        lambda: Message.map({"a": object()}),
        lambda: Message.map({"a": 2**64}),
        lambda: Message.map({"a": "\ud800"}),
        lambda: Message.stream("abc"),
        lambda: Message.stream({"a": 1}),
        lambda: Message.object(object()),
    ],
)
def test_a_value_that_does_not_fit_its_kind_is_refused(build):
    """The mistake is told where it is made, not at the receiver."""
    with pytest.raises(BodyKindError):
        build()


def test_a_value_that_contains_itself_is_refused():
    """The encoder's RecursionError is no error that an application expects."""
    endless = []
    endless.append(endless)
    with pytest.raises(BodyKindError):
        Message.object(endless)


def test_a_file_message_wants_a_file_and_its_own_way(tmp_path):
    """F-F6: what is no file is refused at once, and a file does not go in a batch."""
    with pytest.raises(FileUnreadable, match="a folder"):
        Message.file(tmp_path)
    with pytest.raises(InvalidArgument):
        Message.file(3)
    (tmp_path / "a").write_bytes(b"x")
    message = Message.file(tmp_path / "a", {"Type": "News"})
    assert message.kind is BodyKind.FILE
    assert message.file_info is None
    with pytest.raises(InvalidArgument):
        message.encode()


def test_a_field_buffer_becomes_properties_and_back():
    """F-F1: a message is a field buffer, one body and many named properties."""
    fb = FieldBuffer(Type="News", Month=Short(5))
    message = received(Message(fb))
    assert dict(message.properties) == {"Type": "News", "Month": 5}
    assert type(message.properties["Month"]) is Short
    assert message.field_buffer() == fb
    assert dict(Message(b"x", fb).properties) == {"Type": "News", "Month": 5}


def test_a_field_with_two_occurrences_is_no_property():
    """A property has one value; dropping the second would lose it silently."""
    with pytest.raises(PropertyTypeError, match="occurrences"):
        Message(FieldBuffer(A=[1, 2]))


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 7, 99])
@given(body=st.binary(min_size=1, max_size=80))
def test_a_garbled_body_raises_only_a_format_error(kind, body):
    """Bodies come from other programs; the bytes can always be looked at."""
    message = received(kind=kind, body=body)
    assert message.body_bytes == body
    try:
        _ = message.body
    except MessageFormatError:
        return


def test_a_body_of_an_unknown_kind_is_a_format_error():
    """A later version may have kinds that this one does not know."""
    for ask in (lambda m: m.body, lambda m: m.kind):
        with pytest.raises(MessageFormatError):
            ask(received(kind=99, body=b"x"))


def test_deep_nesting_in_a_body_is_a_format_error():
    """A hostile sender must not raise RecursionError in a receiver."""
    with pytest.raises(MessageFormatError):
        _ = received(kind=BodyKind.OBJECT, body=b"\x91" * 100_000).body


def test_a_received_body_is_read_only_until_it_is_cleared():
    """JMS 3.1 §3.10: changing a received message by accident must fail."""
    message = received(Message.text("a"))
    with pytest.raises(MessageReadOnly):
        message.body = "b"
    assert message.body == "a"

    message.clear_body()
    assert message.body == ""
    message.body = "b"

    assert (message.kind, message.body, message.body_bytes) == (BodyKind.TEXT, "b", b"b")


def test_clearing_the_body_leaves_the_properties_locked_and_there():
    """The two are cleared independently."""
    message = received(Message.text("a", {"n": 1}))
    message.clear_body()
    with pytest.raises(MessageReadOnly):
        message.properties["n"] = 2
    assert message.properties["n"] == 1


@pytest.mark.parametrize("kind", list(BodyKind))
def test_a_cleared_body_is_the_empty_value_of_its_kind(kind):
    """A receiver of an empty map gets an empty map."""
    if kind is BodyKind.FILE:
        return
    empty = {BodyKind.CARRAY: b"", BodyKind.TEXT: "", BodyKind.MAP: {}, BodyKind.STREAM: []}
    assert received(kind=kind).body == empty.get(kind)


def test_acknowledging_calls_whoever_delivered_it():
    """The session attaches itself; a message that was built here has none."""
    with pytest.raises(IllegalState):
        Message(b"").ack()
    asked = []
    row = DeliveredRow(42, 0, 0, 1, 0, 0, 4, 0, 1)
    message = Message.received(row, b"", b"", Queue("orders"), asked.append)
    message.ack()
    assert asked == [message]


def test_a_repr_shows_no_content():
    """Bodies and properties may hold secrets; logs hold reprs."""
    shown = repr(received(Message.text("secret", {"pin": "1234"})))
    assert "secret" not in shown
    assert "1234" not in shown
    assert "00000000002a" in shown


@given(_PLAIN)
def test_setting_any_body_raises_only_errors_of_ours(value):
    """Everything that an application can catch is an HmsError."""
    for build in (Message, Message.text, Message.map, Message.stream, Message.object):
        try:
            build(value)
        except HmsError:
            continue


@pytest.mark.parametrize("codec", ["", "zlib"])
@pytest.mark.parametrize(
    ("make", "value", "change"),
    [
        (Message.map, {"a": 1, "b": ["x" * 1000]}, lambda body: body.update(a=2)),
        (Message.map, {"a": 1, "b": ["x" * 1000]}, lambda body: body["b"].append(2)),
        (Message.stream, [1, "x" * 1000], lambda body: body.append(3)),
        (Message.object, {"x": ["x" * 1000]}, lambda body: body["x"].append(2)),
    ],
)
def test_who_changes_what_body_returned_changes_a_copy(make, value, change, codec):
    """m.body["a"] = 2 showed 2 and sent 1."""
    message = make(value)
    own = message.body
    change(own)

    assert own != value
    assert message.body == value
    row, head, body = message.encode(codec=codec)
    kind = ROW.unpack(row)[5]
    arrived = Message.received(
        DeliveredRow(1, 0, 0, 1, len(head), len(body), 4, kind, 0), head, body, Queue("q")
    )
    assert arrived.compression == codec
    change(arrived.body)
    assert arrived.body == value
