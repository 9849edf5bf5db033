"""A second opinion on what a selector answers: slow, and computed another way than the engine does.

Logic is Kleene's in numbers, arithmetic goes through fractions, LIKE is a regular expression.
"""

import math
import operator
from fractions import Fraction

from selector_oracle_grammar import is_bool

COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(node, row):
    """True, False or None."""
    return {1.0: True, 0.0: False, 0.5: None}[_truth(node, row)]


def _truth(node, row):
    """Kleene's logic in numbers: 1 true, 0 false, a half unknown."""
    kind = node[0]
    if kind == "or":
        return max(_truth(operand, row) for operand in node[1:])
    if kind == "and":
        return min(_truth(operand, row) for operand in node[1:])
    if kind == "negation":
        return 1.0 - _truth(node[1], row)
    if kind in ("name", "value"):
        value = _value(node, row)
        return float(value) if is_bool(value) else 0.5
    return _test(kind, node, row)


def _test(kind, node, row):
    if kind == "comparison":
        return _compared(node[1], _value(node[2], row), _value(node[3], row))
    value = _value(node[2], row)
    if kind == "null":
        return float((value is None) != node[1])
    if kind == "between":
        return _ranged(node[1], value, _value(node[3], row), _value(node[4], row))
    found = isinstance(value, str) and (
        value in node[3] if kind == "within" else bool(node[3].fullmatch(value))
    )
    return 0.5 if value is None else float(isinstance(value, str) and found != node[1])


def _ranged(is_negated, value, low, high):
    if is_negated:
        return max(_compared("<", value, low), _compared(">", value, high))
    return min(_compared(">=", value, low), _compared("<=", value, high))


def _compared(sign, left, right):
    if left is None or right is None:
        return 0.5
    if _is_number(left) and _is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
        return float(COMPARE[sign](left, right))
    return float(type(left) is type(right) and sign in ("=", "<>") and COMPARE[sign](left, right))


def _is_number(value):
    return isinstance(value, (int, float)) and not is_bool(value)


def _value(node, row):
    if node[0] == "value":
        return node[1]
    if node[0] == "name":
        value = row.get(node[1])
        return value if isinstance(value, (str, int, float)) else None
    _, sign, *operands = node
    numbers = [_value(operand, row) for operand in operands]
    if not all(map(_is_number, numbers)):
        return None
    if len(numbers) == 2:
        return _computed(sign, *numbers)
    number = numbers[0] if sign == "+" else -numbers[0]
    return number if isinstance(number, float) or number < 2**63 else None


def _computed(sign, left, right):
    if isinstance(left, float) or isinstance(right, float):
        return _doubles(sign, float(left), float(right))
    if sign == "/" and right == 0:
        return None
    exact = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: math.trunc(Fraction(left, right)),
    }[sign]()
    return exact if -(2**63) <= exact < 2**63 else None


def _doubles(sign, left, right):
    if sign != "/":
        return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)
    if right != 0.0:
        return left / right
    if left == 0.0 or left != left:  # noqa: PLR0124 (only NaN differs from itself)
        return math.nan
    return -math.inf if (left < 0) != str(right).startswith("-") else math.inf
