"""Which values of a property a selector sees, and as what."""

import enum

import pytest

from hms.engine.selector import KEPT_LIMITS, Selector


def answer(text, row):
    """What a selector says of a message with these properties."""
    return Selector(text).matches(row)


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
