"""Values while a selector is evaluated: what counts as one, and Java's arithmetic and comparisons.

A value is exactly an int (a 64-bit long), a float (a double), a str or a bool; None is unknown, and
what is computed from it is unknown too. Nothing in here raises: a message's properties are the
sender's, and one that cannot be computed with makes the condition unknown, not the broker fail.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from hms.engine.selector.literals import LONG_MAX, LONG_MIN
from hms.engine.selector.nodes import Scalar

Operation = Callable[[Scalar | None, Scalar | None], Scalar | None]
Holds = Callable[[Any, Any], bool]

COMPARISONS: dict[str, Holds] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_NUMBERS = frozenset((int, float))
_PLAIN = frozenset((bool, int, float, str))


def plain(value: object) -> Scalar | None:
    """The value of a property; None for what a selector does not see, such as bytes."""
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # just looked at
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return str.__str__(value) if isinstance(value, str) else None


def compare(holds: Holds, left: Scalar | None, right: Scalar | None) -> bool | None:
    """One of COMPARISONS, applied by JMS 3.1 §3.8.1.1: unlike types are false, never an error.

    Strings and booleans know = and <> only. A long meets a double as a double.
    """
    if left is None or right is None:
        return None
    if type(left) is type(right):
        is_comparable = type(left) in _NUMBERS or holds in (operator.eq, operator.ne)
        return is_comparable and holds(left, right)
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return holds(to_double(left), to_double(right))
    return False


def to_double(number: Scalar) -> float:
    """A number as a double; infinity when no double is that large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf  # type: ignore[operator]  # an int then


def negate(value: Scalar | None) -> Scalar | None:
    """Unary minus; unknown for what is no number and for the one long without a counterpart."""
    if type(value) is int:
        return _long(-value)
    return -value if type(value) is float else None


def affirm(value: Scalar | None) -> Scalar | None:
    """Unary plus; unknown for what is no number."""
    return value if type(value) in _NUMBERS else None


def _long(value: int | None) -> int | None:
    """Unknown beyond 64 bits: a silently wrapped number would match messages it must not."""
    return value if value is not None and LONG_MIN <= value <= LONG_MAX else None


def _divide_longs(left: int, right: int) -> int | None:
    """Truncated toward zero as in Java; unknown when divided by zero."""
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_doubles(left: float, right: float) -> float:
    """IEEE 754: divided by zero is infinite, or not a number."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _promoted(
    on_longs: Callable[[int, int], int | None], on_doubles: Callable[[float, float], float]
) -> Operation:
    """An operation by Java's numeric promotion: two longs stay long, a double makes both double."""

    def apply(left: Scalar | None, right: Scalar | None) -> Scalar | None:
        if type(left) is int and type(right) is int:
            return _long(on_longs(left, right))
        if left is None or right is None or not {type(left), type(right)} <= _NUMBERS:
            return None
        return on_doubles(to_double(left), to_double(right))

    return apply


OPERATIONS: dict[str, Operation] = {
    "+": _promoted(operator.add, operator.add),
    "-": _promoted(operator.sub, operator.sub),
    "*": _promoted(operator.mul, operator.mul),
    "/": _promoted(_divide_longs, _divide_doubles),
}
