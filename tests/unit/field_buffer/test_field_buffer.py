"""FieldBuffer: a mapping with occurrences, and its bytes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_buffer import (
    Carray,
    Char,
    Double,
    FieldBuffer,
    FieldDefinition,
    FieldNotFound,
    FieldTable,
    FieldType,
    Float,
    Int,
    Long,
    Short,
    String,
    fbmake_fldkey,
    infer_type,
)
from hms.errors.catalogue import (
    FieldError,
    MessageFormatError,
    PropertyNameError,
    PropertyRangeError,
    PropertyTypeError,
)

AMOUNT = fbmake_fldkey(FieldType.LONG, 7)
NAME = fbmake_fldkey(FieldType.STRING, 8)


@pytest.fixture
def table():
    found = FieldTable()
    found.add(FieldDefinition("AMOUNT", AMOUNT))
    found.add(FieldDefinition("NAME", NAME))
    return found


def test_setting_a_field_replaces_all_its_occurrences():
    """F-F1: setting a name again replaces its value."""
    fb = FieldBuffer({"A": "1"})
    fb.add("A", "2")
    assert fb["A"] == ["1", "2"]

    fb["A"] = "3"

    assert fb["A"] == ["3"]
    assert fb.first("A") == "3"


def test_a_list_sets_several_occurrences():
    """That is how a mapping says what a field buffer can hold."""
    fb = FieldBuffer(A=[1, 2, 3])
    assert (fb.count("A"), len(fb), fb.count()) == (3, 1, 3)
    with pytest.raises(FieldError):
        fb["A"] = []
    assert fb["A"] == [1, 2, 3]


def test_the_list_of_occurrences_is_a_copy():
    """A value put into it would escape the check of its type."""
    fb = FieldBuffer(A=1)
    fb["A"].append(object())
    assert fb["A"] == [1]


def test_a_missing_field_raises_key_error_with_its_number():
    """A mapping's users catch KeyError, Tmax's users ask for fberror."""
    fb = FieldBuffer()
    with pytest.raises(KeyError):
        fb["A"]
    with pytest.raises(FieldNotFound) as raised:
        del fb["A"]
    assert raised.value.fberror == 6
    assert fb.get("A") is None
    assert fb.pop("A", 5) == 5
    assert fb.first("A", "none") == "none"


def test_occurrences_are_inserted_replaced_and_removed_in_place():
    """Their numbers are how programs tell rows of a table apart."""
    fb = FieldBuffer(A=["a", "c"])
    fb.insert("A", 1, "b")
    fb.replace("A", 2, "C")
    assert fb["A"] == ["a", "b", "C"]
    fb.remove("A", 0)
    assert fb["A"] == ["b", "C"]
    for operation in (
        lambda: fb.insert("A", 3, "x"),
        lambda: fb.replace("A", 2, "x"),
        lambda: fb.remove("A", 2),
        lambda: fb.remove("A", -1),
    ):
        with pytest.raises(FieldNotFound):
            operation()
    assert fb["A"] == ["b", "C"]


def test_removing_the_last_occurrence_removes_the_field():
    """A field without occurrences is not there."""
    fb = FieldBuffer(A=1)
    fb.remove("A")
    assert "A" not in fb
    assert len(fb) == 0


def test_a_name_and_its_key_are_one_field(table):
    """A program compiled with keys and one that uses names must see the same data."""
    fb = FieldBuffer(table=table)
    fb[AMOUNT] = 5
    fb.add("AMOUNT", 6)
    assert fb["AMOUNT"] == fb[AMOUNT] == [5, 6]
    assert len(fb) == 1
    assert "AMOUNT" in fb
    assert AMOUNT in fb


def test_a_table_that_is_loaded_later_finds_what_was_set_by_key(table):
    """Loading a table must never hide a field."""
    empty = FieldTable()
    fb = FieldBuffer({AMOUNT: 5}, table=empty)
    empty.add(FieldDefinition("AMOUNT", AMOUNT))
    assert fb["AMOUNT"] == [5]


def test_a_defined_field_takes_its_own_type_only(table):
    """The key promises the type to every reader."""
    fb = FieldBuffer(table=table)
    fb["AMOUNT"] = 5
    assert type(fb.first("AMOUNT")) is Long
    for field, value in (("AMOUNT", "5"), (NAME, 5), (AMOUNT, True)):
        with pytest.raises(PropertyTypeError):
            fb.add(field, value)
    with pytest.raises(PropertyRangeError):
        fb.add(AMOUNT, 2**63)
    assert fb["AMOUNT"] == [5]


def test_a_refused_list_changes_nothing():
    """A refused request changes nothing."""
    fb = FieldBuffer(A=1)
    with pytest.raises(PropertyTypeError):
        fb["A"] = [2, None]
    with pytest.raises(PropertyTypeError):
        fb.add("A", 2, [])
    assert fb["A"] == [1]


@pytest.mark.parametrize("field", [0, -1, 5, 1 << 26, (9 << 26) + 1, (12 << 26) + 1])
def test_a_number_that_is_no_key_is_refused(field):
    """BADFLDKEY is 0; any other key has a type and a number."""
    with pytest.raises(FieldError) as raised:
        FieldBuffer()[field] = 1
    assert raised.value.fberror == 8


@pytest.mark.parametrize("name", ["", "1A", "a b", "a-b", "x" * 256, "a.b", "\ud800"])
def test_a_text_that_is_no_name_is_refused(name):
    """What a selector cannot say, a field cannot be called."""
    with pytest.raises(PropertyNameError):
        FieldBuffer()[name] = 1


def test_an_occurrence_is_read_as_another_type():
    """A reader wants a number where the sender put a text."""
    fb = FieldBuffer(A=["12", "x"])
    assert fb.get_as("A", FieldType.SHORT) == 12
    assert type(fb.get_as("A", FieldType.SHORT)) is Short


_NAMES = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,20}", fullmatch=True)
_KEYED = st.builds(lambda no: (FieldType.STRING << 26) + no, st.integers(1, 2**26 - 1))
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


@given(
    st.dictionaries(_NAMES, st.lists(_VALUES, min_size=1, max_size=4), max_size=6),
    st.dictionaries(_KEYED, st.lists(st.text(), min_size=1, max_size=3), max_size=3),
)
def test_a_buffer_survives_its_bytes_with_types_and_order(named, keyed):
    """What a service gets is what its caller sent."""
    fb = FieldBuffer({**named, **keyed})
    again = FieldBuffer.decode(fb.encode())
    assert again == fb
    assert list(again) == list(fb)
    for (_, _, one), (_, _, other) in zip(fb.occurrences(), again.occurrences(), strict=True):
        assert type(one) is type(other)
        assert infer_type(one) == infer_type(other)


@given(st.binary(max_size=200))
def test_garbage_raises_only_a_format_error(data):
    """A buffer comes from the network."""
    for candidate in (data, b"FB\x01" + data):
        try:
            FieldBuffer.decode(candidate)
        except MessageFormatError:
            continue


@pytest.mark.parametrize(
    "fields",
    [
        [["A", b"", [1]]],
        [["A", b"\0", []]],
        [["A", b"", []]],
        [["A", b"\0", [None]]],
        [["A", b"\0", [[1]]]],
        [["A", b"\x63", [1]]],
        [["A", b"\x02", [70000]]],
        [["A", b"\x07", [b"x"]]],
        [["A", b"\0", [2**64 - 1]]],
        [["A", b"\0", [1]], ["A", b"\0", [1]]],
        [["1A", b"\0", [1]]],
        [[5, b"\0", [1]]],
        [[NAME, b"\0", [1]]],
        [["A", b"\0"]],
        {"A": 1},
        7,
    ],
)
def test_a_buffer_that_breaks_a_rule_is_not_read(fields):
    """Decoding holds the same rules as setting."""
    with pytest.raises(MessageFormatError):
        FieldBuffer.decode(b"FB\x01" + msgspec.msgpack.encode(fields))


def test_deep_nesting_is_a_format_error():
    """The decoder's RecursionError is no error that an application expects."""
    with pytest.raises(MessageFormatError):
        FieldBuffer.decode(b"FB\x01" + b"\x91" * 100_000)
