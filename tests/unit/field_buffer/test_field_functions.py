"""The fb functions with Tmax's names and numbers, and field tables."""

import io

import pytest

from field_buffer import (
    BADFLDKEY,
    FBCOMP,
    FBCONCAT,
    FBCOPY,
    FBEINVAL,
    FBETYPE,
    FBJOIN,
    FBMOVE,
    FBOJOIN,
    FBUPDATE,
    FieldBuffer,
    Long,
    fbbufop,
    fbbufop_proj,
    fbdelall,
    fbdelete,
    fbfldcount,
    fbget,
    fbget_fldkey,
    fbget_fldname,
    fbget_fldno,
    fbget_fldtype,
    fbget_strfldtype,
    fbgetvali,
    fbgetvals,
    fbgetvalt,
    fbinsert,
    fbispres,
    fbkeyoccur,
    fbmake_fldkey,
    fbprint,
    fbput,
    fbputt,
    fbupdate,
    fdl_load,
)
from field_buffer.fdl import FIELDS, NUMBER_MAX, FieldTable, parse_fdl
from hms.errors.catalogue import FieldError, PropertyConversionError
from hms.errors.tree import HmsError

FDL = """# accounts
*base 500
# name      number type   flags comments
ACCOUNT     1      long   -     the account
OWNER       2      string
$#include <nothing.h>
*base 0
PICTURE\t9\tcarray -
"""


@pytest.fixture
def loaded(tmp_path):
    path = tmp_path / "accounts.fdl"
    path.write_text(FDL)
    yield fdl_load(path)
    FIELDS.clear()


def test_a_key_is_the_type_shifted_by_26_plus_the_number():
    """Keys are compiled into C programs: string number 1 is 469762049."""
    key = fbmake_fldkey(7, 1)
    assert key == 469762049
    assert (fbget_fldtype(key), fbget_strfldtype(key), fbget_fldno(key)) == (7, "string", 1)
    assert BADFLDKEY == 0


@pytest.mark.parametrize(
    ("kind", "number", "fberror"), [(0, 1, 13), (9, 1, 13), (1, 0, 4), (1, NUMBER_MAX + 1, 4)]
)
def test_a_wrong_type_or_number_makes_no_key(kind, number, fberror):
    """A wrong key would name another field."""
    with pytest.raises(FieldError) as raised:
        fbmake_fldkey(kind, number)
    assert raised.value.fberror == fberror


def test_occurrences_are_put_read_changed_and_deleted():
    """The functions do what their namesakes in C do."""
    fb = FieldBuffer()
    fbput(fb, "A", "1")
    fbput(fb, "A", "3")
    fbinsert(fb, "A", 1, "2")
    fbupdate(fb, "A", 2, "4")
    assert [fbget(fb, "A", nth) for nth in range(3)] == ["1", "2", "4"]
    assert (fbkeyoccur(fb, "A"), fbkeyoccur(fb, "B"), fbfldcount(fb)) == (3, 0, 3)
    assert fbispres(fb, "A", 2)
    assert not fbispres(fb, "A", 3)
    assert not fbispres(fb, "A", -1)
    fbdelete(fb, "A")
    assert fbget(fb, "A") == "2"
    fbdelall(fb, "A")
    assert fbfldcount(fb) == 0


@pytest.mark.parametrize(
    "operation",
    [
        lambda fb: fbget(fb, "A"),
        lambda fb: fbget(fb, "A", 1),
        lambda fb: fbupdate(fb, "A", 0, 1),
        lambda fb: fbinsert(fb, "A", 1, 1),
        lambda fb: fbdelete(fb, "A"),
        lambda fb: fbdelall(fb, "A"),
    ],
)
def test_an_absent_occurrence_is_fbenoent(operation):
    """Programs look for 6."""
    with pytest.raises(FieldError) as raised:
        operation(FieldBuffer())
    assert raised.value.fberror == 6


def test_what_is_no_field_buffer_is_fbebadfb():
    """A dict instead of a buffer is a mistake that has a number of its own."""
    with pytest.raises(FieldError) as raised:
        fbput({}, "A", 1)
    assert raised.value.fberror == 3


def test_typed_functions_convert_on_the_way(loaded):
    """Old programs change types by fbputt and fbgetvalt."""
    fb = FieldBuffer()
    fbputt(fb, "ACCOUNT", "12", 7)
    assert fb["ACCOUNT"] == [12]
    assert type(fb.first("ACCOUNT")) is Long
    assert (fbgetvals(fb, "ACCOUNT"), fbgetvali(fb, "ACCOUNT")) == ("12", 12)
    assert fbgetvalt(fb, "ACCOUNT", 0, 6) == 12.0
    with pytest.raises(PropertyConversionError):
        fbputt(fb, "ACCOUNT", "twelve", 7)


def test_a_loaded_table_tells_names_and_keys(loaded):
    """*base is added to the numbers that follow it."""
    key = fbmake_fldkey(4, 501)
    assert [definition.name for definition in loaded] == ["ACCOUNT", "OWNER", "PICTURE"]
    assert fbget_fldkey("ACCOUNT") == key
    assert fbget_fldname(key) == "ACCOUNT"
    assert fbget_fldno(fbget_fldkey("PICTURE")) == 9


@pytest.mark.parametrize("ask", [lambda: fbget_fldkey("NOBODY"), lambda: fbget_fldname(99)])
def test_an_unknown_field_is_fbebadfld(ask):
    """8 is what fberror says for it."""
    with pytest.raises(FieldError) as raised:
        ask()
    assert raised.value.fberror == 8


@pytest.mark.parametrize(
    ("line", "fberror"),
    [
        ("A 1", 4),
        ("A x long", 4),
        ("A -1 long", 4),
        ("A 0 long", 4),
        (f"A {NUMBER_MAX + 1} long", 4),
        ("A " + "9" * 9000 + " long", 4),
        ("A 1 word", 13),
        ("1A 1 long", 8),
        ("*bass 7", 4),
        ("*base x", 4),
        ("*base", 4),
        ("GOOD 2 long", 14),
        ("OTHER 1 long", 14),
    ],
)
def test_a_wrong_line_is_named_by_file_and_line(line, fberror):
    """The operator goes to the line, not through the file."""
    with pytest.raises(FieldError, match=r"x\.fdl:3") as raised:
        parse_fdl(f"# first\nGOOD 1 long\n{line}\n", "x.fdl")
    assert raised.value.fberror == fberror


def test_a_wrong_table_loads_nothing_and_a_second_load_changes_nothing(tmp_path):
    """A refused request changes nothing; loading at every start of a program is usual."""
    table = FieldTable()
    path = tmp_path / "x.fdl"
    path.write_text("A 1 long\nB 2 word\n")
    with pytest.raises(FieldError):
        fdl_load(path, table)
    assert len(table) == 0
    path.write_text("A 1 long\n")
    fdl_load(path, table)
    fdl_load(path, table)
    assert len(table) == 1


def test_a_table_that_cannot_be_read_is_fbeos(tmp_path):
    """7 tells that the operating system refused."""
    binary = tmp_path / "b.fdl"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "none.fdl", tmp_path, binary):
        with pytest.raises(FieldError) as raised:
            fdl_load(path, FieldTable())
        assert raised.value.fberror == 7


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (FBCOPY, {"B": [20, 21], "C": [30]}),
        (FBMOVE, {"B": [20, 21], "C": [30]}),
        (FBCONCAT, {"A": [1], "B": [2, 20, 21], "C": [30]}),
        (FBJOIN, {"B": [20]}),
        (FBOJOIN, {"A": [1], "B": [20]}),
        (FBUPDATE, {"A": [1], "B": [20, 21], "C": [30]}),
    ],
)
def test_a_whole_buffer_operation_gives_its_result(mode, expected):
    """The modes 1 to 7 are those of Tmax."""
    dest, src = FieldBuffer(A=1, B=2), FieldBuffer(B=[20, 21], C=30)
    assert fbbufop(dest, src, mode) == 0
    assert dict(dest) == expected
    assert len(src) == (0 if mode == FBMOVE else 2)


def test_moving_or_copying_a_buffer_onto_itself_keeps_it():
    """An alias must not empty the buffer."""
    fb = FieldBuffer(A=[1, 2])
    for mode in (FBMOVE, FBCOPY, FBJOIN, FBOJOIN, FBUPDATE):
        fbbufop(fb, fb, mode)
        assert fb["A"] == [1, 2]
    fbbufop(fb, fb, FBCONCAT)
    assert fb["A"] == [1, 2, 1, 2]


def test_comparing_buffers_orders_them_and_changes_nothing():
    """0 means equal; the sign is stable."""
    one, other = FieldBuffer(A=1), FieldBuffer(A=2)
    assert fbbufop(one, FieldBuffer(A=1), FBCOMP) == 0
    assert fbbufop(one, other, FBCOMP) == -fbbufop(other, one, FBCOMP) != 0
    assert one["A"] == [1]


def test_an_unknown_mode_is_fbeinval():
    """4 is what fberror says for it."""
    with pytest.raises(FieldError) as raised:
        fbbufop(FieldBuffer(A=1), FieldBuffer(), 8)
    assert raised.value.fberror == 4


def test_a_projection_keeps_the_named_fields():
    """fbbufop_proj copies a part of a buffer."""
    dest = FieldBuffer(Z=1)
    fbbufop_proj(dest, FieldBuffer(A=1, B=[2, 3], C=4), ["B", "NONE"])
    assert dict(dest) == {"B": [2, 3]}


def test_printing_shows_a_line_per_occurrence(loaded):
    """Control characters in a value must not reach a terminal."""
    out = io.StringIO()
    fb = FieldBuffer({"OWNER": "a\x1bb", fbget_fldkey("PICTURE"): b"x\xff"})
    fbprint(fb, out)
    assert out.getvalue() == "OWNER\ta\\x1bb\nPICTURE\tx\\xff\n"


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        (lambda fb: fbputt(fb, "NEW", 1, 99), FBETYPE),
        (lambda fb: fbputt(fb, "NEW", 1, -1), FBETYPE),
        (lambda fb: fbputt(fb, "NEW", "x", 2), FBETYPE),
        (lambda fb: fbputt(fb, "NEW", [1], 7), FBETYPE),
        (lambda fb: fbputt(fb, "NEW", 1 << 20, 2), FBEINVAL),
        (lambda fb: fbput(fb, "NEW", object()), FBETYPE),
        (lambda fb: fbupdate(fb, "A", 0, object()), FBETYPE),
        (lambda fb: fbgetvalt(fb, "A", 0, 99), FBETYPE),
        (lambda fb: fbgetvali(fb, "TEXT"), FBETYPE),
    ],
)
def test_a_value_of_a_wrong_type_has_its_fberror(operation, number):
    """Programs test fberror for 13, whatever the class of the error is."""
    fb = FieldBuffer({"A": 1, "TEXT": "twelve"})
    with pytest.raises(HmsError) as raised:
        operation(fb)
    assert raised.value.fberror == number
    assert "NEW" not in fb
