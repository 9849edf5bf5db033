"""The parsed selector: immutable nodes, for the compiler here and for translation to other engines.

    condition   Or, And, Not, Comparison, Between, In, Like, IsNull;
                also a Name or a boolean Literal, which then is tested for being true
    value       Literal, Name, Sign, Arithmetic

Chains of AND, of OR, of + and -, of * and / are flat, so that a long selector is wide and not deep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a string, a long, a double or a boolean, told apart by its Python type."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Name:
    """A property or header field of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A unary + or - before anything but a number; signed numbers are literals."""

    operator: str
    operand: Value


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """first, then each (operator, value) of one precedence, applied from left to right."""

    first: Value
    rest: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values compared by one of = <> < <= > >=."""

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Between:
    """value [NOT] BETWEEN low AND high, both bounds included."""

    value: Value
    low: Value
    high: Value
    is_negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """name [NOT] IN ('a', 'b')."""

    name: Name
    values: tuple[str, ...]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """name [NOT] LIKE 'pattern' [ESCAPE 'c']."""

    name: Name
    pattern: str
    escape: str | None
    is_negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """name IS [NOT] NULL."""

    name: Name
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """NOT condition."""

    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conditions joined by AND."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more conditions joined by OR."""

    operands: tuple[Condition, ...]


Value: TypeAlias = Literal | Name | Sign | Arithmetic
Test: TypeAlias = Comparison | Between | In | Like | IsNull | Not | And | Or
Condition: TypeAlias = Test | Name | Literal
Node: TypeAlias = Value | Test

TESTS = (Comparison, Between, In, Like, IsNull, Not, And, Or)
"""What is a condition by its form; a Name or a Literal is one only by its value."""
