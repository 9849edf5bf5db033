"""LIKE: wildcards, the escape character, and no pattern that takes for ever."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hms.engine.selector import Selector
from hms.engine.selector.like import compile_like
from hms.errors.catalogue import SelectorSyntaxError


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


@settings(max_examples=400, deadline=None)
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
