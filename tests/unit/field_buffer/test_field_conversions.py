"""Conversions: every cell of JMS's table, and the freer ones of field buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_buffer import Carray, Char, Double, FieldType, Float, Int, Long, Short, String
from field_buffer.conversions import convert, read_as
from hms.errors.catalogue import HmsError, PropertyConversionError, PropertyRangeError

TYPES = list(FieldType)
SAMPLE = {
    FieldType.BOOLEAN: True,
    FieldType.CHAR: Char(7),
    FieldType.SHORT: Short(7),
    FieldType.INT: Int(7),
    FieldType.LONG: Long(7),
    FieldType.FLOAT: Float(1.5),
    FieldType.DOUBLE: Double(1.5),
    FieldType.STRING: String("7"),
    FieldType.CARRAY: Carray(b"7"),
}
T = FieldType
# JMS 3.1 §3.5.4, written out cell by cell, not taken from the code under test.
ALLOWED = {
    (T.BOOLEAN, T.BOOLEAN): True,
    (T.BOOLEAN, T.STRING): "true",
    (T.CHAR, T.CHAR): 7,
    (T.CHAR, T.SHORT): 7,
    (T.CHAR, T.INT): 7,
    (T.CHAR, T.LONG): 7,
    (T.CHAR, T.STRING): "7",
    (T.SHORT, T.SHORT): 7,
    (T.SHORT, T.INT): 7,
    (T.SHORT, T.LONG): 7,
    (T.SHORT, T.STRING): "7",
    (T.INT, T.INT): 7,
    (T.INT, T.LONG): 7,
    (T.INT, T.STRING): "7",
    (T.LONG, T.LONG): 7,
    (T.LONG, T.STRING): "7",
    (T.FLOAT, T.FLOAT): 1.5,
    (T.FLOAT, T.DOUBLE): 1.5,
    (T.FLOAT, T.STRING): "1.5",
    (T.DOUBLE, T.DOUBLE): 1.5,
    (T.DOUBLE, T.STRING): "1.5",
    (T.STRING, T.BOOLEAN): False,
    (T.STRING, T.CHAR): 7,
    (T.STRING, T.SHORT): 7,
    (T.STRING, T.INT): 7,
    (T.STRING, T.LONG): 7,
    (T.STRING, T.FLOAT): 7.0,
    (T.STRING, T.DOUBLE): 7.0,
    (T.STRING, T.STRING): "7",
    (T.CARRAY, T.CARRAY): b"7",
}


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("own", TYPES)
def test_a_property_is_read_by_the_table_of_jms(own, wanted):
    """A program written for JMS relies on each cell, the refused ones included."""
    if (own, wanted) not in ALLOWED:
        with pytest.raises(PropertyConversionError) as raised:
            read_as(SAMPLE[own], wanted, "total")
        assert (raised.value.name, raised.value.type) == ("total", own.name)
        return
    value = read_as(SAMPLE[own], wanted, "total")
    assert value == ALLOWED[own, wanted]
    assert type(value) is type(ALLOWED[own, wanted])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", T.INT),
        ("x", T.INT),
        ("1.5", T.INT),
        (" 7", T.INT),
        ("1_000", T.INT),
        ("٣", T.INT),
        ("70000", T.SHORT),
        ("256", T.CHAR),
        ("-1", T.CHAR),
        ("9223372036854775808", T.LONG),
        ("9" * 6000, T.LONG),
        ("1_0.5", T.DOUBLE),
        ("much", T.DOUBLE),
    ],
)
def test_text_that_is_no_such_number_is_refused(text, wanted):
    """JMS raises NumberFormatException; Python's own leniency must not widen the contract."""
    with pytest.raises(PropertyConversionError):
        read_as(text, wanted)


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("TRUE", True), ("yes", False), ("", False)]
)
def test_text_is_true_only_when_it_says_true(text, expected):
    """Boolean.valueOf knows no other truth."""
    assert read_as(text, T.BOOLEAN) is expected


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (2.9, T.INT, 2),
        (-2.9, T.SHORT, -2),
        ("2.9", T.INT, 2),
        ("300", T.LONG, 300),
        (b"12", T.SHORT, 12),
        (65, T.CHAR, 65),
        ("A", T.CHAR, 65),
        (b"A", T.CHAR, 65),
        (Char("A"), T.STRING, "A"),
        (Char(0xE9), T.CARRAY, b"\xe9"),
        (Char("7"), T.INT, 55),
        (12, T.STRING, "12"),
        (12, T.CARRAY, b"12"),
        ("가", T.CARRAY, "가".encode()),
        ("가".encode(), T.STRING, "가"),
        (True, T.INT, 1),
        (True, T.STRING, "true"),
        (0, T.BOOLEAN, False),
        (7, T.DOUBLE, 7.0),
        (0.1, T.FLOAT, Float(0.1)),
        (Long(5), T.SHORT, 5),
    ],
)
def test_a_field_converts_to_another_type(value, wanted, expected):
    """A reader may want any other type that can hold the value: fbgetvalt."""
    converted = convert(value, wanted)
    assert converted == expected
    assert wanted == T.BOOLEAN or type(converted).code == wanted


@pytest.mark.parametrize(
    ("value", "wanted", "error"),
    [
        (70000, T.SHORT, PropertyRangeError),
        (float("inf"), T.LONG, PropertyRangeError),
        (float("nan"), T.INT, PropertyRangeError),
        (1e39, T.FLOAT, PropertyRangeError),
        ("AB", T.CHAR, PropertyRangeError),
        ("x", T.INT, PropertyConversionError),
        (b"\xff", T.STRING, PropertyConversionError),
        ("9" * 6000, T.LONG, PropertyRangeError),
    ],
)
def test_a_field_that_does_not_fit_is_refused(value, wanted, error):
    """Cutting a value down to fit would lose it silently."""
    with pytest.raises(error):
        convert(value, wanted, "total")


_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.binary(), st.booleans()
)


@given(_VALUES, st.sampled_from(TYPES))
def test_a_conversion_gives_a_value_or_an_error_of_ours(value, wanted):
    """Values come from other programs: no input may escape as another exception."""
    for operation in (convert, read_as):
        try:
            operation(value, wanted)
        except HmsError:
            continue
