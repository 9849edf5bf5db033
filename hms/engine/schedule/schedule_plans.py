"""Plans: when a recurring message is due, where it goes, and what becomes of what was missed.

A plan is either an interval, whose occurrences lie on a grid that begins at first_ms, or a cron
expression in a time zone. Everything here is computed from the time given; calendars, which know
time zones, are given by the engine's creator.
"""

import enum
from typing import Protocol

import msgspec

from hms.errors.catalogue import InvalidSchedule, NotSupported

EVERY_MS_MIN = 100
EVERY_MS_MAX = 100 * 366 * 86_400_000
CRON_CHARACTERS_MAX = 200
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: no calendar, timer or reader knows a later one."""


class Missed(enum.StrEnum):
    """What becomes of occurrences that were due while the node was down."""

    SKIP = "SKIP"
    ONE = "ONE"
    ALL = "ALL"


class Calendar(Protocol):
    """Knows cron expressions and time zones. Computes; reads no clock."""

    def next_ms(self, cron: str, time_zone: str, after_ms: int) -> int | None:
        """The first time after that one, in milliseconds since 1970 UTC; None when there is none
        within the next fifty years. Raises InvalidSchedule."""


class NoCalendar:
    """Of an engine that was given none."""

    def next_ms(self, cron: str, time_zone: str, after_ms: int) -> int | None:  # noqa: ARG002
        """Refused: NotSupported."""
        raise NotSupported(feature=f"the cron expression {cron!r}", instead="Use an interval.")


NO_CALENDAR = NoCalendar()


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule as it is kept. kind, destination, topic: where its messages go, as of a producer;
    flags: of their rows. until_ms, count_max 0: without end. owner: the user who made it, "" where
    nobody checks logins."""

    name: str
    kind: str
    destination: str
    topic: str = ""
    every_ms: int = 0
    cron: str = ""
    time_zone: str = "UTC"
    first_ms: int = 0
    until_ms: int = 0
    count_max: int = 0
    missed: str = "ONE"
    is_persistent: bool = True
    ttl_ms: int = 0
    flags: int = 0
    owner: str = ""

    def next_ms(self, after_ms: int, sent: int, calendar: Calendar) -> int | None:
        """Its first occurrence after a time, when so many were sent before; None for no more."""
        if self.count_max and sent >= self.count_max:
            return None
        if self.cron:
            next_ms = calendar.next_ms(self.cron, self.time_zone, max(after_ms, self.first_ms - 1))
        elif after_ms < self.first_ms:
            next_ms = self.first_ms
        else:
            next_ms = after_ms + self.every_ms - (after_ms - self.first_ms) % self.every_ms
        last_ms = min(self.until_ms or TIME_MS_MAX, TIME_MS_MAX)
        return None if next_ms is None or next_ms > last_ms else next_ms

    def due_after_outage(
        self, due_ms: int, booted_ms: int, sent: int, calendar: Calendar
    ) -> int | None:
        """When it is due, given when it was, and that the node was down until now."""
        if due_ms < booted_ms and self.missed == Missed.SKIP:
            return self.next_ms(booted_ms, sent, calendar)
        return due_ms

    def follows(self, due_ms: int, booted_ms: int, sent: int, calendar: Calendar) -> int | None:
        """The occurrence behind one that was just sent as number `sent`. Of those that were missed
        before the boot ONE sends one only."""
        is_late = due_ms < booted_ms and self.missed == Missed.ONE
        return self.next_ms(booted_ms if is_late else due_ms, sent, calendar)


def check_plan(plan: Plan) -> None:
    """Refuse a plan that nobody can keep. InvalidSchedule."""
    detail = _fault(plan) or _fault_of_recurrence(plan)
    if detail:
        raise InvalidSchedule(name=plan.name, detail=detail)


def _fault(plan: Plan) -> str:
    if max(plan.first_ms, plan.until_ms) > TIME_MS_MAX:
        return "its start and its end are milliseconds since 1970, up to the year 9999"
    return "" if plan.name else "it has no name"


def _fault_of_recurrence(plan: Plan) -> str:
    if bool(plan.cron) == bool(plan.every_ms):
        return "it has either an interval or a cron expression"
    if plan.every_ms and not EVERY_MS_MIN <= plan.every_ms <= EVERY_MS_MAX:
        return f"an interval of {plan.every_ms} ms is not between 0.1 s and a hundred years"
    if len(plan.cron) > CRON_CHARACTERS_MAX:
        return f"a cron expression of {len(plan.cron)} characters"
    if plan.missed not in tuple(Missed):
        return f"missed is {plan.missed!r}, not {', '.join(Missed)}"
    return ""
