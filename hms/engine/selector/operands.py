"""Which operand may stand where: what can never be meant is refused when the selector is parsed.

A name may be anything, since only the message tells its type; what turns out to be of the wrong
type then makes the comparison false (JMS 3.1 §3.8.1.1).
"""

from typing import cast

from hms.engine.selector.literals import shorten
from hms.engine.selector.nodes import TESTS, Condition, Literal, Name, Node, Value
from hms.errors.catalogue import SelectorSyntaxError


def condition(node: Node, position: int) -> Condition:
    """What AND, OR, NOT and the selector itself take."""
    is_boolean = isinstance(node, Literal) and type(node.value) is bool
    if isinstance(node, (*TESTS, Name)) or is_boolean:
        return cast("Condition", node)
    raise mismatch(_describe(node), position, "a condition")


def number(node: Node, position: int) -> Value:
    """What arithmetic, BETWEEN and < <= > >= take."""
    is_other = isinstance(node, Literal) and type(node.value) in (str, bool)
    if isinstance(node, TESTS) or is_other:
        raise mismatch(_describe(node), position, "a number")
    return node


def comparable(node: Node, position: int) -> Value:
    """What = and <> take: any value, but no condition."""
    if isinstance(node, TESTS):
        raise mismatch(_describe(node), position, "a value")
    return node


def alike(left: Value, right: Value, position: int) -> None:
    """A boolean literal is compared with what can be one, not with a number."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Literal) and type(one.value) is bool and _is_number(other):
            raise mismatch(_describe(right), position, "a boolean" if one is left else "a number")


def _is_number(node: Value) -> bool:
    if isinstance(node, Literal):
        return type(node.value) in (int, float)
    return not isinstance(node, Name)


def name(node: Node, position: int) -> Name:
    """What LIKE, IN and IS NULL take."""
    if isinstance(node, Name):
        return node
    raise mismatch(_describe(node), position, "a name")


def mismatch(found: str, position: int, expected: str) -> SelectorSyntaxError:
    """The error that every fault of grammar has."""
    return SelectorSyntaxError(position=position, detail=f"found {found}, expected {expected}")


def after(node: Node, closing: str) -> str:
    """What may follow a complete node, for an error text."""
    return f"{'AND, OR' if isinstance(node, TESTS) else 'an operator'} or {closing}"


def _describe(node: Node) -> str:
    if isinstance(node, Name):
        return shorten(node.name)
    if not isinstance(node, Literal):
        return "a condition" if isinstance(node, TESTS) else "an arithmetic expression"
    if isinstance(node.value, str):
        return f"the string {shorten(repr(node.value))}"
    return str(node.value).upper() if type(node.value) is bool else f"the number {node.value}"
