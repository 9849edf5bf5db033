"""A second opinion on what a selector is: a grammar for lark, written from the text of JMS alone.

Nothing here comes from the selector package. selector_oracle evaluates what this reads.
"""

import math
import re
import struct

import lark

GRAMMAR = r"""
    start: disjunction
    disjunction: conjunction (_OR conjunction)*
    conjunction: negation (_AND negation)*
    negation: NOT negation | test
    ?test: sum
        | sum (EQUAL | ORDER) sum                       -> comparison
        | sum [NOT] _BETWEEN sum _AND sum               -> between
        | sum [NOT] _IN "(" STRING ("," STRING)* ")"    -> within
        | sum [NOT] _LIKE STRING [_ESCAPE STRING]       -> like
        | sum _IS [NOT] _NULL                           -> null
    ?sum: product ((PLUS | MINUS) product)*                -> chain
    ?product: factor ((TIMES | OVER) factor)*              -> chain
    ?factor: number | other
    ?other: (PLUS | MINUS) (HEX | OCTAL | DECIMAL | FLOAT | EXPONENT)  -> signed_number
        | (PLUS | MINUS) other                          -> sign
        | "(" disjunction ")"
        | STRING                                        -> string
        | (TRUE | FALSE)                                -> boolean
        | NAME                                          -> name
    number: HEX | OCTAL | DECIMAL | FLOAT | EXPONENT

    EQUAL.2: "=" | "<>"
    ORDER: "<=" | ">=" | "<" | ">"
    PLUS: "+"
    MINUS: "-"
    TIMES: "*"
    OVER: "/"
    _OR.2: /or(?![\w$])/i
    _AND.2: /and(?![\w$])/i
    NOT.2: /not(?![\w$])/i
    _BETWEEN.2: /between(?![\w$])/i
    _IN.2: /in(?![\w$])/i
    _LIKE.2: /like(?![\w$])/i
    _ESCAPE.2: /escape(?![\w$])/i
    _IS.2: /is(?![\w$])/i
    _NULL.2: /null(?![\w$])/i
    TRUE.2: /true(?![\w$])/i
    FALSE.2: /false(?![\w$])/i
    NAME: /[^\W\d][\w$]*|\$[\w$]*/
    STRING: /'([^']|'')*'(?!')/
    FLOAT.3: /([0-9]+\.[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?[df]?(?![\w$])/i
    EXPONENT.3: /[0-9]+(e[+-]?[0-9]+[df]?|[df])(?![\w$])/i
    HEX.4: /0x[0-9a-f]+l?(?![\w$])/i
    OCTAL.2: /0[0-7]+l?(?![\w$])/i
    DECIMAL.1: /(0|[1-9][0-9]*)l?(?![\w$])/i
    %ignore /[ \t\f\r\n]+/
"""

PARSER = lark.Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True)

TESTS = {"comparison", "between", "within", "like", "null", "negation", "and", "or"}


class RefusedError(Exception):
    """The oracle does not take this selector."""


def read(text):
    """The text as nested tuples, checked; raises RefusedError."""
    try:
        return _Reader().transform(PARSER.parse(text))
    except lark.exceptions.LarkError as fault:
        raise RefusedError from fault


def _need(is_right):
    if not is_right:
        raise RefusedError


def _is_condition(node):
    return node[0] in TESTS or node[0] == "name" or (node[0] == "value" and is_bool(node[1]))


def is_bool(value):
    return isinstance(value, bool)


def _is_boolean(node):
    return node[0] == "value" and is_bool(node[1])


def _may_be_boolean(node):
    """A name, a boolean or a string; no number."""
    return node[0] == "name" or (node[0] == "value" and isinstance(node[1], (str, bool)))


def _need_numbers(*nodes):
    for node in nodes:
        _need(node[0] not in TESTS)
        _need(node[0] != "value" or not isinstance(node[1], (str, bool)))


class _Reader(lark.Transformer):
    """Folds lark's tree into tuples, one rule a method."""

    def start(self, items):
        _need(_is_condition(items[0]))
        return items[0]

    def disjunction(self, items):
        return self._chain("or", items)

    def conjunction(self, items):
        return self._chain("and", items)

    def _chain(self, kind, items):
        if len(items) > 1:
            _need(all(map(_is_condition, items)))
            return (kind, *items)
        return items[0]

    def negation(self, items):
        if len(items) == 1:
            return items[0]
        _need(_is_condition(items[1]))
        return ("negation", items[1])

    def comparison(self, items):
        left, sign, right = items
        if sign in ("=", "<>"):
            _need(left[0] not in TESTS and right[0] not in TESTS)
            _need(not _is_boolean(left) or _may_be_boolean(right))
            _need(not _is_boolean(right) or _may_be_boolean(left))
        else:
            _need_numbers(left, right)
        return ("comparison", str(sign), left, right)

    def between(self, items):
        value, negated, low, high = items
        _need_numbers(value, low, high)
        return ("between", bool(negated), value, low, high)

    def within(self, items):
        name, negated, *strings = items
        _need(name[0] == "name")
        return ("within", bool(negated), name, [_unquoted(string) for string in strings])

    def like(self, items):
        name, negated, pattern, escape = items
        _need(name[0] == "name")
        escape = None if escape is None else _unquoted(escape)
        _need(escape is None or len(escape) == 1)
        return ("like", bool(negated), name, _expression(_unquoted(pattern), escape))

    def null(self, items):
        _need(items[0][0] == "name")
        return ("null", bool(items[1]), items[0])

    def chain(self, items):
        left, *rest = items
        for sign, right in zip(rest[::2], rest[1::2], strict=True):
            _need_numbers(left, right)
            left = ("arithmetic", str(sign), left, right)
        return left

    def sign(self, items):
        _need_numbers(items[1])
        return ("arithmetic", str(items[0]), items[1])

    def signed_number(self, items):
        value = _number(items[1])
        value = -value if items[0] == "-" else value
        _need(isinstance(value, float) or -(2**63) <= value < 2**63)
        return ("value", value)

    def number(self, items):
        value = _number(items[0])
        _need(isinstance(value, float) or value < 2**63)
        return ("value", value)

    def string(self, items):
        return ("value", _unquoted(items[0]))

    def boolean(self, items):
        return ("value", items[0].lower() == "true")

    def name(self, items):
        return ("name", str(items[0]))


def _unquoted(token):
    return token[1:-1].replace("''", "'")


def _number(token):
    text = token.lower()
    if token.type in ("FLOAT", "EXPONENT"):
        value = float(text.rstrip("df"))
        _need(math.isfinite(value))
        return _single(value) if text.endswith("f") else value
    digits = text.rstrip("l")
    return int(digits, {"HEX": 16, "OCTAL": 8, "DECIMAL": 10}[token.type])


def _single(value):
    try:
        return struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        raise RefusedError from None


def _expression(pattern, escape):
    expression, index = "", 0
    while index < len(pattern):
        letter = pattern[index]
        if letter == escape:
            index += 1
            _need(index < len(pattern) and pattern[index] in ("%", "_", escape))
            expression += re.escape(pattern[index])
        else:
            expression += {"%": "(.*)", "_": "(.)"}.get(letter) or re.escape(letter)
        index += 1
    return re.compile(expression, re.DOTALL)
