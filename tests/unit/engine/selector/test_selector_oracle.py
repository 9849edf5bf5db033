"""The selector against a lark grammar and a slow evaluator of their own, SQLite over the part of
the language that the two have in common, and whatever a peer may send."""

import sqlite3

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from selector_oracle import evaluate
from selector_oracle_grammar import RefusedError, read

from hms.engine.selector import Selector
from hms.errors.catalogue import SelectorSyntaxError
from tests.support.effort import tries

_NAMES = ("a", "b", "s", "t", "vip", "$Priority", "höhe")
_LONGS = ("0", "1", "2", "7", "10L", "0x1F", "017", "9007199254740993", "9223372036854775807")
_DOUBLES = ("0.0", "0.5", "7.", ".25", "1E3", "2D", "0.1F", "1e308", "9007199254740992.0")
_STRINGS = ("'a'", "'b'", "'ab'", "'10'", "''", "'it''s'", "'a_b'")
_PATTERNS = ("'%'", "'a%'", "'_b'", "'%a_b%'", "'a!_b'", "'%!%'", "''")

_NUMERIC = st.one_of(
    st.integers(-12, 12),
    st.sampled_from((2**53 + 1, 2**63 - 1, -(2**63))),
    st.sampled_from((0.0, -0.0, 0.5, -2.5, 7.0, 1e308, float("inf"), float("nan"))),
)
_TEXTS = st.sampled_from(("", "a", "b", "ab", "a_b", "axb", "10", "it's", "a\nb"))
_ANY = st.one_of(_NUMERIC, _TEXTS, st.booleans(), st.just(b"a"))
_ROWS = st.fixed_dictionaries(
    {"a": _NUMERIC, "s": _TEXTS, "vip": st.booleans(), "$Priority": st.integers(0, 9)},
    optional={"b": _ANY, "t": _ANY, "höhe": _ANY},
)


def _joined(*parts):
    """Parts of a selector with some white space between them."""
    return st.tuples(st.sampled_from((" ", "\n", " \t ")), *parts).map(
        lambda drawn: drawn[0].join(drawn[1:])
    )


def _word(word):
    return st.sampled_from((word, word.lower(), word.title()))


def _bracketed(inner):
    return inner.map(lambda text: f"({text})")


_names = st.sampled_from(_NAMES)
_operands = st.one_of(_names, st.sampled_from(_LONGS), st.sampled_from(_DOUBLES))
_numbers = st.recursive(
    _operands,
    lambda inner: st.one_of(
        _joined(inner, st.sampled_from("+-*/"), inner),
        st.tuples(st.sampled_from("+-"), inner).map("".join),
        _bracketed(inner),
    ),
    max_leaves=4,
)
_maybe_not = st.sampled_from(("", "NOT", "not"))
_equals = st.sampled_from(("=", "<>"))
_others = st.one_of(_names, st.sampled_from(_STRINGS), st.sampled_from(("TRUE", "false")))
_tests = st.one_of(
    _joined(_numbers, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), _numbers),
    _joined(_others, _equals, _others),
    _joined(_others, _equals, _numbers),
    _joined(_numbers, _equals, _others),
    _joined(_numbers, _maybe_not, _word("BETWEEN"), _numbers, _word("AND"), _numbers),
    _joined(
        _names,
        _maybe_not,
        _word("IN"),
        st.lists(st.sampled_from(_STRINGS), min_size=1, max_size=3).map(
            lambda strings: f"({', '.join(strings)})"
        ),
    ),
    _joined(
        _names,
        _maybe_not,
        _word("LIKE"),
        st.sampled_from(_PATTERNS),
        st.sampled_from(("", "ESCAPE '!'", "escape '_'")),
    ),
    _joined(_names, _word("IS"), _maybe_not, _word("NULL")),
    _names,
    st.sampled_from(("TRUE", "False")),
)
_conditions = st.recursive(
    _tests,
    lambda inner: st.one_of(
        _joined(inner, _word("AND"), inner),
        _joined(inner, _word("OR"), inner, _word("OR"), inner),
        _joined(_word("NOT"), inner),
        _bracketed(inner),
    ),
    max_leaves=5,
)
_tokens = st.one_of(
    _names,
    st.sampled_from(_LONGS + _DOUBLES + _STRINGS),
    st.sampled_from(("NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE")),
    st.sampled_from(("=", "<>", "<", ">=", "+", "-", "*", "/", "(", ")", ",")),
)


def opinions(text, row):
    """What the two say of a selector and a message; "refused" for one that does not parse."""
    try:
        ours = Selector(text).matches(row)
    except SelectorSyntaxError:
        ours = "refused"
    try:
        theirs = evaluate(read(text), row)
    except RefusedError:
        theirs = "refused"
    return ours, theirs


@settings(max_examples=tries(400))
@given(_conditions, _ROWS, _ROWS)
def test_a_selector_answers_what_the_second_opinion_says(text, row, another):
    """Two readings of JMS that agree over random conditions are unlikely to share a mistake."""
    for message in (row, another):
        ours, theirs = opinions(text, message)
        event(f"answer {ours}")
        assert ours is theirs or ours == theirs == "refused"


@settings(max_examples=tries(400))
@given(st.lists(_tokens, min_size=1, max_size=9).map(" ".join), _ROWS)
def test_both_refuse_the_same_token_soup(text, row):
    """A grammar that takes too much hides mistakes; one that takes too little breaks clients."""
    ours, theirs = opinions(text, row)

    assert ours is theirs or ours == theirs == "refused"


@settings(max_examples=tries(200))
@given(_conditions, st.data())
def test_both_agree_on_a_selector_with_one_word_changed(text, data):
    """Nearly right is where parsers differ."""
    words = text.split()
    place = data.draw(st.integers(0, len(words) - 1))
    words[place : place + 1] = data.draw(st.lists(_tokens, max_size=2))
    ours, theirs = opinions(" ".join(words) or "TRUE", {"a": 1, "s": "a", "vip": True})

    assert ours is theirs or ours == theirs == "refused"


# SQLite


_SQL_LONGS = st.sampled_from(("0", "1", "2", "3", "7", "-4", "i", "j", "i", "j"))
_SQL_NUMBERS = st.recursive(
    _SQL_LONGS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" + ", " - ", " * ", " / ")), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"- {text}"),
    ),
    max_leaves=5,
)
_SQL_STRINGS = st.sampled_from(("'a'", "'ab'", "''", "'a%'", "'it''s'", "s", "t"))
_SQL_PATTERNS = st.sampled_from(("'%'", "'a%'", "'_b'", "'%a_%'", "'a\\_'", "'%b%b%'", "''"))
_SQL_NOT = st.sampled_from(("", "NOT "))
_SQL_COMPARE = st.sampled_from((" = ", " <> ", " < ", " <= ", " > ", " >= "))
_SQL_TESTS = st.one_of(
    st.tuples(_SQL_NUMBERS, _SQL_COMPARE, _SQL_NUMBERS).map("".join),
    st.tuples(_SQL_STRINGS, st.sampled_from((" = ", " <> ")), _SQL_STRINGS).map("".join),
    st.builds("{} {}BETWEEN {} AND {}".format, _SQL_NUMBERS, _SQL_NOT, _SQL_NUMBERS, _SQL_NUMBERS),
    st.builds("{} {}IN ('a', 'it''s', {})".format, st.sampled_from("st"), _SQL_NOT, st.just("''")),
    st.builds("{} {}LIKE {}".format, st.sampled_from("st"), _SQL_NOT, _SQL_PATTERNS),
    st.builds("{} {}LIKE 'a!%_' ESCAPE '!'".format, st.sampled_from("st"), _SQL_NOT),
    st.builds("{} IS {}NULL".format, st.sampled_from("ijst"), _SQL_NOT),
    st.sampled_from(("TRUE", "FALSE")),
)
_SQL_CONDITIONS = st.recursive(
    _SQL_TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" AND ", " OR ")), inner).map("".join),
        inner.map(lambda text: f"NOT {text}"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=6,
)
_SQL_ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-9, 9),
        "j": st.none() | st.integers(-9, 9),
        "s": st.none() | st.text("ab%_", max_size=4),
        "t": st.none() | st.sampled_from(("it's", "a\\b", "abab", "A", "a%c")),
    }
)


@pytest.fixture(scope="module")
def database():
    """An empty database that compares letters as they are."""
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    yield connection
    connection.close()


@settings(max_examples=tries(300))
@given(text=_SQL_CONDITIONS, row=_SQL_ROWS)
def test_a_selector_answers_what_sqlite_answers(database, text, row):
    """JMS took its conditions from SQL-92; precedence, NULL and division are SQLite's too."""
    columns = "SELECT :i AS i, :j AS j, :s AS s, :t AS t"
    (found,) = database.execute(f"SELECT ({text}) FROM ({columns})", row).fetchone()

    assert Selector(text).matches(row) is (None if found is None else bool(found))


# fuzz: whatever a peer sends, the answer is a selector or a SelectorSyntaxError


_FUZZ_ROW = {"a": 1, "b": 2.5, "s": "x", "v": True, "raw": b"x"}
# fmt: off
_PIECES = st.sampled_from((
    "a", "b", "s", "v", "$x", "1", "0x", "1e5", "9" * 25, ".", "'", "''", "'x'", "(", ")", ",",
    "-", "/", "<", ">", "=", " NOT ", " AND ", " OR ", " LIKE ", " ESCAPE ", " BETWEEN ", " IN ",
    " IS ", " NULL ", "\0", "\ud800", "\u0301",
))
# fmt: on


def fault(text):
    """Use a selector; the error that it is refused with, if it is. No other may come."""
    try:
        selector = Selector(text)
    except SelectorSyntaxError as error:
        return error
    assert selector.matches(_FUZZ_ROW) in (True, False, None)
    return None


def answer_or_refuse(text):
    """A selector answers, or its error points into the text."""
    error = fault(text)
    assert error is None or (0 <= error.position <= len(text) and "expected" in error.detail)


@settings(max_examples=tries(300))
@given(st.text())
@example("'" * 8192)
@example("\ud800")
@example("a = 'x" + "\n" * 100)
def test_any_text_is_a_selector_or_a_syntax_error(text):
    """The text comes from strangers and is parsed inside the node."""
    answer_or_refuse(text)


@settings(max_examples=tries(300))
@given(st.lists(_PIECES, max_size=20).map("".join))
def test_any_pieces_of_a_selector_are_one_or_a_syntax_error(text):
    """Random letters never get past the lexer; pieces do."""
    answer_or_refuse(text)


@given(_PIECES, st.integers(1, 4096))
def test_any_piece_repeated_is_a_selector_or_a_syntax_error(piece, times):
    """Depth and number are what breaks parsers that are right otherwise."""
    answer_or_refuse(piece * times)
    answer_or_refuse("a = 1 AND " + piece * times)
