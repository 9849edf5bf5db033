"""Minutes: what a watch has counted, and the alerts that came of it, in one SQLite file.

A batch of the stream tells the counts of the minutes that it changed, whole, not by how much. So a
batch that comes again after a crash changes nothing, and its alerts are known already.
"""

import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import HistoryError
from hms.history.rules import Rule

__all__ = ["Alert", "Minute", "Minutes", "minutes"]

FILE = "minutes.sqlite"
MINUTE_MS = 60_000
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS minutes (
    minute_ms INTEGER, place TEXT, event TEXT, count INTEGER,
    PRIMARY KEY (minute_ms, place, event)
);
CREATE TABLE IF NOT EXISTS above (
    rule TEXT, place TEXT, minute_ms INTEGER, is_told INTEGER,
    PRIMARY KEY (rule, place, minute_ms)
);
CREATE TABLE IF NOT EXISTS alerts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    rule TEXT, place TEXT, minute_ms INTEGER, count INTEGER
);
"""


class Minute(NamedTuple):
    """How often something happened at a place in the minute that begins then."""

    minute_ms: int
    place: str
    event: str
    times: int


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule began to hold at a place in that minute; alerts are numbered from 1."""

    number: int
    rule: str
    place: str
    minute_ms: int
    count: int


class Minutes:
    """See the module. name: which watch it is, for ever."""

    def __init__(self, database: sqlite3.Connection, source: str) -> None:
        self._database = database
        database.executescript(_TABLES)
        with database:
            self.name = self._known("name", uuid.uuid4().hex)
            began_with = self._known("source", source)
        if began_with != source:
            detail = f"this checkpoint is that of a watch over {began_with}, not {source}"
            raise HistoryError(detail=detail)

    def _known(self, name: str, value: str) -> str:
        self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
        found: tuple[str] = self._database.execute(
            "SELECT value FROM meta WHERE name = ?", (name,)
        ).fetchone()
        return found[0]

    def apply(self, counted: Iterable[Minute], rules: Iterable[Rule]) -> None:
        """Take counts over, with the alerts that follow, in one transaction."""
        judged = tuple(rules)
        with self._database:
            for one in sorted(counted):
                self._database.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)", one)
                for rule in judged:
                    if rule.holds(one.place, one.event, one.times):
                        self._crossed(rule, one)

    def _crossed(self, rule: Rule, one: Minute) -> None:
        """An alert, unless the rule holds in a minute beside this one that was told already."""
        key = (rule.text, one.place)
        known = "SELECT is_told FROM above WHERE rule = ? AND place = ? AND minute_ms = ?"
        if self._database.execute(known, (*key, one.minute_ms)).fetchone():
            return
        is_told = any(
            self._database.execute(known, (*key, one.minute_ms + step)).fetchone()
            for step in (-MINUTE_MS, MINUTE_MS)
        )
        self._database.execute(
            "INSERT INTO above VALUES (?, ?, ?, ?)", (*key, one.minute_ms, not is_told)
        )
        if not is_told:
            self._database.execute(
                "INSERT INTO alerts (rule, place, minute_ms, count) VALUES (?, ?, ?, ?)",
                (*key, one.minute_ms, one.times),
            )

    def alerts_behind(self, number: int) -> list[Alert]:
        """The alerts behind that number, in order."""
        rows = self._database.execute(
            "SELECT number, rule, place, minute_ms, count FROM alerts WHERE number > ? "
            "ORDER BY number",
            (number,),
        )
        return [Alert(*row) for row in rows]

    def all(self) -> list[Minute]:
        """Every minute that was counted, in order."""
        rows = self._database.execute("SELECT * FROM minutes ORDER BY minute_ms, place, event")
        return [Minute(*row) for row in rows]


@contextmanager
def open_minutes(checkpoint: Path, source: str) -> Iterator[Minutes]:
    """The minutes of a watch, new if there are none. HistoryError."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(checkpoint / FILE, check_same_thread=False)
    except (OSError, sqlite3.Error) as fault:
        raise HistoryError(detail=f"{checkpoint} cannot be used: {fault}") from fault
    with closing(database):
        try:
            yield Minutes(database, source)
        except sqlite3.Error as fault:
            raise HistoryError(detail=f"{checkpoint / FILE}: {fault}") from fault


def minutes(checkpoint: str | Path) -> list[Minute]:
    """What a watch with that checkpoint has counted so far. HistoryError."""
    file = Path(checkpoint) / FILE
    if not file.exists():
        raise HistoryError(detail=f"{checkpoint} is no checkpoint of hms history watch")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT * FROM minutes ORDER BY minute_ms, place, event")
        return [Minute(*row) for row in rows]
