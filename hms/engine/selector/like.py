"""LIKE without backtracking: % is any run of characters, _ is exactly one, the rest is itself.

The pattern is cut at each % into runs of fixed length. The first run is anchored at the start, the
last at the end, and each one between is taken where it occurs first: a later place could only leave
less room for those that follow. So no choice is ever taken back. A character is a code point of
Unicode.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby
from operator import or_

_ONE = ""
"""Stands for _ in a run; no character of a text equals it."""

_EXPRESSION_MAX = 64
"""Runs up to this length are searched for as regular expressions, which compare at most so many
characters at each place and need a tenth to a hundredth of the time."""

_MASK_BYTES_MAX = 64 * 1024
"""Search masks above this size are made anew for each search instead of being kept."""


def compile_like(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """A test for text LIKE pattern; raises ValueError when the escape character escapes nothing."""
    runs = _split(pattern, escape)
    if len(runs) > 1:
        return _match_runs(runs)
    if _ONE not in runs[0]:
        return "".join(runs[0]).__eq__
    only = _Run(runs[0])
    return lambda text: len(text) == only.length and only.stands_at(text, 0)


def _match_runs(runs: Sequence[list[str]]) -> Callable[[str], bool]:
    first, last = _Run(runs[0]), _Run(runs[-1])
    between = [_Run(run) for run in runs[1:-1] if run]
    length_min = sum(map(len, runs))

    def matches(text: str) -> bool:
        start, end = first.length, len(text) - last.length
        if len(text) < length_min or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        for run in between:
            found = run.find(text, start, end)
            if found < 0:
                return False
            start = found + run.length
        return True

    return matches


def _split(pattern: str, escape: str | None) -> list[list[str]]:
    """The runs between the % of a pattern, one character or _ONE an item."""
    runs: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            runs[-1].append(_escaped(next(characters, ""), escape))
        elif character == "%":
            runs.append([])
        else:
            runs[-1].append(_ONE if character == "_" else character)
    return runs


def _escaped(character: str, escape: str) -> str:
    if character not in ("%", "_", escape):
        raise ValueError(f"{escape} followed by {character or 'nothing'}")
    return character


class _Run:
    """Characters of a pattern that stand behind one another, among them some _ perhaps."""

    __slots__ = ("_expression", "_masks", "_pieces", "_text", "length")

    def __init__(self, run: Sequence[str]) -> None:
        self.length = len(run)
        self._pieces = _literal_pieces(run)
        self._text = "".join(run)
        self._expression = None
        if _ONE in run and len(run) <= _EXPRESSION_MAX:
            parts = ["." if item == _ONE else re.escape(item) for item in run]
            self._expression = re.compile("".join(parts), re.DOTALL)
        is_small = len(set(run)) * len(run) // 8 <= _MASK_BYTES_MAX
        is_searched = _ONE in run and self._expression is None
        self._masks = _search_masks(run) if is_small and is_searched else None

    def stands_at(self, text: str, start: int) -> bool:
        """Whether the run stands at this place of a text that is long enough."""
        for offset, piece in self._pieces:  # noqa: SIM110 (all() takes twice the time)
            if not text.startswith(piece, start + offset):
                return False
        return True

    def find(self, text: str, start: int, end: int) -> int:
        """The first place within [start, end), or -1."""
        if len(self._text) == self.length:
            return text.find(self._text, start, end)
        if self._expression is not None:
            found = self._expression.search(text, start, end)
            return -1 if found is None else found.start()
        return self._search(text, start, end)

    def _search(self, text: str, start: int, end: int) -> int:
        """Shift-And: bit i of the state says that the run up to its character i ends here."""
        masks = self._masks or _search_masks(self._characters())
        other = masks[_ONE]
        goal = 1 << (self.length - 1)
        state = 0
        for position, character in enumerate(text[start:end], start):
            state = (state << 1 | 1) & masks.get(character, other)
            if state & goal:
                return position - self.length + 1
        return -1

    def _characters(self) -> list[str]:
        characters = [_ONE] * self.length
        for offset, piece in self._pieces:
            characters[offset : offset + len(piece)] = piece
        return characters


def _literal_pieces(run: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """What stands between the _ of a run, each piece with its offset."""
    pieces = []
    for is_literal, group in groupby(enumerate(run), key=lambda item: item[1] != _ONE):
        if is_literal:
            offsets, characters = zip(*group, strict=True)
            pieces.append((offsets[0], "".join(characters)))
    return tuple(pieces)


def _search_masks(run: Sequence[str]) -> dict[str, int]:
    """For each character the places of the run where it may stand; under _ONE those of the _."""
    anything = reduce(or_, (1 << place for place, item in enumerate(run) if item == _ONE), 0)
    masks = {_ONE: anything}
    for place, item in enumerate(run):
        if item != _ONE:
            masks[item] = masks.get(item, anything) | 1 << place
    return masks
