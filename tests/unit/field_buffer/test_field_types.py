"""The eight field types: what each holds, and what it refuses."""

import copy
import enum
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    infer_type,
    make_typed,
)
from field_buffer.types import check_value, plain
from hms.errors.catalogue import PropertyRangeError, PropertyTypeError

EDGES = [
    (Char, 0, 255),
    (Short, -(2**15), 2**15 - 1),
    (Int, -(2**31), 2**31 - 1),
    (Long, -(2**63), 2**63 - 1),
]
EXAMPLES = [
    Char("A"),
    Short(-3),
    Int(5),
    Long(2**40),
    Float(0.1),
    Double(1.5),
    String("다"),
    Carray(b"\0\xff"),
]


@pytest.mark.parametrize(("kind", "low", "high"), EDGES)
def test_an_integer_type_holds_its_range_and_nothing_beyond(kind, low, high):
    """A value that is cut off silently is a wrong value."""
    assert kind(low) == low
    assert kind(high) == high
    for beyond in (low - 1, high + 1):
        with pytest.raises(PropertyRangeError) as raised:
            kind(beyond)
        assert raised.value.type == kind.__name__


@pytest.mark.parametrize("kind", [Short, Int, Long])
@pytest.mark.parametrize("value", [True, 1.0, "1", b"1", None, [1]])
def test_an_integer_type_refuses_other_python_types(kind, value):
    """A bool or a text that slips in as a number would be read back as one."""
    with pytest.raises(PropertyTypeError):
        kind(value)


def test_a_char_is_given_as_number_character_or_byte():
    """C programs think of a char as each of the three."""
    assert Char("A") == Char(65) == Char(b"A") == 65
    assert Char("ÿ").text == "ÿ"
    for value in ("가", "AB", "", b"", b"AB"):
        with pytest.raises(PropertyRangeError):
            Char(value)
    with pytest.raises(PropertyTypeError):
        Char(1.0)


def test_a_float_is_rounded_to_single_precision_and_bounded_by_it():
    """A receiver in another language has 32 bits for it; the sender should see what arrives."""
    assert Float(0.1) == 0.10000000149011612
    assert str(Float(0.1)) == "0.1"
    assert Float(3.4028234663852886e38) == 3.4028234663852886e38
    assert math.isinf(Float(math.inf))
    assert math.isnan(Float(math.nan))
    with pytest.raises(PropertyRangeError):
        Float(3.5e38)
    with pytest.raises(PropertyRangeError):
        Float(-3.5e38)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_gives_the_same_float_again(value):
    """get_string and back must not change a value."""
    assert Float(float(str(Float(value)))) == Float(value)


@pytest.mark.parametrize("kind", [Float, Double])
def test_a_floating_type_takes_whole_numbers_but_no_bool_or_text(kind):
    """1 is a fine double; True and "1" are mistakes."""
    assert kind(1) == 1.0
    for value in (True, "1", b"1", None):
        with pytest.raises(PropertyTypeError):
            kind(value)
    with pytest.raises(PropertyRangeError):
        kind(10**400)


def test_an_integer_of_thousands_of_digits_is_refused_with_a_readable_error():
    """Python refuses to print such a number, which must not hide the error."""
    with pytest.raises(PropertyRangeError, match="many digits"):
        Long(10**5000)


def test_text_must_fit_utf8_and_may_hold_nul():
    """A lone surrogate cannot cross the wire: say so when it is set, not when it is sent."""
    assert String("a\0b") == "a\0b"
    with pytest.raises(PropertyRangeError):
        String("\ud800")
    with pytest.raises(PropertyTypeError):
        String(b"a")


def test_bytes_like_values_become_a_carray():
    """A caller who reads into a bytearray need not copy it himself."""
    assert Carray(bytearray(b"x")) == Carray(memoryview(b"x")) == b"x"
    for value in ("x", 3, None):
        with pytest.raises(PropertyTypeError):
            Carray(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**31 - 1, FieldType.INT),
        (-(2**31), FieldType.INT),
        (2**31, FieldType.LONG),
        (-(2**31) - 1, FieldType.LONG),
        (2**63 - 1, FieldType.LONG),
        (1.0, FieldType.DOUBLE),
        ("", FieldType.STRING),
        (b"", FieldType.CARRAY),
        (True, FieldType.BOOLEAN),
        *[(value, FieldType(code)) for code, value in enumerate(EXAMPLES, start=1)],
    ],
)
def test_the_type_follows_from_the_value(value, expected):
    """Selectors and other languages rely on one rule."""
    assert infer_type(value) == expected


@pytest.mark.parametrize("value", [None, [], {}, object(), 1j, (1,)])
def test_what_is_no_field_value_has_no_type(value):
    """Containers and None are refused where they are set, with the name."""
    with pytest.raises(PropertyTypeError, match="property total"):
        infer_type(value, "total")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_integer_beyond_64_bits_has_no_type(value):
    """There is no wider type to fall back to."""
    with pytest.raises(PropertyRangeError):
        infer_type(value)


class Colour(enum.IntEnum):
    RED = 3


class Word(enum.StrEnum):
    YES = "y"


@pytest.mark.parametrize(
    ("value", "expected"), [(Colour.RED, 3), (Word.YES, "y"), (bytearray(b"x"), b"x")]
)
def test_a_subclass_of_a_plain_type_is_kept_as_the_plain_value(value, expected):
    """An enum's member is a natural thing to send; the codec knows plain values only."""
    kept = check_value(value)
    assert kept == expected
    assert type(kept) is type(expected)


@pytest.mark.parametrize("value", EXAMPLES)
def test_a_typed_value_equals_its_plain_one_and_survives_pickle_and_copy(value):
    """Typed values must be usable wherever the plain ones are."""
    bare = plain(value)
    assert bare == value
    assert hash(bare) == hash(value)
    assert type(bare) in (int, float, str, bytes)
    for clone in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert clone == value
        assert type(clone) is type(value)
    assert type(make_typed(infer_type(value), bare)) is type(value)


def test_typed_numbers_print_as_numbers():
    """An application that formats a received value wants 3, not Short(3)."""
    assert f"{Short(3)} {Double(1.5)} {String('a')}" == "3 1.5 a"
    assert repr(Short(3)) == "Short(3)"


@pytest.mark.parametrize("code", [0, 10, -1, 255])
def test_an_unknown_type_code_is_refused(code):
    """hms_set_property takes a number from its caller."""
    with pytest.raises(PropertyTypeError):
        make_typed(code, 1)
