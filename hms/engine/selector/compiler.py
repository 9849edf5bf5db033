"""From nodes to closures: what does not depend on a message is computed once, here.

BETWEEN is compiled as the two comparisons that JMS defines it by; JMS 3.1 §3.8.1.1.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from hms.engine.selector import closures
from hms.engine.selector.closures import Properties, Test, ValueOf
from hms.engine.selector.like import compile_like
from hms.engine.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    Scalar,
    Sign,
    Value,
)
from hms.engine.selector.values import COMPARISONS, OPERATIONS, affirm, negate

_Run = TypeVar("_Run", bound=Callable[[Properties], Scalar | None])

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NO_PROPERTIES: Mapping[str, object] = {}


class _Code(NamedTuple, Generic[_Run]):
    """A compiled node, and whether it answers the same for every message."""

    run: _Run
    is_constant: bool = False


_TestCode: TypeAlias = _Code[Test]
_ValueCode: TypeAlias = _Code[ValueOf]


def compile_selector(condition: Condition | None) -> Test:
    """The test for a parsed selector; none matches every message."""
    return (lambda _: True) if condition is None else _condition(condition).run


def _condition(node: Condition) -> _TestCode:
    return _CONDITIONS[type(node)](node)


def _value(node: Value) -> _ValueCode:
    return _VALUES[type(node)](node)


def _folded(run: Any, *parts: _Code[Any]) -> _Code[Any]:
    """The code itself, or its one answer when all its parts are constant."""
    return _constant(run(_NO_PROPERTIES)) if all(part.is_constant for part in parts) else _Code(run)


def _constant(answer: Scalar | None) -> _Code[Any]:
    return _Code(lambda _: answer, is_constant=True)


def _arithmetic(node: Arithmetic) -> _ValueCode:
    first = _value(node.first)
    rest = [(OPERATIONS[operator], _value(operand)) for operator, operand in node.rest]
    steps = [(operation, operand.run) for operation, operand in rest]
    return _folded(closures.arithmetic(first.run, steps), first, *(code for _, code in rest))


def _sign(node: Sign) -> _ValueCode:
    operand = _value(node.operand)
    return _folded(
        closures.signed(negate if node.operator == "-" else affirm, operand.run), operand
    )


def _comparison(node: Comparison) -> _TestCode:
    left, right, operator = node.left, node.right, node.operator
    if isinstance(right, Name) and not isinstance(left, Name):
        left, right, operator = right, left, _FLIPPED[operator]
    holds = COMPARISONS[operator]
    one, other = _value(left), _value(right)
    literal = other.run(_NO_PROPERTIES) if other.is_constant else None
    if isinstance(left, Name) and literal is not None:
        return _Code(closures.literal_comparison(holds, left.name, literal))
    return _folded(closures.comparison(holds, one.run, other.run), one, other)


def _between(node: Between) -> _TestCode:
    low, high = ("<", ">") if node.is_negated else (">=", "<=")
    bounds = Comparison(low, node.value, node.low), Comparison(high, node.value, node.high)
    return _condition(Or(bounds) if node.is_negated else And(bounds))


def _in(node: In) -> _TestCode:
    contains = frozenset(node.values).__contains__
    return _Code(closures.string_test(node.name.name, contains, is_negated=node.is_negated))


def _like(node: Like) -> _TestCode:
    matches = compile_like(node.pattern, node.escape)
    return _Code(closures.string_test(node.name.name, matches, is_negated=node.is_negated))


def _is_null(node: IsNull) -> _TestCode:
    return _Code(closures.absence(node.name.name, is_negated=node.is_negated))


def _not(node: Not) -> _TestCode:
    operand = _condition(node.operand)
    return _folded(closures.negation(operand.run), operand)


def _and(node: And) -> _TestCode:
    codes = [_condition(operand) for operand in node.operands]
    return _folded(closures.all_of([code.run for code in codes]), *codes)


def _or(node: Or) -> _TestCode:
    codes = [_condition(operand) for operand in node.operands]
    return _folded(closures.any_of([code.run for code in codes]), *codes)


_VALUES: dict[type[Value], Callable[[Any], _ValueCode]] = {
    Literal: lambda node: _constant(node.value),
    Name: lambda node: _Code(closures.property_value(node.name)),
    Arithmetic: _arithmetic,
    Sign: _sign,
}
_CONDITIONS: dict[type[Condition], Callable[[Any], _TestCode]] = {
    Literal: lambda node: _constant(node.value),
    Name: lambda node: _Code(closures.property_truth(node.name)),
    Comparison: _comparison,
    Between: _between,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Not: _not,
    And: _and,
    Or: _or,
}
