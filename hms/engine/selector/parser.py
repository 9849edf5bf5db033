"""The grammar (JMS 3.1 §3.8.1.1), by operator precedence.

An expression is parsed with a floor: it takes the operators at or above that level and leaves the
rest to the caller. A condition, once complete, accepts only AND and OR behind it, so that
a = b = c is refused. Recursion is bounded by `depth_max`, the size of the result by `terms_max`.
"""

from collections.abc import Callable
from dataclasses import replace

from hms.engine.selector import operands
from hms.engine.selector.lexer import COMPARISONS, Token
from hms.engine.selector.like import compile_like
from hms.engine.selector.literals import LONG_MAX, out_of_range
from hms.engine.selector.nodes import (
    TESTS,
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
    Node,
    Not,
    Or,
    Sign,
    Value,
)
from hms.engine.selector.reader import DEFAULT_LIMITS, Reader, SelectorLimits

_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN = range(1, 8)


def parse(
    text: str, limits: SelectorLimits = DEFAULT_LIMITS
) -> tuple[Condition | None, frozenset[str]]:
    """The condition and the names it uses, None for a blank text; raises SelectorSyntaxError."""
    parser = _Parser(text, limits)
    return parser.selector(), frozenset(parser.names)


class _Parser(Reader):
    """One parse. The public methods take an operator; left is its operand, start where that is."""

    def __init__(self, text: str, limits: SelectorLimits) -> None:
        super().__init__(text, limits)
        self.names: set[str] = set()

    def selector(self) -> Condition | None:
        if self.token.kind == "end":
            return None
        start = self.token.position
        node = self._expression(_OR)
        if self.token.kind != "end":
            raise self.unexpected(operands.after(node, "the end"))
        return operands.condition(node, start)

    def _expression(self, floor: int) -> Node:
        start = self.token.position
        node = self._operand(floor)
        while True:
            level, build = _OPERATORS.get(self.token.kind, _NO_OPERATOR)
            if level < floor or (level > _AND and isinstance(node, TESTS)):
                return node
            node = build(self, node, start)

    def _operand(self, floor: int) -> Node:
        if self.token.kind == "NOT" and floor <= _NOT:
            opener = self.advance()
            start = self.token.position
            return Not(operands.condition(self._nested(opener, _NOT), start))
        if self.token.kind == "(":
            node = self._nested(self.advance(), _OR)
            self.expect(")", operands.after(node, ")"))
            return node
        if self.token.kind in ("+", "-"):
            return self._signed(self.advance())
        return self._term("a condition" if floor <= _NOT else "a value")

    def _nested(self, opener: Token, floor: int) -> Node:
        self.descend(opener)
        node = self._expression(floor)
        self.ascend()
        return node

    def _signed(self, sign: Token) -> Value:
        if self.token.kind == "number":
            return self._number(sign.kind)
        start = self.token.position
        return Sign(sign.kind, operands.number(self._nested(sign, _SIGN), start))

    def _term(self, expected: str) -> Value:
        kind = self.token.kind
        if kind == "number":
            return self._number("+")
        if kind == "string":
            return Literal(self.take_term().value)
        if kind == "name":
            return self._name()
        if kind in ("TRUE", "FALSE"):
            self.take_term()
            return Literal(kind == "TRUE")
        hint = " (IS NULL tests for absence)" if kind == "NULL" else ""
        raise self.unexpected(expected + hint)

    def _name(self) -> Name:
        name = self.take_term().text
        self.names.add(name)
        return Name(name)

    def _number(self, sign: str) -> Literal:
        token = self.take_term()
        value = token.value
        assert not isinstance(value, str), "a token of kind number"
        if sign == "-":
            return Literal(-value)
        # 2**63 is a long only behind a minus.
        if type(value) is int and value > LONG_MAX:
            raise out_of_range(token.text, "a 64-bit long", token.position)
        return Literal(value)

    def junction(self, left: Node, start: int) -> And | Or:
        kind = self.token.kind
        conditions = [operands.condition(left, start)]
        while self.token.kind == kind:
            self.advance()
            start = self.token.position
            conditions.append(operands.condition(self._expression(_FLOORS[kind]), start))
        return And(tuple(conditions)) if kind == "AND" else Or(tuple(conditions))

    def arithmetic(self, left: Node, start: int) -> Arithmetic:
        kinds = ("+", "-") if self.token.kind in ("+", "-") else ("*", "/")
        first = operands.number(left, start)
        rest = []
        while self.token.kind in kinds:
            operator = self.advance().kind
            start = self.token.position
            rest.append((operator, operands.number(self._expression(_FLOORS[operator]), start)))
        return Arithmetic(first, tuple(rest))

    def _numeric(self) -> Value:
        start = self.token.position
        return operands.number(self._expression(_SUM), start)

    def comparison(self, left: Node, start: int) -> Comparison:
        operator = self.advance().kind
        check = operands.comparable if operator in ("=", "<>") else operands.number
        checked = check(left, start)
        start = self.token.position
        right = check(self._expression(_SUM), start)
        if not self._limits.may_mix:
            operands.alike(checked, right, start)
        return Comparison(operator, checked, right)

    def negated(self, left: Node, start: int) -> Between | In | Like:
        self.advance()
        build = _NEGATABLE.get(self.token.kind)
        if build is None:
            raise self.unexpected("BETWEEN, IN or LIKE")
        return replace(build(self, left, start), is_negated=True)

    def between(self, left: Node, start: int) -> Between:
        value = operands.number(left, start)
        self.advance()
        low = self._numeric()
        self.expect("AND", "AND and the upper bound")
        return Between(value, low, self._numeric(), is_negated=False)

    def membership(self, left: Node, start: int) -> In:
        name = operands.name(left, start)
        self.advance()
        self.expect("(", "( and a list of strings")
        values = [self.take_string("a string")]
        while self.token.kind == ",":
            self.advance()
            values.append(self.take_string("a string"))
        self.expect(")", ", or )")
        return In(name, tuple(values), is_negated=False)

    def likeness(self, left: Node, start: int) -> Like:
        name = operands.name(left, start)
        self.advance()
        pattern_at = self.token.position
        pattern = self.take_string("a pattern as a string")
        escape = self._escape()
        try:
            compile_like(pattern, escape)
        except ValueError as fault:
            expected = "the escape character before %, _ or itself only"
            raise operands.mismatch(str(fault), pattern_at, expected) from None
        self.count_like(pattern_at)
        return Like(name, pattern, escape, is_negated=False)

    def _escape(self) -> str | None:
        if self.token.kind != "ESCAPE":
            return None
        self.advance()
        token = self.token
        escape = self.take_string("a string of one character")
        if len(escape) != 1:
            raise operands.mismatch(str(token), token.position, "a string of one character")
        return escape

    def absence(self, left: Node, start: int) -> IsNull:
        name = operands.name(left, start)
        self.advance()
        is_negated = self.token.kind == "NOT"
        if is_negated:
            self.advance()
        self.expect("NULL", "NULL" if is_negated else "NULL or NOT NULL")
        return IsNull(name, is_negated)


_Build = Callable[[_Parser, Node, int], Node]
_OPERATORS: dict[str, tuple[int, _Build]] = {
    "OR": (_OR, _Parser.junction),
    "AND": (_AND, _Parser.junction),
    **dict.fromkeys(COMPARISONS, (_TEST, _Parser.comparison)),
    "NOT": (_TEST, _Parser.negated),
    "BETWEEN": (_TEST, _Parser.between),
    "IN": (_TEST, _Parser.membership),
    "LIKE": (_TEST, _Parser.likeness),
    "IS": (_TEST, _Parser.absence),
    "+": (_SUM, _Parser.arithmetic),
    "-": (_SUM, _Parser.arithmetic),
    "*": (_PRODUCT, _Parser.arithmetic),
    "/": (_PRODUCT, _Parser.arithmetic),
}
_NO_OPERATOR: tuple[int, _Build] = (_OR - 1, _Parser.junction)  # below every floor: never built
_FLOORS = {kind: level + 1 for kind, (level, _) in _OPERATORS.items()}
"""The floor of a right operand: what binds closer than the operator itself."""
_NEGATABLE: dict[str, Callable[[_Parser, Node, int], Between | In | Like]] = {
    "BETWEEN": _Parser.between,
    "IN": _Parser.membership,
    "LIKE": _Parser.likeness,
}
