"""The grammar of message selectors: what is accepted, and as which nodes."""

import pickle

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
