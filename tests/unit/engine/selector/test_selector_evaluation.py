"""What a selector answers: three-valued logic, types, Java's arithmetic, LIKE; which values of a
property it sees, and as what."""

import enum
import math
import re
from types import MappingProxyType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hms.engine.selector import KEPT_LIMITS, Selector
from hms.engine.selector.like import compile_like
from hms.errors.catalogue import SelectorSyntaxError
from tests.support.effort import tries

ROW = {
    "i": 10,
    "neg": -7,
    "big": 2**53 + 1,
    "round": 2.0**53,
    "max": 2**63 - 1,
    "min": -(2**63),
    "d": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "s": "a_b",
    "num": "10",
    "vip": True,
    "off": False,
    "raw": b"10",
}


def answer(text, row=ROW):
    """What a selector says of a message with these properties."""
    return Selector(text).matches(row)


@pytest.mark.parametrize(
    ("left", "right", "conjunction", "disjunction"),
    [
        ("TRUE", "TRUE", True, True),
        ("TRUE", "FALSE", False, True),
        ("TRUE", "gone", None, True),
        ("FALSE", "TRUE", False, True),
        ("FALSE", "FALSE", False, False),
        ("FALSE", "gone", False, None),
        ("gone", "TRUE", None, True),
        ("gone", "FALSE", False, None),
        ("gone", "gone", None, None),
    ],
)
def test_and_and_or_know_three_values(left, right, conjunction, disjunction):
    """The tables of JMS 3.1 §3.8.1.2; pairs and longer chains run different code."""
    left, right = (word if word == "gone" else f"(i = i AND {word})" for word in (left, right))

    assert answer(f"{left} AND {right}") is conjunction
    assert answer(f"{left} OR {right}") is disjunction
    assert answer(f"TRUE AND {left} AND {right}") is conjunction
    assert answer(f"{left} OR {right} OR FALSE") is disjunction


@pytest.mark.parametrize(("word", "negated"), [("TRUE", False), ("FALSE", True), ("gone", None)])
def test_not_leaves_unknown_unknown(word, negated):
    """An absent property must not match by being negated."""
    assert answer(f"NOT {word}") is negated


@pytest.mark.parametrize(
    "text",
    [
        "gone = 1",
        "gone <> 'a'",
        "gone = gone",
        "i < gone",
        "gone + 1 > 0",
        "-gone = 1",
        "gone BETWEEN 1 AND 2",
        "gone NOT BETWEEN 1 AND 2",
        "gone IN ('a')",
        "gone NOT IN ('a')",
        "gone LIKE '%'",
        "gone NOT LIKE '%'",
        "raw = '10'",
        "raw LIKE '%'",
        "raw IN ('10')",
        "raw = raw",
        "raw",
        "i",
        "s",
        "NOT i",
    ],
)
def test_what_is_absent_is_unknown(text):
    """Bytes are no selector type and count as absent; so does a condition that is no boolean."""
    assert answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "num = 10",
        "i = '10'",
        "i <> '10'",
        "vip = 'TRUE'",
        "vip <> 1",
        "vip = 1",
        "i = vip",
        "i IN ('10')",
        "i NOT IN ('10')",
        "i LIKE '1%'",
        "i NOT LIKE '1%'",
        "s < num",
        "s <= s",
        "vip > off",
        "vip >= vip",
        "s > 9",
        "s BETWEEN 1 AND 9",
        "s NOT BETWEEN 1 AND 9",
        "5 = 'a'",
        "5 <> 'a'",
    ],
)
def test_unlike_types_compare_false_however_they_are_compared(text):
    """JMS 3.1 §3.8.1.1: false and not unknown, and false for <> and negated tests as well."""
    assert answer(text) is False
    assert answer(f"NOT ({text})") is True


@pytest.mark.parametrize(
    "text",
    [
        "5 / 2 = 2",
        "-7 / 2 = -3",
        "neg / 2 = -3",
        "neg / -2 = 3",
        "7 / neg = -1",
        "5 / 2.0 = 2.5",
        "2 + 3 * 4 = 14",
        "i - 3 - 2 = 5",
        "i / 3 * 3 = 9",
        "i--1 = 11",
        "0.1 + 0.2 <> 0.3",
        "big = 9007199254740992.0",
        "9007199254740992.0 = big",
        "big <> 9007199254740992",
        "big > 9007199254740992",
        "max = 9223372036854775808.0",
        "i = 10.0",
        "10.0 = i",
        "d > 2",
        "2 < d",
        "i >= 10.0",
        "1 / 0.0 = inf",
        "-1 / 0.0 < 0",
        "1 / -0.0 < 0",
        "inf > max",
        "1E308 * 10 = inf",
        "min = -9223372036854775808",
        "max - 1 < max",
        "-max - 1 = min",
        "round = 9007199254740993",
        "vip",
        "NOT off",
        "vip = TRUE",
        "TRUE <> off",
        "vip <> off",
        "s = 'a_b' AND 'a_b' = s",
        "s <> 'A_B'",
        "i BETWEEN 10 AND 10",
        "i NOT BETWEEN 11 AND 12.5",
        "i + 1 BETWEEN d AND max",
        "s IN ('x', 'a_b')",
        "s NOT IN ('x', 'y')",
        "gone IS NULL",
        "raw IS NULL",
        "i IS NOT NULL",
        "i NOT BETWEEN gone AND 5",
    ],
)
def test_values_follow_java(text):
    """A selector answers here what it answers in a broker of the Java world."""
    assert answer(text) is True
    assert answer(f"NOT ({text})") is False


@pytest.mark.parametrize("text", ["i BETWEEN 11 AND gone", "i IS NULL", "raw IS NOT NULL"])
def test_what_is_false_despite_an_absent_part(text):
    """BETWEEN is two comparisons joined by AND: one that fails settles it."""
    assert answer(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "i / 0 = 1",
        "i / 0 <> 1",
        "1 / 0 = 1",
        "max + 1 > 0",
        "min - 1 < 0",
        "max * 2 <> 0",
        "-min = min",
        "min / -1 > 0",
        "- -9223372036854775808 > 0",
        "s + 1 = 1",
        "vip * 2 = 2",
        "-s = 's'",
        "+s = 'a_b'",
        "+vip = vip",
    ],
)
def test_what_cannot_be_computed_is_unknown(text):
    """Division by zero and overflow must neither fail the broker nor match by a wrapped number."""
    assert answer(text) is None


@pytest.mark.parametrize("operator", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("other", ["nan", "1", "d", "inf"])
def test_not_a_number_compares_false(operator, other):
    """IEEE 754: every comparison with NaN is false, but for <>."""
    assert answer(f"nan {operator} {other}") is False
    assert answer(f"{other} {operator} nan") is False
    assert answer(f"nan <> {other}") is True


def test_not_a_number_is_in_no_range_and_outside_none():
    """NOT BETWEEN is defined by < and >, both of which are false."""
    assert answer("nan BETWEEN 1 AND 2") is False
    assert answer("nan NOT BETWEEN 1 AND 2") is False
    assert answer("0.0 / 0 = nan") is False


def test_what_does_not_depend_on_the_message_is_computed_once():
    """1 = 1 in front of a condition, as generated selectors have it, must cost nothing."""
    assert answer("1 = 1 AND 2 * 3 + 4 = 10 AND NOT FALSE", {}) is True
    assert answer("1 = 2 OR 1 / 0 = 1", {}) is None
    assert answer("i = 2 * (3 + 2)") is True
    assert answer("2 * (3 + 2) > i - 1") is True


def test_any_mapping_will_do():
    """The engine hands over a view of the header, not always a dict."""
    assert answer("$Priority > 4", MappingProxyType({"$Priority": 5})) is True


def test_the_example_of_the_manual():
    """The documented selector is the first one that anybody tries."""
    selector = Selector("Type = 'News' AND Month > 4")

    assert selector.matches({"Type": "News", "Month": 5}) is True
    assert selector.matches({"Type": "News", "Month": 4}) is False
    assert selector.matches({"Type": "News"}) is None
    assert repr(selector) == "Selector(\"Type = 'News' AND Month > 4\")"


# values of properties


class _Colour(enum.StrEnum):
    RED = "red"


class _Level(enum.IntEnum):
    HIGH = 9


class _Weight(float):
    """A number type of an application."""


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "colour IN ('red')",
        "colour LIKE 'r%'",
        "level = 9",
        "level > 8.5",
        "level + 1 = 10",
        "weight < 2",
        "weight = 1.5",
        "colour IS NOT NULL",
    ],
)
def test_subclasses_of_the_plain_types_count_as_these(text):
    """An application tests its selectors on its own values, enumerations among them."""
    row = {"colour": _Colour.RED, "level": _Level.HIGH, "weight": _Weight(1.5)}

    assert answer(text, row) is True


@pytest.mark.parametrize("value", [None, b"x", bytearray(b"x"), [1], {"a": 1}, object(), 1j])
def test_values_of_no_selector_type_count_as_absent(value):
    """Whatever a caller puts into the mapping, matching answers and never raises."""
    for text in ("a = 1", "a > 1.5", "a LIKE 'x'", "a IN ('x')", "a + 1 = 2", "a"):
        assert answer(text, {"a": value}) is None
    assert answer("a IS NULL", {"a": value}) is True


@pytest.mark.parametrize("text", ["a > 1.5", "a > 0.5 + b", "a = a", "a * 2.0 > 1", "b < a"])
def test_an_integer_beyond_every_double_does_not_fail(text):
    """float() raises for it, and a mapping that is no message may hold one."""
    assert answer(text, {"a": 10**400, "b": 0.5}) is True


def test_a_selector_of_an_older_version_is_read_as_it_was():
    """A durable subscription with one must not keep its node from booting."""
    assert Selector("TRUE = 0 OR a = 1", KEPT_LIMITS).matches({"a": 1}) is True
    assert Selector("TRUE <> 0", KEPT_LIMITS).matches({}) is False


# LIKE: wildcards, the escape character, and no pattern that takes for ever


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "others"),
    [
        ("", None, [""], ["a"]),
        ("abc", None, ["abc"], ["ab", "abcd", "ABC"]),
        ("%", None, ["", "abc"], []),
        ("%%", None, ["", "abc"], []),
        ("_", None, ["a", "\n", "\U0001f600"], ["", "ab"]),
        ("_%", None, ["a", "ab"], [""]),
        ("a%", None, ["a", "ab"], ["", "ba"]),
        ("%a", None, ["a", "ba"], ["", "ab"]),
        ("%a%", None, ["a", "bab"], ["", "b"]),
        ("a%a", None, ["aa", "aba"], ["a", "ab"]),
        ("1_3", None, ["123", "1%3"], ["13", "1234"]),
        ("%a_c%", None, ["abc", "xaacabc"], ["ac", "abbc"]),
        ("a_b", None, ["a_b", "axb"], ["ab"]),
        (r"a\_b", None, [r"a\xb"], ["a_b"]),
        (r"a\_b", "\\", ["a_b"], [r"a\xb", "axb"]),
        (r"\%%", "\\", ["%", "%a"], ["a%"]),
        ("a!!b", "!", ["a!b"], ["a!!b"]),
        ("a%%b", "%", ["a%b"], ["axb"]),
        ("a.*b[c", None, ["a.*b[c"], ["axxb[c"]),
        ("%\0!__%", "!", ["x\0_ay"], ["x\0bay"]),
    ],
)
def test_a_pattern_matches_what_it_says(pattern, escape, matching, others):
    """The backslash is an ordinary character unless ESCAPE names it."""
    matches = compile_like(pattern, escape)

    assert [text for text in (*matching, *others) if matches(text)] == matching


@pytest.mark.parametrize(("pattern", "escape"), [("a!", "!"), ("!a", "!"), ("a%b", "%")])
def test_an_escape_that_escapes_nothing_is_refused(pattern, escape):
    """SQL calls it an error; guessing would match what nobody meant."""
    with pytest.raises(SelectorSyntaxError) as caught:
        Selector(f"name LIKE '{pattern}' ESCAPE '{escape}'")

    assert caught.value.position == len("name LIKE ")


_LETTERS = st.text("ab", max_size=12)


@settings(max_examples=tries(400))
@given(st.text("ab_%", max_size=8), _LETTERS)
@example("%a_b_b%", "aababbabbb")
@example("%ab%b", "ab")
@example("%ab%ba%", "aabaa")
@example("a%a", "a")
def test_it_answers_as_a_regular_expression_would(pattern, text):
    """Two letters make the overlaps that a greedy matcher gets wrong first."""
    expression = "".join({"%": ".*", "_": "."}.get(letter, letter) for letter in pattern)

    assert compile_like(pattern, None)(text) is bool(re.fullmatch(expression, text, re.DOTALL))


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 2000 + "%b",
        "%" + "a_" * 2000 + "b%",
        "%a_" * 1500 + "b",
        "_%" * 2000 + "b",
        "%" + "_" * 4000 + "b%",
        "%" + "".join(f"{chr(0x4E00 + n)}_" for n in range(2000)) + "%",
        "%" + "a" * 4000 + "b" + "a" * 4000 + "%",
    ],
)
def test_no_pattern_is_catastrophic(pattern):
    """With backtracking each of these would run for years: the timeout is the test."""
    assert compile_like(pattern, None)("a" * 60_000) is False


def test_masks_that_are_not_kept_give_the_same_answer():
    """A pattern of many different letters would keep megabytes in each selector."""
    letters = [chr(0x4E00 + n) for n in range(1500)]
    matches = compile_like("%" + "_".join(letters) + "%", None)

    assert matches("x" + "-".join(letters) + "y")
    assert not matches("x" + "-".join(letters[:-1]) + "y")
