"""The pieces a compiled selector is made of: functions of one message's properties.

A test answers True, False or None for unknown. A name compared with a literal is one closure that
looks first for a value of the literal's own type, which is nearly always what it finds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hms.engine.selector.nodes import Scalar
from hms.engine.selector.values import Holds, Operation, compare, plain, to_double

Properties: TypeAlias = Mapping[str, object]
ValueOf: TypeAlias = Callable[[Properties], Scalar | None]
Test: TypeAlias = Callable[[Properties], bool | None]


def property_value(name: str) -> ValueOf:
    """The value of a property, None when it is absent."""
    return lambda properties: plain(properties.get(name))


def property_truth(name: str) -> Test:
    """A boolean property as a condition; unknown when it is absent or no boolean."""

    def run(properties: Properties) -> bool | None:
        value = properties.get(name)
        return value if type(value) is bool else None

    return run


def absence(name: str, *, is_negated: bool) -> Test:
    """IS NULL, or IS NOT NULL."""
    return lambda properties: (plain(properties.get(name)) is None) is not is_negated


def literal_comparison(holds: Holds, name: str, literal: Scalar) -> Test:
    """A property compared with a literal."""
    if type(literal) is int:
        return _long_comparison(holds, name, literal)
    kind = type(literal)

    def run(properties: Properties) -> bool | None:
        value = properties.get(name)
        if type(value) is kind:
            return holds(value, literal)
        return compare(holds, plain(value), literal)

    return run


def _long_comparison(holds: Holds, name: str, literal: int) -> Test:
    double = to_double(literal)

    def run(properties: Properties) -> bool | None:
        value = properties.get(name)
        if type(value) is int:
            return holds(value, literal)
        if type(value) is float:
            return holds(value, double)
        return compare(holds, plain(value), literal)

    return run


def comparison(holds: Holds, left: ValueOf, right: ValueOf) -> Test:
    """Any two values compared."""
    return lambda properties: compare(holds, left(properties), right(properties))


def string_test(name: str, test: Callable[[str], bool], *, is_negated: bool) -> Test:
    """LIKE and IN: absent is unknown; what is no string is false, also when negated."""

    def run(properties: Properties) -> bool | None:
        value = properties.get(name)
        if type(value) is not str:
            value = plain(value)
        if type(value) is str:
            return test(value) is not is_negated
        return None if value is None else False

    return run


def arithmetic(first: ValueOf, steps: Sequence[tuple[Operation, ValueOf]]) -> ValueOf:
    """Operations applied from left to right."""

    def run(properties: Properties) -> Scalar | None:
        result = first(properties)
        for operation, operand in steps:
            result = operation(result, operand(properties))
        return result

    return run


def signed(change: Callable[[Scalar | None], Scalar | None], operand: ValueOf) -> ValueOf:
    """A unary plus or minus."""
    return lambda properties: change(operand(properties))


def negation(test: Test) -> Test:
    """NOT: unknown stays unknown."""

    def run(properties: Properties) -> bool | None:
        answer = test(properties)
        return None if answer is None else not answer

    return run


def all_of(tests: Sequence[Test]) -> Test:
    """AND: false if one is false, else unknown if one is unknown."""
    return _both(*tests) if len(tests) == 2 else _settled_by(tests, decisive=False)  # noqa: PLR2004 (a pair)


def any_of(tests: Sequence[Test]) -> Test:
    """OR: true if one is true, else unknown if one is unknown."""
    return _settled_by(tests, decisive=True)


def _both(left: Test, right: Test) -> Test:
    """The commonest condition, a third faster than the loop."""

    def run(properties: Properties) -> bool | None:
        first = left(properties)
        if first is False:
            return False
        second = right(properties)
        return second if first or second is False else None

    return run


def _settled_by(tests: Sequence[Test], *, decisive: bool) -> Test:
    def run(properties: Properties) -> bool | None:
        answer: bool | None = not decisive
        for test in tests:
            found = test(properties)
            if found is decisive:
                return decisive
            if found is None:
                answer = None
        return answer

    return run
