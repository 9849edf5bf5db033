"""The grammar of message selectors: what is accepted, as which nodes; what is refused, with which
words, at which place, beyond which limits."""

import pickle
import sys
import threading

import pytest

from hms.engine.selector import Selector
from hms.engine.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Sign,
)
from hms.engine.selector.reader import SelectorLimits
from hms.errors.catalogue import SelectorSyntaxError

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a", A),
        ("TRUE", Literal(value=True)),
        ("false", Literal(value=False)),
        ("a = 'it''s'", Comparison("=", A, Literal("it's"))),
        ("a <> ''", Comparison("<>", A, Literal(""))),
        ("a = true", Comparison("=", A, Literal(value=True))),
        ("a<b", Comparison("<", A, B)),
        ("a <= b", Comparison("<=", A, B)),
        ("a > b", Comparison(">", A, B)),
        ("a>=b", Comparison(">=", A, B)),
        ("a = b + c", Comparison("=", A, Arithmetic(B, (("+", C),)))),
        ("a = b--1", Comparison("=", A, Arithmetic(B, (("-", Literal(-1)),)))),
        ("a = -b", Comparison("=", A, Sign("-", B))),
        ("a = + b", Comparison("=", A, Sign("+", B))),
        ("a = -(1)", Comparison("=", A, Sign("-", Literal(1)))),
        ("a between 1 and 2", Between(A, Literal(1), Literal(2), is_negated=False)),
        ("a NOT BETWEEN b AND c", Between(A, B, C, is_negated=True)),
        ("a IN ('x')", In(A, ("x",), is_negated=False)),
        ("a not in ('x', 'y' ,'x')", In(A, ("x", "y", "x"), is_negated=True)),
        ("(a) LIKE 'x%'", Like(A, "x%", None, is_negated=False)),
        ("a NOT LIKE 'x!_' ESCAPE '!'", Like(A, "x!_", "!", is_negated=True)),
        ("a IS NULL", IsNull(A, is_negated=False)),
        ("a is not null", IsNull(A, is_negated=True)),
        ("NOT a", Not(A)),
        ("((a))", A),
        ("a\n\t\r\f AND b", And((A, B))),
    ],
)
def test_each_form_becomes_its_node(text, condition):
    """The nodes are what a translation to Spark columns reads; their shape is a contract."""
    assert Selector(text).condition == condition


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a = b", "NOT (a = b)"),
        ("NOT a BETWEEN b AND c OR a", "(NOT (a BETWEEN b AND c)) OR a"),
        ("a BETWEEN b AND c AND a", "(a BETWEEN b AND c) AND a"),
        ("a + b * c > a", "(a + (b * c)) > a"),
        ("a - b - c = a", "((a - b) - c) = a"),
        ("-a * b = c", "(-a) * b = c"),
        ("a / b * c = a", "(a / b) * c = a"),
        ("a OR b OR c", "(a OR b) OR c"),
    ],
)
def test_precedence_and_order_are_those_of_sql(text, same):
    """JMS 3.1 §3.8.1.1 fixes both; a wrong one matches other messages without any error."""
    one, other = Selector(text), Selector(same)

    rows = [dict(zip("abc", row, strict=True)) for row in _cube((True, False, 1, 2, 3.5))]
    assert [one.matches(row) for row in rows] == [other.matches(row) for row in rows]


def _cube(values):
    return [(a, b, c) for a in values for b in values for c in values]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("42L", 42),
        ("0x2A", 42),
        ("0X2al", 42),
        ("052", 42),
        ("00", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0x7fffffffffffffff", 2**63 - 1),
        ("7.", 7.0),
        (".5", 0.5),
        ("1E3", 1000.0),
        ("1.5e-3", 0.0015),
        ("09.5", 9.5),
        ("7D", 7.0),
        ("7F", 7.0),
        ("0.1d", 0.1),
        ("0.1F", 0.10000000149011612),
        ("- 5", -5),
        ("+5", 5),
    ],
)
def test_numbers_are_read_as_java_reads_them(literal, value):
    """A client written in Java must be able to send its selectors here unchanged."""
    condition = Selector(f"a = {literal}").condition

    assert condition == Comparison("=", A, Literal(value))
    assert type(condition.right.value) is type(value)


@pytest.mark.parametrize(
    "name", ["a", "_", "$Priority", "a$b", "höhe", "价格", "in_", "ORDER", "x1"]
)
def test_a_name_is_a_java_identifier(name):
    """Reserved properties begin with a dollar sign; names of users come in any script."""
    assert Selector(f"{name} = 1").names == {name}


def test_names_differ_by_case_and_keywords_do_not():
    """Properties are case-sensitive while SQL words are not (JMS 3.1 §3.8.1.1)."""
    selector = Selector("Type = 'x' oR type Is NoT nUlL")

    assert selector.names == {"Type", "type"}
    assert selector.matches({"TYPE": "x"}) is None


def test_only_ascii_letters_make_a_keyword():
    """The capital of the Turkish dotless i is I: a name must not become IN by it."""
    assert Selector("\u0131n = 1").names == {"\u0131n"}


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_a_blank_selector_matches_everything(text):
    """JMS 3.1 §3.8.1: an empty selector is no selector."""
    selector = Selector(text)

    assert selector.matches({}) is True
    assert selector.condition is None
    assert selector.names == frozenset()


def test_nodes_can_be_hashed_and_a_selector_pickled():
    """Spark sends selectors to its workers; equal conditions share one compiled selector."""
    selector = Selector("a IN ('x', 'y') AND b BETWEEN 1 AND 2")
    copy = pickle.loads(pickle.dumps(selector))

    assert hash(copy.condition) == hash(selector.condition)
    assert (copy.text, copy.names, copy.condition) == (
        selector.text,
        selector.names,
        selector.condition,
    )
    assert copy.matches({"a": "x", "b": 1}) is True


# faults


def refused(text, limits=None):
    """The error that a selector is refused with."""
    with pytest.raises(SelectorSyntaxError) as caught:
        Selector(text, limits) if limits else Selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "detail"),
    [
        ("5", 0, "found the number 5, expected a condition"),
        ("'a'", 0, "found the string 'a', expected a condition"),
        ("a + 1", 0, "found an arithmetic expression, expected a condition"),
        ("a AND 5", 6, "found the number 5, expected a condition"),
        ("NOT 5", 4, "found the number 5, expected a condition"),
        ("a = b = c", 6, "found =, expected AND, OR or the end"),
        ("(a = b) = TRUE", 8, "found =, expected AND, OR or the end"),
        ("a = (b = c)", 4, "found a condition, expected a value"),
        ("a = NOT b", 4, "found NOT, expected a value"),
        ("a < 'b'", 4, "found the string 'b', expected a number"),
        ("'b' < a", 0, "found the string 'b', expected a number"),
        ("TRUE = 0", 7, "found the number 0, expected a boolean"),
        ("1.5 <> FALSE", 7, "found FALSE, expected a number"),
        ("TRUE = a + 1", 7, "found an arithmetic expression, expected a boolean"),
        ("-a = FALSE", 5, "found FALSE, expected a number"),
        ("a > FALSE", 4, "found FALSE, expected a number"),
        ("1 + 'a' = b", 4, "found the string 'a', expected a number"),
        ("-TRUE = b", 1, "found TRUE, expected a number"),
        ("a BETWEEN 'a' AND 'b'", 10, "found the string 'a', expected a number"),
        ("a BETWEEN 1 OR 2", 12, "found OR, expected AND and the upper bound"),
        ("a NOT b", 6, "found b, expected BETWEEN, IN or LIKE"),
        ("a IN ()", 6, "found ), expected a string"),
        ("a IN (1)", 6, "found 1, expected a string"),
        ("a IN 'x'", 5, "found 'x', expected ( and a list of strings"),
        ("a IN ('x' 'y')", 10, "found 'y', expected , or )"),
        ("5 IN ('x')", 0, "found the number 5, expected a name"),
        ("a + 1 IN ('x')", 0, "found an arithmetic expression, expected a name"),
        ("a LIKE b", 7, "found b, expected a pattern as a string"),
        ("a LIKE 'x' ESCAPE 'yz'", 18, "found 'yz', expected a string of one character"),
        ("a LIKE 'x' ESCAPE ''", 18, "found '', expected a string of one character"),
        ("a IS TRUE", 5, "found TRUE, expected NULL or NOT NULL"),
        ("a IS NOT 1", 9, "found 1, expected NULL"),
        ("a = NULL", 4, "found NULL, expected a value (IS NULL tests for absence)"),
        ("a AND", 5, "found the end, expected a condition"),
        ("a =", 3, "found the end, expected a value"),
        ("(a", 2, "found the end, expected an operator or )"),
        ("(a = 1 b", 7, "found b, expected AND, OR or )"),
        ("a b", 2, "found b, expected an operator or the end"),
        ("a)", 1, "found ), expected an operator or the end"),
        ("a == 1", 3, "found =, expected a value"),
        ("a != 1", 2, "found '!', expected a name, a value or an operator; unequal is <>"),
        (
            "a % 2 = 1",
            2,
            "found '%', expected a name, a value or an operator; there is no remainder",
        ),
        ("a.b = 1", 1, "found '.', expected a name, a value or an operator"),
        ("a\u00a0= 1", 1, "found '\\xa0', expected a name, a value or an operator"),
        ("a = 'b", 4, "found a string without its end, expected a closing '"),
        ("a = 'b''", 4, "found a string without its end, expected a closing '"),
        ("a = 5abc", 4, "found 5abc, expected a number"),
        ("a = 09", 4, "found 09, expected a number"),
        ("a = 0x", 4, "found 0x, expected a number"),
        ("a = 1.5L", 4, "found 1.5L, expected a number"),
        ("a = 1e", 4, "found 1e, expected a number"),
    ],
)
def test_a_fault_is_named_with_its_place(text, position, detail):
    """The error is shown to whoever wrote the selector, who must see what to change (F-E3)."""
    error = refused(text)

    assert (error.position, error.detail) == (position, detail)


@pytest.mark.parametrize("text", ['a = "x"', "a || b = 'x'", "f(a) = 1", "a -- b", "a = ?", "a; b"])
def test_what_sql_has_besides_is_refused(text):
    """Functions, comments and statements have no place in a filter that strangers write."""
    refused(text)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("9223372036854775808", "a 64-bit long"),
        ("-9223372036854775809", "a 64-bit long"),
        ("+9223372036854775808", "a 64-bit long"),
        ("-(9223372036854775808)", "a 64-bit long"),
        ("0xFFFFFFFFFFFFFFFF", "a 64-bit long"),
        ("01777777777777777777777", "a 64-bit long"),
        ("1" * 5000, "a 64-bit long"),
        ("1E400", "a double"),
        ("1E39F", "a float"),
    ],
)
def test_a_number_out_of_range_is_refused(number, kind):
    """A number that silently became another one would match other messages."""
    assert refused(f"a = {number}").detail.endswith(f"a number in the range of {kind}")


LIKES = "a LIKE '_x%' OR "


@pytest.mark.parametrize(
    ("accepted", "too_much", "position", "limit"),
    [
        ("(" * 64 + "a" + ")" * 64, "(" * 65 + "a" + ")" * 65, 64, "64 nested levels (depth_max)"),
        ("NOT " * 64 + "a", "NOT " * 65 + "a", 256, "64 nested levels (depth_max)"),
        ("b = " + "- " * 64 + "a", "b = " + "-" * 65 + "a", 68, "64 nested levels (depth_max)"),
        ("a" + " OR a" * 1023, "a" + " OR a" * 1024, 5 * 1024, "1024 operands (terms_max)"),
        ("a" + " " * 8191, "a" + " " * 8192, 8192, "8192 characters (text_chars_max)"),
        (LIKES * 64 + "TRUE", LIKES * 64 + "a LIKE ''", 16 * 64 + 7, "64 LIKE (likes_max)"),
    ],
)
def test_each_limit_is_exact_and_named(accepted, too_much, position, limit):
    """A peer cannot make the node work without bound (P8), and learns which bound it met."""
    Selector(accepted)
    error = refused(too_much)

    assert error.position == position
    assert error.detail.endswith(f"at most {limit}")


def test_the_strings_of_a_list_count_as_operands():
    """Otherwise IN would be the way around the limit."""
    limits = SelectorLimits(terms_max=3)

    Selector("a IN ('x', 'y')", limits)
    assert refused("a IN ('x', 'y', 'z')", limits).position == 16


@pytest.mark.parametrize(
    "text",
    [
        "a OR a AND (" * 64 + "a" + ")" * 64,
        "a AND (NOT a OR (" * 21 + "a" + "))" * 21,
        "a < " + "a + a * (" * 64 + "a" + ")" * 64,
        "a < " + "-(" * 32 + "a" + ")" * 32,
        "a > 0" + " AND a + a + a > 0" * 250,
        "a > a" + " + a" * 1000,
    ],
)
def test_no_accepted_selector_exhausts_the_stack(text):
    """A RecursionError inside the engine would break whatever command met it."""
    failures = []

    def run():
        sys.setrecursionlimit(600)
        try:
            Selector(text).matches({"a": 1})
            Selector(text).matches({"a": True})
        except RecursionError as fault:
            failures.append(fault)

    limit = sys.getrecursionlimit()
    thread = threading.Thread(target=run)
    try:
        thread.start()
        thread.join(timeout=60)
    finally:
        sys.setrecursionlimit(limit)
    assert not failures


def test_the_error_is_a_value_error_with_its_tmax_code():
    """Programs that know no HMS class still catch it as what it is."""
    error = refused("a =")

    assert isinstance(error, ValueError)
    assert error.symbol == "TPEINVAL"
    assert "position 3" in str(error)
