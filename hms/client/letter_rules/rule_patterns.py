"""Patterns: whether a rule means a letter.

? is one character, * any number of them; trailing blanks of value and field do not count, so ?
never takes one (PUBSUB G9, G11). Matching costs pattern times field, whatever the pattern.
"""

from typing import NamedTuple, Protocol

__all__ = [
    "Comparison",
    "Field",
    "LetterFields",
    "NumberPattern",
    "Selected",
    "TextPattern",
    "is_like",
]

ANY = "*"


class LetterFields(NamedTuple):
    """What rules look at, by keyword; with how old it is in seconds, how often it was tried and
    sent back. is_letter: it has a dead letter's header; fits: the selectors that hold for it."""

    id: str
    is_letter: bool
    texts: dict[str, str]
    numbers: dict[str, int]
    age_s: float = 0
    attempts: int = 0
    returns: int = 0
    fits: frozenset[str] = frozenset()


class Field(Protocol):
    """A pattern for a field of a letter."""

    def matches(self, letter: LetterFields) -> bool:
        """Whether the letter has it."""


def is_like(pattern: str, text: str) -> bool:
    """Whether a text without trailing blanks fits a pattern without them."""
    at = star = here = 0
    has_star = False
    while here < len(text):
        if at < len(pattern) and pattern[at] == ANY:
            has_star, star, mark = True, at + 1, here
            at = star
        elif at < len(pattern) and pattern[at] in ("?", text[here]):
            at, here = at + 1, here + 1
        elif has_star:
            mark += 1
            at, here = star, mark
        else:
            return False
    return all(letter == ANY for letter in pattern[at:])


class TextPattern(NamedTuple):
    """A pattern for a text."""

    keyword: str
    value: str

    def matches(self, letter: LetterFields) -> bool:
        """Whether the letter has it."""
        field = letter.texts.get(self.keyword, "").rstrip(" ")
        return is_like(self.value.rstrip(" "), field)


class NumberPattern(NamedTuple):
    """A pattern for a number; None: any."""

    keyword: str
    value: int | None

    def matches(self, letter: LetterFields) -> bool:
        """Whether the letter has it."""
        return self.value is None or letter.numbers.get(self.keyword) == self.value


class Comparison(NamedTuple):
    """An extension: age, attempts or returns of a letter against a number."""

    keyword: str
    sign: str
    value: int

    def matches(self, letter: LetterFields) -> bool:
        """Whether it holds."""
        found = {"AGE": letter.age_s, "COUNT": letter.attempts, "RETURNS": letter.returns}
        mine = found[self.keyword]
        outcomes = {">": mine > self.value, "<": mine < self.value, "=": mine == self.value}
        return outcomes[self.sign]


class Selected(NamedTuple):
    """An extension: a selector, which the node looks at."""

    selector: str

    def matches(self, letter: LetterFields) -> bool:
        """Whether it holds."""
        return self.selector in letter.fits
