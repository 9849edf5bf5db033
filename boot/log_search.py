"""The entries of a node's log: read from its files, those that were rotated too, and chosen."""

import gzip
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from hms.boot.rotated_files import number_of
from hms.client.core.log_events import event_of_text

__all__ = [
    "LEVELS",
    "Chosen",
    "Entry",
    "begun_ms",
    "entries_of",
    "files_of",
    "follow",
    "lines_for_people",
    "written_since",
]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOOK_S = 0.25
_HEAD_BYTES = 1 << 16
_ON_ITS_WAY_MS = 60_000
_TEXT = re.compile(
    r"(?:(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) )?"
    rf"(?P<level>{'|'.join(LEVELS)}) (?P<event>[^:]+): (?P<text>.*)"
)


class Entry(NamedTuple):
    """at_ms: 0 where the line does not say when; lines: as they stand in the file; fields: what a
    line in JSON says, or the same of a line for people."""

    at_ms: int
    level: str
    event: str
    lines: tuple[str, ...]
    fields: dict[str, Any]

    @property
    def text(self) -> str:
        """What was written."""
        return "\n".join(self.lines)

    @property
    def for_people(self) -> tuple[str, ...]:
        """Its lines; of one in JSON the same as text, with what else it says behind it."""
        if "ts" not in self.fields or not self.lines[0].startswith("{"):
            return self.lines
        said = {name: value for name, value in self.fields.items() if name not in _HEAD}
        traceback = str(said.pop("traceback", ""))
        more = "".join(f" {name}={value}" for name, value in said.items())
        text = str(self.fields.get("text", ""))
        first = f"{self.fields['ts']} {self.level} {self.event}: {text}{more}"
        return (*first.split("\n"), *traceback.splitlines(), *self.lines[1:])


_HEAD = {"ts", "level", "event", "logger", "text", "node", "boot"}
_UNKNOWN = Entry(0, "INFO", "", (), {})
"""To which lines belong that no entry precedes."""


class Chosen(NamedTuple):
    """Which entries are wanted; "" and 0: any. level: this one or worse; event: its name, or that
    of its logger, or what that begins with; words: all of them, in small or large letters."""

    level: str = "DEBUG"
    event: str = ""
    request: str = ""
    since_ms: int = 0
    until_ms: int = 0
    words: tuple[str, ...] = ()

    def has(self, entry: Entry) -> bool:
        """Whether it is one of them."""
        text = entry.text.casefold()
        return (
            LEVELS.index(entry.level) >= LEVELS.index(self.level)
            and (not self.event or _is_of(entry, self.event))
            and (not self.request or _names(entry, self.request))
            and self.since_ms <= entry.at_ms
            and not (self.until_ms and entry.at_ms >= self.until_ms)
            and all(word.casefold() in text for word in self.words)
        )


def _is_of(entry: Entry, event: str) -> bool:
    logger = str(entry.fields.get("logger", entry.event))
    if entry.event == event or f"{logger}.".startswith(f"{event}."):
        return True
    return event_of_text(logger, str(entry.fields.get("text", ""))) == event


def _names(entry: Entry, request: str) -> bool:
    if "request" in entry.fields:
        return str(entry.fields["request"]) == request
    return re.search(rf"(?<![\w-]){re.escape(request)}(?![\w-])", entry.text) is not None


def _raised(_file: Path, fault: Exception) -> None:
    raise fault


def files_of(log_file: Path) -> list[Path]:
    """The log and what was rotated beside it, such as NODE1.log.1 and NODE1.log-20260501.gz, in the
    order in which they were written."""
    names = f"{re.escape(log_file.name)}[.-].*"
    found = {path.name: path for path in log_file.parent.glob("*") if path.is_file()}
    rotated = [
        path
        for name, path in found.items()
        if re.fullmatch(names, name)
        and not (path.suffix == ".gz" and path.stem in found)  # it is being made from that one
    ]
    rotated.sort(key=lambda path: (_mtime_ns(path), path.name))
    numbered = iter(sorted((number, path) for path in rotated if (number := number_of(path))))
    rotated = [next(numbered)[1] if number_of(path) else path for path in rotated]
    return [*rotated, *([log_file] if log_file.exists() else [])]


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def begun_ms(log_file: Path) -> int:
    """When the first line was written that says it; 0: none says it."""
    with log_file.open("rb") as lines:
        head = lines.read(_HEAD_BYTES).decode("utf-8", "replace").splitlines()
    return next((entry.at_ms for entry in map(_parsed, head) if entry and entry.at_ms), 0)


def entries_of(
    files: Iterable[Path], on_damage: Callable[[Path, Exception], object] = _raised
) -> Iterator[Entry]:
    """In their order. A file that goes meanwhile is left out, or read as it was compressed; one
    that cannot be read to its end is told, and the next one follows."""
    for file in files:
        try:
            with _opened(file) as lines:
                yield from _joined(line.decode("utf-8", "replace") for line in lines)
        except FileNotFoundError:
            continue
        except (OSError, EOFError, zlib.error) as fault:
            on_damage(file, fault)


def lines_for_people(lines: Iterable[str]) -> list[str]:
    """Lines of a log as people read them, whether they are in JSON or not."""
    return [line for entry in _joined(lines) for line in entry.for_people]


def written_since(files: Iterable[Path], since_ms: int) -> list[Path]:
    """Those that were written later than that; with a minute for a line on its way to the disk."""
    begin_ns = (since_ms - _ON_ITS_WAY_MS) * 1_000_000
    return [file for file in files if _mtime_ns(file) >= begin_ns]


def _opened(file: Path) -> BinaryIO:
    if file.suffix != ".gz":
        try:
            return file.open("rb")
        except FileNotFoundError:
            file = file.with_name(f"{file.name}.gz")
    return cast("BinaryIO", gzip.open(file))


def follow(log_file: Path, pause: Callable[[float], object] = time.sleep) -> Iterator[Entry]:
    """What is written from now on, forever; also to a file that takes the place of this one."""
    last, start = _UNKNOWN, os.SEEK_END  # of a file that comes later all is new
    while True:
        if log_file.exists():
            with log_file.open("rb") as lines:
                lines.seek(0, start)
                for entry in _followed(log_file, lines, last, pause):
                    yield entry
                    last = entry
        else:
            pause(LOOK_S)
        start = os.SEEK_SET


def _followed(
    log_file: Path, lines: BinaryIO, last: Entry, pause: Callable[[float], object]
) -> Iterator[Entry]:
    """Until another file is there under that name."""
    rest, number, is_last = b"", os.fstat(lines.fileno()).st_ino, False
    while True:
        data = lines.read()
        *whole, rest = (rest + data).split(b"\n")
        for entry in _joined((line.decode("utf-8", "replace") for line in whole), last):
            yield entry
            last = entry
        if data:
            continue
        if is_last:
            return
        is_last = _is_other(log_file, number, lines.tell())
        if not is_last:  # else what was written before it went is read first
            pause(LOOK_S)


def _is_other(log_file: Path, number: int, read: int) -> bool:
    """Whether another file is there under that name, or this one was emptied."""
    try:
        found = log_file.stat()
    except FileNotFoundError:
        return False  # the node has yet to begin a new one
    return found.st_ino != number or found.st_size < read


def _joined(lines: Iterable[str], before: Entry = _UNKNOWN) -> Iterator[Entry]:
    """Lines that begin no entry, such as those of a traceback, belong to the one before; where that
    was told already, they are one with its level, name and time."""
    last: Entry | None = None
    for whole in lines:
        line = whole.rstrip("\n")
        entry = _parsed(line)
        if entry is None:
            begun = last or before._replace(lines=())
            last = begun._replace(lines=(*begun.lines, line))
            continue
        if last is not None:
            yield last
        last = entry
    if last is not None:
        yield last


def _parsed(line: str) -> Entry | None:
    if line.startswith("{"):
        return _of_json(line)
    match = _TEXT.fullmatch(line)
    if match is None:
        return None
    at = match["at"]
    moment = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").astimezone() if at else None
    at_ms = round(moment.timestamp() * 1000) if moment else 0
    fields: dict[str, Any] = {"ts": _written(moment)} if moment else {}
    fields |= {"level": match["level"], "event": match["event"], "text": match["text"]}
    return Entry(at_ms, match["level"], match["event"], (line,), fields)


def _of_json(line: str) -> Entry | None:
    try:
        said = json.loads(line)
        at = datetime.fromisoformat(said["ts"])
        level, event = said["level"], said["event"]
    except (ValueError, TypeError, KeyError):
        return None
    if level not in LEVELS or not isinstance(event, str):
        return None
    return Entry(round(at.timestamp() * 1000), level, event, (line,), said)


def _written(moment: datetime) -> str:
    at = moment.astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
