"""What a selector answers: three-valued logic, types, Java's arithmetic."""

import math
from types import MappingProxyType

import pytest

from hms.engine.selector import Selector

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
