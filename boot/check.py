"""Check what stands in hms.conf against the schema, section by section and key by key.

Nothing stops at the first fault: each is reported with its line, and the default holds in its
place while the rest is looked at.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hms.boot.kinds import Refused, did_you_mean
from hms.boot.locate import Parsed, Path, plain
from hms.boot.sections import LATER_SECTIONS, SECTIONS, Key, Section

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Report:
    """The faults found so far, each with its line."""

    def __init__(self, parsed: Parsed, file: str) -> None:
        self.file = file
        self._parsed = parsed
        self._faults = list(parsed.faults)

    def add(self, path: Path, text: str) -> None:
        """A fault of the section or key at path, with the section named."""
        self._faults.append((self._parsed.line_of(path), text))

    def lines(self) -> list[str]:
        """One line for each fault, in the order of the file."""
        ordered = dict.fromkeys(sorted(self._faults, key=lambda fault: fault[0]))
        return [f"{self.file}:{line}: {text}" for line, text in ordered]


@dataclass(slots=True)
class Found:
    """One section of the file. values: by attribute, defaults included; bad: refused ones."""

    section: Section
    name: str
    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        """The header as the user wrote it."""
        return header(self.path)

    def is_good(self, *attributes: str) -> bool:
        """Whether none of these values was refused, so that they can be compared."""
        return not self.bad.intersection(attributes)


def header(path: Path) -> str:
    """A section's header; a name with dots or blanks is quoted."""
    words = [plain(word) for word in path]
    return f"[{'.'.join(w if _BARE.fullmatch(w) else json.dumps(w) for w in words)}]"


def check_sections(
    parsed: Parsed,
    report: Report,
    known: Sequence[Section] = SECTIONS,
    later: Mapping[str, str] = LATER_SECTIONS,
) -> list[Found]:
    """All sections that are known; faults go into the report. later: refused with a reason."""
    by_path = {section.path: section for section in known}
    every = _sections(parsed.data, (), by_path, later, report)
    return [_check_keys(*each, report) for each in every]


def _sections(
    tables: dict[str, Any],
    above: Path,
    known: Mapping[Path, Section],
    later: Mapping[str, str],
    report: Report,
) -> Iterator[tuple[Section, Path, Any]]:
    for top, value in tables.items():
        path = (*above, top)
        words = tuple(map(plain, path))
        section = known.get(words)
        if words == ("",):
            continue
        if section is not None and section.is_named:
            yield from _named(section, path, value, report)
        elif section is not None:
            yield section, path, value
        elif isinstance(value, dict) and any(one[: len(words)] == words for one in known):
            yield from _sections(value, path, known, later, report)
        else:
            _refuse_section(path, value, known, later, report)


def _refuse_section(
    path: Path,
    value: Any,
    known: Mapping[Path, Section],
    later: Mapping[str, str],
    report: Report,
) -> None:
    word = ".".join(map(plain, path))
    if not isinstance(value, dict):
        report.add(path, f"key {word!r} stands outside of any section")
    elif word in later:
        report.add(path, f"[{word}] {later[word]}")
    else:
        hint = did_you_mean(word, tuple(".".join(one) for one in known))
        report.add(path, f"unknown section [{word}]{hint}")


def _named(
    section: Section, path: Path, value: Any, report: Report
) -> Iterator[tuple[Section, Path, Any]]:
    title = header(path)
    if not isinstance(value, dict):
        report.add(path, f"{title} must be a table with a name: {section.title}")
        return
    for name, table in value.items():
        if isinstance(table, dict) or _is_array_of_tables(table):
            yield section, (*path, name), table
        else:
            report.add((*path, name), f"{title} {name!r} stands in {section.title}: add the name")


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _check_keys(section: Section, path: Path, table: Any, report: Report) -> Found:
    found = Found(section, plain(path[-1]), path)
    _check_name(found, report)
    if not isinstance(table, dict):
        report.add(path, f"{found.title} must be one table, written {section.title}")
        table = {}
    for word, value in table.items():
        _check_key(found, word, value, report)
    for key in section.keys:
        _fill_in(found, key, report)
    return found


def _check_name(found: Found, report: Report) -> None:
    try:
        if found.section.is_named:
            found.section.read_name(found.name)
    except Refused as fault:
        report.add(found.path, f"{found.title} {fault}")


def _check_key(found: Found, word: str, value: Any, report: Report) -> None:
    path, key = (*found.path, word), found.section.key(word)
    if key is None:
        report.add(path, f"{found.title} {_unknown(found, word, value)}")
        return
    found.given.add(key.attribute)
    try:
        found.values[key.attribute] = key.read(value)
    except Refused as fault:
        found.bad.add(key.attribute)
        report.add(path, f"{found.title} {word}: {fault}")


def _unknown(found: Found, word: str, value: Any) -> str:
    if word in found.section.later:
        return f"{word}: {found.section.later[word]}"
    if isinstance(value, dict):
        whole = header((*found.path[:-1], f"{found.name}.{plain(word)}"))
        return f"has a section {plain(word)!r} inside; a name with a dot is quoted: {whole}"
    words = tuple(key.name for key in found.section.keys)
    return f"unknown key {word!r}{did_you_mean(word, words)}"


def _fill_in(found: Found, key: Key, report: Report) -> None:
    """The default of a key that is absent or refused."""
    if key.is_required and key.attribute not in found.given:
        found.bad.add(key.attribute)
        report.add(found.path, f"{found.title} needs {key.name}: {key.why}")
    if key.attribute not in found.values:
        found.values[key.attribute] = key.default
