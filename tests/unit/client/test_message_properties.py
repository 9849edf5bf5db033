"""Properties: names, types, reserved ones, conversions, and the read-only state."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hms
from field_buffer import (
    Carray,
    Char,
    Double,
    FieldType,
    Float,
    Int,
    Long,
    Short,
    String,
)
from field_buffer.conversions import READABLE_AS
from hms.client.compression import check_codec
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.client.properties import SELECTOR_WORDS
from hms.errors.catalogue import (
    InvalidArgument,
    MessageReadOnly,
    PropertyConversionError,
    PropertyNameError,
    PropertyNotFound,
    PropertyRangeError,
    PropertyTypeError,
    ReservedProperty,
)
from hms.wire.packed_messages import DeliveredRow

TYPED = {
    "c": Char("A"),
    "s": Short(-3),
    "i": Int(5),
    "l": Long(6),
    "f": Float(0.1),
    "d": Double(0.2),
    "t": String("text"),
    "b": Carray(b"\0\xff"),
}


def received(message):
    """The message as its receiver gets it."""
    _, head, body = message.encode()
    row = DeliveredRow(42, 0, 0, 1, len(head), len(body), 4, int(message.kind), 1)
    return Message.received(row, head, body, Queue("orders"))


def test_plain_values_arrive_as_plain_values():
    """An application that never heard of field types gets back what it set."""
    sent = {"Type": "News", "Month": 5, "big": 2**40, "ratio": 0.5, "raw": b"x", "on": True}
    message = received(Message(b"", sent))
    assert dict(message.properties) == sent
    assert [type(v) for v in message.properties.values()] == [type(v) for v in sent.values()]


def test_typed_values_arrive_with_their_type():
    """F-F2: the type is part of what the sender said."""
    message = received(Message(b"", TYPED))
    assert dict(message.properties) == TYPED
    for name, value in TYPED.items():
        assert type(message.properties[name]) is type(value)
        assert message.properties.type_of(name) == value.code


def test_a_plain_value_beside_a_typed_one_keeps_its_value():
    """One typed property must not disturb the others."""
    message = received(Message(b"", {"n": Short(3), "Month": 5, "on": True, "t": "x"}))
    assert dict(message.properties) == {"n": 3, "Month": 5, "on": True, "t": "x"}
    assert message.properties["on"] is True


def test_setting_a_name_again_replaces_its_value_in_its_place():
    """F-F1; the order is the one in which names first came."""
    message = Message(b"", {"a": 1, "b": 2})
    message.properties["a"] = "x"
    del message.properties["b"]
    message.properties["c"] = 3
    assert list(message.properties.items()) == [("a", "x"), ("c", 3)]
    assert len(message.properties) == 2
    message.properties.clear()
    assert not message.properties


def test_properties_can_be_set_by_type_code():
    """hms_set_property gives name, type and value."""
    message = Message()
    message.properties.set_typed("n", FieldType.SHORT, 3)
    assert type(message.properties["n"]) is Short
    with pytest.raises(PropertyTypeError):
        message.properties.set_typed("n", FieldType.SHORT, "3")
    with pytest.raises(ReservedProperty):
        message.properties.set_typed("$n", FieldType.SHORT, 3)


@pytest.mark.parametrize(
    "name",
    [
        "$MessageID",
        "$anything",
        "$",
        "JMSPriority",
        "JMS",
        "JMSXDeliveryCount",
        "JMS_VENDOR",
        "HMSMessageID",
        "HMSType",
        "HMSCallSvcname16",
        "@HMSTmsName@",
    ],
)
def test_a_reserved_name_cannot_be_set(name):
    """F-F3: what the node says of a message must not be forged by its sender."""
    message = Message(b"", {"a": 1})
    for change in (
        lambda: Message(b"", {name: 1}),
        lambda: message.properties.__setitem__(name, 1),
        lambda: message.properties.update({name: 1}),
    ):
        with pytest.raises(ReservedProperty):
            change()
    assert dict(message.properties) == {"a": 1}


@pytest.mark.parametrize(
    "name", ["JMSXGroupID", "JMSXGroupSeq", "HMSomething", "Jms", "a$", "_x", "달", "Type"]
)
def test_an_ordinary_name_can_be_set(name):
    """Groups are the application's; a name may have letters of any script."""
    assert received(Message(b"", {name: "g"})).properties[name] == "g"


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a-b", "a.b", "x" * 256, 7, None, *sorted(SELECTOR_WORDS), "like"]
)
def test_a_name_that_a_selector_cannot_say_is_refused(name):
    """JMS 3.1 §3.5.1: a property name obeys the rules of a selector's identifier."""
    with pytest.raises(PropertyNameError):
        Message(b"", {name: 1})


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, PropertyTypeError),
        ([1], PropertyTypeError),
        ({"a": 1}, PropertyTypeError),
        (object(), PropertyTypeError),
        (2**63, PropertyRangeError),
        (-(2**63) - 1, PropertyRangeError),
        ("\ud800", PropertyRangeError),
    ],
)
def test_a_value_without_a_field_type_is_refused_by_name(value, error):
    """The error tells which of many properties was wrong."""
    with pytest.raises(error) as raised:
        Message(b"", {"fine": 1, "total": value})
    assert raised.value.name == "total"


GETTERS = {
    FieldType.BOOLEAN: "get_boolean",
    FieldType.CHAR: "get_byte",
    FieldType.SHORT: "get_short",
    FieldType.INT: "get_int",
    FieldType.LONG: "get_long",
    FieldType.FLOAT: "get_float",
    FieldType.DOUBLE: "get_double",
    FieldType.STRING: "get_string",
    FieldType.CARRAY: "get_bytes",
}


@pytest.mark.parametrize("wanted", list(FieldType))
@pytest.mark.parametrize("own", list(FieldType))
def test_each_getter_obeys_the_table_after_the_wire(own, wanted):
    """The table's cells are tested by value elsewhere; here each getter is tied to its column."""
    values = {FieldType.BOOLEAN: True, **{v.code: v for v in TYPED.values()}}
    values[FieldType.STRING] = String("7")
    message = received(Message(b"", {"p": values[own]}))
    getter = getattr(message, GETTERS[wanted])
    if wanted in READABLE_AS[own]:
        assert type(getter("p")) in (bool, int, float, str, bytes)
        return
    with pytest.raises(PropertyConversionError):
        getter("p")


@pytest.mark.parametrize("getter", GETTERS.values())
def test_a_getter_of_an_absent_property_says_so(getter):
    """Zero or False for something that is not there hides a mistake."""
    with pytest.raises(PropertyNotFound):
        getattr(Message(), getter)("absent")


def test_an_absent_property_is_a_key_error():
    """It is a mapping."""
    message = Message(b"", {"a": 1})
    with pytest.raises(KeyError):
        message.properties["A"]
    with pytest.raises(KeyError):
        del message.properties["A"]
    with pytest.raises(PropertyNotFound):
        message.property("A")
    assert message.properties.get("A", 7) == 7
    assert "A" not in message.properties
    assert 7 not in message.properties


def test_received_properties_are_read_only_until_they_are_cleared():
    """JMS 3.1 §3.10; clearing leaves body and header."""
    message = received(Message.text("x", {"a": 1}, correlation_id="c"))
    properties = message.properties
    for change in (
        lambda: properties.__setitem__("b", 1),
        lambda: properties.__delitem__("a"),
        lambda: properties.update(b=1),
        lambda: properties.pop("a"),
        lambda: properties.set_typed("b", 3, 1),
        properties.clear,
        lambda: setattr(message, "properties", {}),
    ):
        with pytest.raises(MessageReadOnly):
            change()
    assert dict(properties) == {"a": 1}

    message.clear_properties()
    properties["b"] = 2

    assert dict(message.properties) == {"b": 2}
    assert (message.body, message.correlation_id) == ("x", "c")
    with pytest.raises(MessageReadOnly):
        message.body = "y"


def test_properties_can_be_replaced_as_a_whole():
    """Assigning checks like setting one by one."""
    message = Message(b"", {"a": 1})
    with pytest.raises(ReservedProperty):
        message.properties = {"b": 1, "$c": 2}
    assert dict(message.properties) == {"a": 1}
    message.properties = {"b": 1}
    assert message.properties == {"b": 1}


def test_properties_of_more_than_64_kib_are_refused_when_they_are_sent():
    """The node would refuse the head; the sender should hear it from its own line."""
    message = Message(b"", {f"p{i}": "x" * 1000 for i in range(70)})
    with pytest.raises(InvalidArgument, match="65536"):
        message.encode()


_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: not name.startswith(("JMS", "HMS")) and name.upper() not in SELECTOR_WORDS
)
_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.booleans(),
    st.builds(Char, st.integers(0, 255)),
    st.builds(Short, st.integers(-(2**15), 2**15 - 1)),
    st.builds(Int, st.integers(-(2**31), 2**31 - 1)),
    st.builds(Long, st.integers(-(2**63), 2**63 - 1)),
    st.builds(Float, st.floats(width=32, allow_nan=False)),
    st.builds(Double, st.floats(allow_nan=False)),
    st.builds(String, st.text()),
    st.builds(Carray, st.binary()),
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=8))
def test_any_properties_survive_the_wire_with_order_and_types(sent):
    """What is set is what is got."""
    message = received(Message(b"", sent))
    assert list(message.properties.items()) == list(sent.items())
    for name, value in sent.items():
        assert message.properties.type_of(name) == Message(b"", {name: value}).properties.type_of(
            name
        )
        assert type(value).__mro__[0] in type(message.properties[name]).__mro__


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.property([]),
        lambda m: m.get_int({}),
        lambda m: m.properties[[]],
        lambda m: m.properties.set_typed("a", {}, 1),
        lambda m: m.properties.set_typed([], 1, 1),
        lambda m: m.properties.update({(): 1}),
        lambda m: operator.setitem(m.properties, [], 1),
        lambda m: operator.delitem(m.properties, []),
        lambda _: hms.Message(b"", {(): 1}),
        lambda _: hms.Selector(5),
        lambda _: hms.Selector(None),
        lambda _: hms.Selector(b""),
    ],
)
def test_what_is_no_name_is_told_by_an_error_of_ours(call):
    """`except HmsError` must catch every mistake of an application's."""
    with pytest.raises(hms.HmsError):
        call(hms.Message(b""))


@pytest.mark.parametrize(
    "call",
    [
        lambda name: hms.Message(b"").property(name),
        hms.Message(b"").properties.pop,
        lambda name: operator.delitem(hms.Message(b"").properties, name),
        lambda name: hms.Message(b"").properties.set_typed(name, 99, 1),
        lambda name: hms.Message(b"", {"$" + name: 1}),
        check_codec,
    ],
)
def test_a_long_name_is_not_repeated_in_full(call):
    """An error goes into logs."""
    with pytest.raises(hms.HmsError) as told:
        call("x" * 70_000)

    assert len(str(told.value)) < 400
