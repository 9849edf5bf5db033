"""Scope: which events of the history are asked for, and the options that say so."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NoReturn

from hms.errors.catalogue import HistoryError
from hms.history.events import EVENT_NAMES, Place

__all__ = ["OPTIONS", "Scope", "as_time_ms", "parse_destination", "parse_scope", "parse_time_ms"]

OPTIONS = (
    "path",
    "destination",
    "event",
    "events",
    "from",
    "to",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsets",
    "endingOffsets",
    "selector",
    "includeBody",
    "view",
    "archive",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "pushdown",
)
"""What `spark.read.format("hms").option(…)` understands; case does not matter."""

WITH_HEAD = frozenset(("sent", "forwarded"))
"""The events whose rows have head and body, and so the only ones that a selector can match."""

_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_VIEWS = ("events", "messages")
_LITERAL = re.compile(r"[?\[]")
"""What stands for more than itself in a pattern of fnmatch, but not in ours."""
_QUOTED = re.compile(r"\[([?\[])\]")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which events are asked for. Empty sets and None mean no limit.

    destinations: (kind, name), kind None for either; from_ms … until_ms: milliseconds since 1970
    UTC, until_ms excluded; first_offset … until_offset: offsets, until_offset excluded. archive:
    where it lies, "" where the store says, "none" for the log alone; offsets_max: of a batch of a
    stream, 0 for no limit.
    """

    destinations: frozenset[tuple[str | None, str]] = frozenset()
    events: frozenset[str] = frozenset()
    from_ms: int | None = None
    until_ms: int | None = None
    first_offset: int = 0
    until_offset: int | None = None
    selector: str = ""
    includes_body: bool = True
    message_ids: frozenset[int] = frozenset()
    archive: str = ""
    fails_on_loss: bool = True
    offsets_max: int = 0
    pushes_down: bool = False
    patterns: frozenset[tuple[str | None, str]] = frozenset()
    """As destinations, with * for any characters in the name; a place is wanted that either has."""

    def wants(self, event: str, place: Place, time_ms: int) -> bool:
        """Whether events of that name, at that place and time, are asked for."""
        return (
            (not self.events or event in self.events)
            and (not self.selector or event in WITH_HEAD)
            and (self.from_ms is None or time_ms >= self.from_ms)
            and (self.until_ms is None or time_ms < self.until_ms)
            and self.wants_place(place)
        )

    def wants_place(self, place: Place) -> bool:
        """Whether what happens there is asked for."""
        if not (self.destinations or self.patterns):
            return True
        name = place.destination
        return name is not None and (
            (None, name) in self.destinations
            or (place.kind, name) in self.destinations
            or any(
                kind in (None, place.kind) and fnmatchcase(name, pattern)
                for kind, pattern in self.patterns
            )
        )

    def expressions(self) -> list[tuple[str | None, str]]:
        """The patterns as regular expressions of the whole name, for Java and Arrow too."""
        return [(kind, _expression(pattern)) for kind, pattern in sorted(self.patterns, key=str)]


def _expression(pattern: str) -> str:
    pieces = _QUOTED.sub(r"\1", pattern).split("*")
    return f"^(?s:{'.*'.join(map(re.escape, pieces))})$"


def parse_scope(options: Mapping[str, str]) -> Scope:
    """The scope that options describe; raises HistoryError for one that is not understood."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    places = frozenset(map(parse_destination, _words(given.get("destination", ""))))
    patterns = frozenset(place for place in places if "*" in place[1])
    return Scope(
        destinations=places - patterns,
        patterns=frozenset((kind, _LITERAL.sub(r"[\g<0>]", name)) for kind, name in patterns),
        events=_events(given),
        from_ms=_time(given, "from", "startingtimestamp"),
        until_ms=_time(given, "to", "endingtimestamp"),
        first_offset=_offset(given, "startingoffsets", "earliest") or 0,
        until_offset=_offset(given, "endingoffsets", "latest"),
        selector=given.get("selector", "").strip(),
        includes_body=_truth(given, "includebody", "includeBody"),
        archive=given.get("archive", ""),
        fails_on_loss=_truth(given, "failondataloss", "failOnDataLoss"),
        offsets_max=_number(given, "maxoffsetspertrigger", "maxOffsetsPerTrigger"),
        pushes_down=_truth({"pushdown": "false"} | given, "pushdown", "pushdown"),
    )


def parse_destination(text: str) -> tuple[str | None, str]:
    """(kind, name) of `queue:NAME`, `topic:NAME`, the same with a slash, or a bare NAME."""
    for separator in ":/":
        kind, found, name = text.partition(separator)
        if found and kind in {"queue", "topic"} and name:
            return kind, name
    return None, text


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970 UTC: digits, or an ISO 8601 time, in UTC unless it has a zone."""
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        _refuse(f"{text!r} is no time; write 2026-11-01T00:00Z or milliseconds since 1970")
    return as_time_ms(when)


def as_time_ms(when: datetime) -> int:
    """Whole milliseconds since 1970 UTC, rounded down as the node does; UTC without a zone."""
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - _EPOCH) // _MILLISECOND


def _refuse(detail: str) -> NoReturn:
    raise HistoryError(detail=detail) from None


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {known[near[0]]!r}?" if near else f"known are {', '.join(OPTIONS)}"
            )
            _refuse(f"there is no option {name!r} ({hint})")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _events(given: Mapping[str, str]) -> frozenset[str]:
    view = given.get("view", "events").lower()
    if view not in _VIEWS:
        _refuse(f"view {view!r} is not known; use {' or '.join(_VIEWS)}")
    events = frozenset(_words(given.get("events", "") + "," + given.get("event", "")))
    for name in events.difference(EVENT_NAMES):
        _refuse(f"event {name!r} is not known; known are {', '.join(EVENT_NAMES)}")
    if view == "messages":
        if events - {"sent"}:
            _refuse("view 'messages' shows sent events only; leave out view or event")
        return frozenset(("sent",))
    return events


def _time(given: Mapping[str, str], *names: str) -> int | None:
    texts = [given[name] for name in names if given.get(name)]
    if len(texts) > 1:
        _refuse(f"{' and '.join(names)} mean the same; give one of them")
    return parse_time_ms(texts[0]) if texts else None


def _offset(given: Mapping[str, str], name: str, open_end: str) -> int | None:
    text = given.get(name, open_end).lower()
    if text == open_end:
        return None
    if not text.isdecimal():
        _refuse(f"{name} {text!r} is neither a number nor {open_end!r}")
    return int(text)


def _truth(given: Mapping[str, str], name: str, shown: str) -> bool:
    text = given.get(name, "true").lower()
    if text not in _TRUTH:
        _refuse(f"{shown} is true or false, not {text!r}")
    return _TRUTH[text]


def _number(given: Mapping[str, str], name: str, shown: str) -> int:
    text = given.get(name, "0")
    if not text.isdecimal():
        _refuse(f"{shown} is a number of offsets, not {text!r}")
    return int(text)
