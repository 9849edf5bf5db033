"""The selector's text as tokens, read one at a time: the first fault is the one reported."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from hms.engine.selector.literals import NUMBER, read_number, shorten
from hms.engine.selector.nodes import Scalar
from hms.errors.catalogue import SelectorSyntaxError

KEYWORDS = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)
COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))

_SYMBOL = re.compile(r"<>|<=|>=|[=<>+\-*/(),]")
_SPACE = re.compile(r"[ \t\f\r\n]*+")  # JMS: space, tab, form feed, line terminators; nothing else
_STRING = re.compile(r"'(?:[^']++|'')*+'")
_FRACTION = re.compile(r"\.[0-9]")
_DIGITS = frozenset("0123456789")

# Java's isJavaIdentifierStart and isJavaIdentifierPart, without the invisible format characters.
_STARTS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PARTS = _STARTS | {"Nd", "Mn", "Mc"}

_HINTS = {
    '"': "; strings stand in single quotes",
    "!": "; unequal is <>",
    "%": "; there is no remainder",
    "|": "; there is no concatenation",
}


class Token(NamedTuple):
    """One token.

    kind: "string", "number", "name", "end", a keyword in capitals, or the symbol itself;
    text: as it was written; position: its 0-based offset; value: of a string or a number.
    """

    kind: str
    text: str
    position: int
    value: Scalar = ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shorten(self.text)


def read_tokens(text: str) -> Iterator[Token]:
    """Each token of the text, then one of kind "end"; raises SelectorSyntaxError on the way."""
    position = _skip_space(text, 0)
    while position < len(text):
        token = _read_token(text, position)
        yield token
        position = _skip_space(text, position + len(token.text))
    yield Token("end", "", len(text))


def _skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _read_token(text: str, position: int) -> Token:
    character = text[position]
    if symbol := _SYMBOL.match(text, position):
        return Token(symbol.group(), symbol.group(), position)
    if character == "'":
        return _read_string(text, position)
    if character in _DIGITS or _FRACTION.match(text, position):
        return _read_number(text, position)
    if unicodedata.category(character) in _STARTS:
        return _read_word(text, position)
    hint = _HINTS.get(character, "")
    raise SelectorSyntaxError(
        position=position,
        detail=f"found {character!r}, expected a name, a value or an operator{hint}",
    )


def _read_string(text: str, position: int) -> Token:
    found = _STRING.match(text, position)
    if found is None:
        raise SelectorSyntaxError(
            position=position, detail="found a string without its end, expected a closing '"
        )
    return Token("string", found.group(), position, found.group()[1:-1].replace("''", "'"))


def _read_number(text: str, position: int) -> Token:
    found = NUMBER.match(text, position)
    assert found is not None, "the caller saw a digit"
    # What follows without a gap belongs to it: 5abc is a malformed number, not 5 and then abc.
    literal = text[position : _word_end(text, found.end())]
    return Token("number", literal, position, read_number(literal, position))


def _read_word(text: str, position: int) -> Token:
    word = text[position : _word_end(text, position)]
    # Only ASCII: the capital of the Turkish dotless i would turn a name into IN.
    if word.isascii() and word.upper() in KEYWORDS:
        return Token(word.upper(), word, position)
    return Token("name", word, position)


def _word_end(text: str, position: int) -> int:
    while position < len(text) and unicodedata.category(text[position]) in _PARTS:
        position += 1
    return position
