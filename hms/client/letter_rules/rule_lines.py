"""Lines of a rules table: comments, blank lines, and lines that go on in the next one.

A line whose last letter that is not blank is + goes on at the first such letter of the next line;
with - at the very start of it. Each letter knows where it stood, so that a fault can tell it.
"""

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["LINE_MAX", "Entry", "Letter", "entries_of"]

LINE_MAX = 72
"""Longer lines are legal, and not portable (PUBSUB G5)."""


class Letter(NamedTuple):
    """One character, and its line and column, from 1."""

    text: str
    line: int
    column: int


class Entry(NamedTuple):
    """What stands between two line ends that count. end: where something may be missing."""

    letters: list[Letter]
    line: int
    end: Letter
    is_cut_off: bool = False
    """The last line of the table goes on in one that is not there."""


def entries_of(text: str) -> Iterator[Entry]:
    """The control entry and the rules of a table, one after the other."""
    letters: list[Letter] = []
    joins, first, last = "", 0, Letter("", 1, 1)
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.rstrip(" \t\r")
        if not bare.strip() or bare.startswith("*"):
            continue
        begin = 0
        if joins == "+":
            begin = len(bare) - len(bare.lstrip())
        first = first or number
        joins = bare[-1] if bare[-1] in "+-" else ""
        until = len(bare) - 1 if joins else len(bare)
        letters += [Letter(bare[at], number, at + 1) for at in range(begin, until)]
        last = Letter("", number, len(bare) + 1)
        if not joins:
            yield Entry(letters, first, last)
            letters, first = [], 0
    if letters or joins:
        yield Entry(letters, first, last, is_cut_off=True)
