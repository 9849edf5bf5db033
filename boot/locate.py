"""Where in hms.conf a word stands, and how to read on behind a syntax error.

tomllib tells no line numbers of what it read and stops at the first fault. So the text is cut into
statements (a header, or a key with its value), each with its lines. Behind a syntax error the
statement is blanked and the text read again, so that one report names every fault. A header that
cannot stand as it is, such as a second one of the same name, is given a name of its own with a
mark in it; its keys are then still checked, under the name the user wrote.
"""

import bisect
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

SYNTAX_FAULTS_MAX = 20
"""A file with more is probably no configuration at all."""

Path = tuple[str, ...]

_MARK = "\0"
_WORD = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_NAME = re.compile(rf"[ \t]*({_WORD}(?:[ \t]*\.[ \t]*{_WORD})*)[ \t]*")
_BLANK = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:#[^\n]*\Z)?")
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
    r"|#[^\n]*|[\[\]{}\n]|[^\"'#\[\]{}\n]+|.",
    re.DOTALL,
)
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Statement:
    """A header, or a key with its value; path is () where the name cannot be read."""

    path: Path
    first_line: int
    last_line: int
    is_header: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """What could be read, where it stands, and (line, text) of every syntax fault."""

    data: dict[str, Any]
    lines: dict[Path, int]
    faults: list[tuple[int, str]]

    def line_of(self, path: Path) -> int:
        """The line of a section or key, else of the nearest section around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def plain(name: str) -> str:
    """A name as the user wrote it, without the mark that kept it apart."""
    return name.split(_MARK, maxsplit=1)[0]


def parse(text: str) -> Parsed:
    """Read TOML as far as it can be read; never raises."""
    faults: list[tuple[int, str]] = []
    while len(faults) < SYNTAX_FAULTS_MAX:
        try:
            return Parsed(tomllib.loads(text), _lines(text), faults)
        except RecursionError:
            faults.append((1, "values are nested too deeply"))
            break
        except ValueError as fault:
            found, said = _explain(text, fault)
            faults.append((found.first_line, said))
            text = _without(text, found)
    faults.append((faults[-1][0], "the file is read no further; correct these first"))
    return Parsed({}, {}, faults)


def statements(text: str) -> Iterator[Statement]:
    """The statements of a TOML text, also of a faulty one."""
    breaks = [at for at, letter in enumerate(text) if letter == "\n"]
    section: Path = ()
    at = _skip_blank(text, 0)
    while at < len(text):
        is_header = text[at] == "["
        name, end, is_whole = _header(text, at) if is_header else _assignment(text, at)
        if is_header:
            section = name
        path = name if is_header or not name else section + name
        first, last = bisect.bisect_left(breaks, at), bisect.bisect_left(breaks, max(end - 1, at))
        yield Statement(path, first + 1, last + 1, is_header, is_whole)
        at = _skip_blank(text, end)


def _lines(text: str) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for statement in statements(text):
        for length in range(1, len(statement.path) + 1):
            found.setdefault(statement.path[:length], statement.first_line)
    return found


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _header(text: str, at: int) -> tuple[Path, int, bool]:
    """Name and end of a header; both also when its brackets are not closed."""
    line_end = _line_end(text, at)
    match = _NAME.match(text, at + 2 if text.startswith("[[", at) else at + 1)
    return _words(match), line_end, match is not None


def _assignment(text: str, at: int) -> tuple[Path, int, bool]:
    match = _NAME.match(text, at)
    if match is None or not text.startswith("=", match.end()):
        return (), _line_end(text, at), True
    end, is_whole = _value_end(text, match.end() + 1)
    return _words(match), end, is_whole


def _value_end(text: str, at: int) -> tuple[int, bool]:
    """Where a value ends: at a line's end outside of brackets; False when they never close."""
    depth = 0
    while (match := _TOKEN.match(text, at)) is not None:
        piece, at = match.group(), match.end()
        if piece == "\n" and depth <= 0:
            return at, True
        depth += (piece in {"[", "{"}) - (piece in {"]", "}"})
    return len(text), depth <= 0


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _words(match: re.Match[str] | None) -> Path:
    """The words of a dotted name, read by tomllib itself."""
    if match is None:
        return ()
    try:
        level: Any = tomllib.loads(f"{match.group(1)} = 0")
    except ValueError:
        return ()
    words = []
    while isinstance(level, dict):
        word, level = next(iter(level.items()))
        words.append(word)
    return tuple(words)


def _explain(text: str, fault: ValueError) -> tuple[Statement, str]:
    """The statement at fault, and what to say of it."""
    match = _POSITION.search(str(fault))
    said = str(fault)[: match.start()] if match else str(fault)
    every = list(statements(text))
    line = _fault_line(text, match, every)
    found = next((s for s in every if s.first_line <= line <= s.last_line), None)
    if found is None:
        return Statement((), line, line, is_header=False, is_whole=True), _syntax(said)
    first = next((s for s in every if s.path == found.path), found)
    if found.path and first is not found and first.is_header == found.is_header:
        what = f"[{'.'.join(found.path)}]" if found.is_header else repr(found.path[-1])
        return found, f"{what} is given twice; it stands on line {first.first_line} already"
    if not found.is_whole:
        # Only what stands before the line that could not be read is taken out.
        found = replace(found, last_line=max(line - 1, found.first_line))
    return found, _syntax(said)


def _syntax(said: str) -> str:
    return f"syntax error: {said[:1].lower()}{said[1:]}"


def _fault_line(text: str, match: re.Match[str] | None, every: list[Statement]) -> int:
    if match is None:
        return next((s.first_line for s in every if not _is_readable(text, s)), 1)
    if match.group(1):
        return int(match.group(1))
    return every[-1].last_line if every else 1


def _is_readable(text: str, statement: Statement) -> bool:
    try:
        tomllib.loads("\n".join(text.split("\n")[statement.first_line - 1 : statement.last_line]))
    except ValueError:
        return False
    return True


def _without(text: str, statement: Statement) -> str:
    """The text with a statement blanked, or its header made harmless; lines keep their numbers."""
    lines = text.split("\n")
    count = statement.last_line - statement.first_line + 1
    blank = [_stand_in(statement)] + [""] * (count - 1)
    lines[statement.first_line - 1 : statement.last_line] = blank
    return "\n".join(lines)


def _stand_in(statement: Statement) -> str:
    if not statement.is_header:
        return ""
    path = statement.path or ("",)
    marked = (*path[:-1], f"{path[-1]}{_MARK}{statement.first_line}")
    return f"[{'.'.join(json.dumps(word) for word in marked)}]"
