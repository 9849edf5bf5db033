"""The words of an entry: KEYWORD(value), with blanks or commas between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hms.client.letter_rules.rule_lines import Entry, Letter

__all__ = ["Fault", "Part", "TableSyntaxError", "parts_of"]

_BLANK = " \t,"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_%*?&><=")


class Fault(NamedTuple):
    """What is wrong, and where; keyword "" when it concerns none."""

    line: int
    column: int
    keyword: str
    text: str

    def __str__(self) -> str:
        about = f"{self.keyword}: " if self.keyword else ""
        return f"{self.line}:{self.column}: {about}{self.text}"


@dataclass(frozen=True, slots=True)
class Part:
    """A keyword, in capitals, with its value. is_quoted: it stood in quotes; was_lower: capitals
    were made of letters that stood without quotes."""

    keyword: str
    value: str
    at: Letter
    value_at: Letter
    is_quoted: bool = False
    was_lower: bool = False


class TableSyntaxError(Exception):
    """What follows in the entry is not looked at: it would be told of twice."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class _Reader:
    """Goes through the letters of an entry."""

    def __init__(self, entry: Entry) -> None:
        self._letters, self._end, self._at = entry.letters, entry.end, 0

    @property
    def here(self) -> Letter:
        return self._letters[self._at] if self._at < len(self._letters) else self._end

    def next(self) -> Letter:
        found = self.here
        self._at += 1
        return found

    def skip(self, letters: str) -> int:
        before = self._at
        while self.here.text and self.here.text in letters:
            self._at += 1
        return self._at - before

    def fail(self, keyword: str, text: str, at: Letter | None = None) -> TableSyntaxError:
        where = at or self.here
        return TableSyntaxError(Fault(where.line, where.column, keyword, text))


def parts_of(entry: Entry) -> Iterator[Part]:
    """Every keyword of an entry with its value; TableSyntaxError."""
    reader = _Reader(entry)
    reader.skip(_BLANK)
    while reader.here.text:
        yield _part(reader)
        blanks = reader.skip(_BLANK)
        if reader.here.text and not blanks:
            raise reader.fail("", "a blank or a comma is needed before the next keyword")
    if entry.is_cut_off:
        raise reader.fail("", "the line goes on, and the table ends", entry.end)


def _part(reader: _Reader) -> Part:
    at = reader.here
    word = ""
    while reader.here.text.isascii() and reader.here.text.isalnum():
        word += reader.next().text
    keyword = word.upper()
    if not keyword:
        raise reader.fail("", f"a keyword is needed, not {at.text!r}")
    reader.skip(" \t")
    if reader.here.text != "(":
        raise reader.fail(keyword, f"its value is missing: {keyword}(…)")
    reader.next()
    reader.skip(" \t")
    value_at = reader.here
    if value_at.text == "'":
        text = _quoted(reader, keyword)
        part = Part(keyword, text, at, value_at, is_quoted=True)
    else:
        text = _unquoted(reader, keyword)
        part = Part(keyword, text.upper(), at, value_at, was_lower=text != text.upper())
    reader.skip(" \t")
    if reader.here.text != ")":
        raise reader.fail(keyword, "')' is needed after the value")
    reader.next()
    if not part.value:
        raise reader.fail(keyword, "a value needs at least one letter", value_at)
    return part


def _quoted(reader: _Reader, keyword: str) -> str:
    begin, text = reader.next(), ""
    while True:
        letter = reader.next()
        if not letter.text:
            raise reader.fail(keyword, "the quote is not closed", begin)
        if letter.text != "'":
            text += letter.text
        elif reader.here.text == "'":
            text += reader.next().text
        else:
            return text


def _unquoted(reader: _Reader, keyword: str) -> str:
    text = ""
    while reader.here.text and reader.here.text != ")":
        letter = reader.here
        if letter.text in " \t":
            reader.skip(" \t")
            if reader.here.text == ")":
                break
            raise reader.fail(keyword, "a value with blanks needs quotes", letter)
        if letter.text not in _PLAIN:
            raise reader.fail(keyword, f"a value with {letter.text!r} needs quotes", letter)
        text += reader.next().text
    return text
