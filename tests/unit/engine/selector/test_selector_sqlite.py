"""The selector against SQLite, over the part of the language that the two have in common."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hms.engine.selector import Selector

_LONGS = st.sampled_from(("0", "1", "2", "3", "7", "-4", "i", "j", "i", "j"))
_NUMBERS = st.recursive(
    _LONGS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" + ", " - ", " * ", " / ")), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"- {text}"),
    ),
    max_leaves=5,
)
_STRINGS = st.sampled_from(("'a'", "'ab'", "''", "'a%'", "'it''s'", "s", "t"))
_PATTERNS = st.sampled_from(("'%'", "'a%'", "'_b'", "'%a_%'", "'a\\_'", "'%b%b%'", "''"))
_NOT = st.sampled_from(("", "NOT "))
_COMPARE = st.sampled_from((" = ", " <> ", " < ", " <= ", " > ", " >= "))
_TESTS = st.one_of(
    st.tuples(_NUMBERS, _COMPARE, _NUMBERS).map("".join),
    st.tuples(_STRINGS, st.sampled_from((" = ", " <> ")), _STRINGS).map("".join),
    st.builds("{} {}BETWEEN {} AND {}".format, _NUMBERS, _NOT, _NUMBERS, _NUMBERS),
    st.builds("{} {}IN ('a', 'it''s', {})".format, st.sampled_from("st"), _NOT, st.just("''")),
    st.builds("{} {}LIKE {}".format, st.sampled_from("st"), _NOT, _PATTERNS),
    st.builds("{} {}LIKE 'a!%_' ESCAPE '!'".format, st.sampled_from("st"), _NOT),
    st.builds("{} IS {}NULL".format, st.sampled_from("ijst"), _NOT),
    st.sampled_from(("TRUE", "FALSE")),
)
_CONDITIONS = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" AND ", " OR ")), inner).map("".join),
        inner.map(lambda text: f"NOT {text}"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=6,
)
_ROWS = st.fixed_dictionaries(
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


@settings(max_examples=300)
@given(text=_CONDITIONS, row=_ROWS)
def test_a_selector_answers_what_sqlite_answers(database, text, row):
    """JMS took its conditions from SQL-92; precedence, NULL and division are SQLite's too."""
    columns = "SELECT :i AS i, :j AS j, :s AS s, :t AS t"
    (found,) = database.execute(f"SELECT ({text}) FROM ({columns})", row).fetchone()

    assert Selector(text).matches(row) is (None if found is None else bool(found))
