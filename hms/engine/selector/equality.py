"""What a message must equal for a selector to be true: the key under which an index finds it."""

from hms.engine.selector.nodes import And, Comparison, Condition, In, Literal, Name, Scalar

EXACT_MAX = 2**53
"""Beyond it a long and a double may be equal for a selector and not for Python."""


def equality_of(condition: Condition | None) -> tuple[str, tuple[Scalar, ...]] | None:
    """A property, and the values of which it must have one, or nothing that is so simple."""
    if isinstance(condition, And):
        found = (equality_of(operand) for operand in condition.operands)
        return next((one for one in found if one is not None), None)
    if isinstance(condition, In) and not condition.is_negated:
        return condition.name.name, condition.values
    if isinstance(condition, Comparison) and condition.operator == "=":
        return _compared(condition)
    return None


def _compared(condition: Comparison) -> tuple[str, tuple[Scalar, ...]] | None:
    name, literal = condition.left, condition.right
    if isinstance(literal, Name):
        name, literal = literal, name
    if not isinstance(name, Name) or not isinstance(literal, Literal):
        return None
    value = literal.value
    if not isinstance(value, str) and abs(value) >= EXACT_MAX:
        return None
    return name.name, (value,)
