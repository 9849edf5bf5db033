"""Schedules: messages that the node sends again and again, and those that wait for their time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from hms.client.core.arguments import (
    check_flag,
    check_number,
    check_seconds,
    check_text,
    check_word,
)
from hms.client.pending_sends import SendOptions
from hms.client.send_options import When, epoch_s
from hms.errors.catalogue import InvalidArgument
from hms.wire.structures import ScheduleHead

__all__ = ["Schedule"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_CHARACTERS_MAX = 255
_COUNT_MAX = 0xFFFF_FFFF
_KINDS = ("", "schedule", "delayed")
_MISSED = ("SKIP", "ONE", "ALL")
_TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, which is the last one that datetime knows."""


class Recurrence(TypedDict, total=False):
    """When a scheduled message is sent: every so many seconds, or as a cron expression says.

    every_s: an interval; its first message comes at start, without that after one interval. cron:
    minute, hour, day, month, day of the week, in time_zone (UTC unless said), from start on. until:
    no more after that moment; count: so many in all. missed: what becomes of those that were due
    while the node was down: SKIP none, ONE a single one (unless said otherwise), ALL of them.
    replace: another schedule of that name ends.
    """

    every_s: float | None
    cron: str | None
    time_zone: str
    start: When | None
    until: When | None
    count: int
    missed: str
    replace: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, or with kind "delayed" a message that waits for its time, named by its id.

    next_time: when it is due next. sent: so many messages of it were sent. error: why the last one
    could not be sent; it is tried again.
    """

    name: str
    kind: str
    destination: str
    next_time: datetime
    every_s: float = 0
    cron: str = ""
    time_zone: str = ""
    missed: str = ""
    sent: int = 0
    start: datetime | None = None
    until: datetime | None = None
    max_count: int = 0
    persistent: bool = True
    error: str = ""


def schedules_asked(kind: str, destination: str, limit: int) -> dict[str, Any]:
    """What the node is asked to list."""
    return {
        "kind": check_word("kind", kind, _KINDS),
        "destination": check_text("destination", destination, _NAME_CHARACTERS_MAX + 6),
        "limit": check_number("limit", limit, 1, _COUNT_MAX),
    }


def schedule_named(name: str) -> dict[str, Any]:
    """Which one the node is asked for."""
    return {"name": check_text("name", name)}


def schedule_of(told: Mapping[str, Any]) -> Schedule:
    """What the node says of a schedule or of a delayed message."""
    return Schedule(
        told["name"],
        told["kind"],
        told["destination"],
        _EPOCH + timedelta(milliseconds=min(told["next_ms"], _TIME_MS_MAX)),
        told.get("every_s", 0),
        told.get("cron", ""),
        told.get("time_zone", ""),
        told.get("missed", ""),
        told.get("sent", 0),
        _time(told.get("first_ms", 0)),
        _time(told.get("until_ms", 0)),
        told.get("max_count", 0),
        told["persistent"],
        told.get("error", ""),
    )


def schedule_head(
    producer: int,
    name: str,
    recurrence: Recurrence,
    options: SendOptions,
    now_ms: int,
    request: tuple[int, int],
) -> ScheduleHead:
    """What the node is asked for; InvalidArgument."""
    unknown = sorted(set(recurrence) - set(Recurrence.__annotations__))
    if unknown:
        raise InvalidArgument(what=", ".join(unknown), detail="a schedule has no such option")
    every_s, cron = recurrence.get("every_s"), recurrence.get("cron")
    every_s, cron = 0 if every_s is None else every_s, "" if cron is None else cron
    every_ms = math.ceil(check_seconds("every_s", every_s) * 1000)
    start, until = recurrence.get("start"), recurrence.get("until")
    first_ms = now_ms + every_ms if start is None else _moment_ms("start", start)
    if start is None and cron:
        first_ms = 0
    count = check_number("count", recurrence.get("count", 0), 0, _COUNT_MAX)
    _check_texts(name, cron, recurrence)
    return ScheduleHead(
        producer,
        name,
        every_ms,
        cron,
        recurrence.get("time_zone", "UTC"),
        first_ms,
        0 if until is None else _moment_ms("until", until),
        count,
        check_word("missed", recurrence.get("missed", "ONE"), _MISSED),
        options.is_persistent,
        check_flag("replace", recurrence.get("replace", False)),
        *request,
    )


def _check_texts(name: str, cron: str, recurrence: Recurrence) -> None:
    """What the wire would refuse without saying what it is."""
    check_text("name", name)
    check_text("cron", cron)
    check_text("time_zone", recurrence.get("time_zone", ""))


def _moment_ms(what: str, when: When) -> int:
    moment_ms = math.ceil(epoch_s(what, when) * 1000)
    if not 0 < moment_ms <= _TIME_MS_MAX + 1:  # datetime.max is rounded up
        detail = f"{when} is not a time from 1970 to the year 9999, in seconds since 1970"
        raise InvalidArgument(what=what, detail=detail)
    return min(moment_ms, _TIME_MS_MAX)


def _time(at_ms: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=at_ms) if at_ms else None
    except OverflowError:
        return None
