"""Rules of a watch: so many of something in a minute are worth an alert."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hms.errors.catalogue import HistoryError
from hms.history.events import EVENT_NAMES

__all__ = ["Rule", "parse_rule"]

_RULE = re.compile(r"(\S+)\s+([a-z_-]+)\s*(>=|>)\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """At least `least` of an event in a minute at a place, queue:NAME or topic:NAME, with * for
    any characters."""

    text: str
    place: str
    event: str
    least: int

    def holds(self, place: str, event: str, count: int) -> bool:
        """Whether it holds for what was counted."""
        return event == self.event and count >= self.least and fnmatchcase(place, self.place)


def parse_rule(text: str) -> Rule:
    """A rule such as "queue:orders dead_lettered >= 1" or "* sent > 1000". HistoryError."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        detail = f"rule {text!r}: write PLACE EVENT >= NUMBER, such as 'queue:orders expired >= 1'"
        raise HistoryError(detail=detail)
    place, event, relation, number = found.groups()
    event = event.replace("-", "_")
    if event not in EVENT_NAMES:
        known = ", ".join(EVENT_NAMES)
        raise HistoryError(detail=f"rule {text!r}: event {event!r} is not known; known are {known}")
    place = place if place.startswith(("queue:", "topic:", "*")) else f"*:{place}"
    return Rule(text.strip(), place, event, int(number) + (relation == ">"))
