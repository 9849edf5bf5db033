"""Whatever a peer sends as a selector, the answer is a selector or a SelectorSyntaxError."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hms.engine.selector import Selector
from hms.errors.catalogue import SelectorSyntaxError

_ROW = {"a": 1, "b": 2.5, "s": "x", "v": True, "raw": b"x"}
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
    assert selector.matches(_ROW) in (True, False, None)
    return None


def answer_or_refuse(text):
    """A selector answers, or its error points into the text."""
    error = fault(text)
    assert error is None or (0 <= error.position <= len(text) and "expected" in error.detail)


@settings(max_examples=300)
@given(st.text())
@example("'" * 8192)
@example("\ud800")
@example("a = 'x" + "\n" * 100)
def test_any_text_is_a_selector_or_a_syntax_error(text):
    """The text comes from strangers and is parsed inside the node."""
    answer_or_refuse(text)


@settings(max_examples=300)
@given(st.lists(_PIECES, max_size=20).map("".join))
def test_any_pieces_of_a_selector_are_one_or_a_syntax_error(text):
    """Random letters never get past the lexer; pieces do."""
    answer_or_refuse(text)


@settings(max_examples=100)
@given(_PIECES, st.integers(1, 4096))
def test_any_piece_repeated_is_a_selector_or_a_syntax_error(piece, times):
    """Depth and number are what breaks parsers that are right otherwise."""
    answer_or_refuse(piece * times)
    answer_or_refuse("a = 1 AND " + piece * times)
