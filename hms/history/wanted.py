"""What a replay is to do: which messages, where to, and under which name it is known."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

from hms.errors.catalogue import HistoryError
from hms.history.scope import as_time_ms, parse_destination

__all__ = ["DESTINATION", "Into", "Wanted", "When", "time_text"]

DESTINATION = "{destination}"
"""In the name of the target: the name of the place that a message was sent to."""
RUN_CHARACTERS_MAX = 100

When = str | int | datetime | None
_RUN = re.compile(r"[A-Za-z0-9._:-]+")
_FIELD = re.compile(r"\{[^}]*\}?|\}")


class Into(NamedTuple):
    """Where replayed messages go. kind: queue, topic, or None: as it was, else a queue."""

    kind: str | None
    name: str

    def place(self, destination: str, kind: str) -> tuple[str, str]:
        """(kind, name) of the target for a message that was sent to a destination."""
        if DESTINATION not in self.name:
            return self.kind or "queue", self.name
        return self.kind or kind, self.name.replace(DESTINATION, destination)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A replay as it was asked for; options: of the source, without those that limit offsets.

    takes_copies: also messages that a replay brought where they are.
    """

    into: str
    options: Mapping[str, str]
    takes_copies: bool = False
    run: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for field in _FIELD.findall(self.into):
            if field != DESTINATION:
                raise HistoryError(detail=f"--into knows {DESTINATION} and no {field}")
        if not self.target.name:
            raise HistoryError(detail="--into names no destination")
        if self.run and not (_RUN.fullmatch(self.run) and len(self.run) <= RUN_CHARACTERS_MAX):
            detail = f"run id {self.run!r}: 1 to {RUN_CHARACTERS_MAX} letters, digits or . _ : -"
            raise HistoryError(detail=detail)

    @property
    def target(self) -> Into:
        """Where the messages go."""
        return Into(*parse_destination(self.into))

    @property
    def meant(self) -> dict[str, str]:
        """What must be the same when a run is resumed."""
        copies = {"copies": "true"} if self.takes_copies else {}
        return {"into": self.into, **copies, **dict(sorted(self.options.items()))}

    def run_of(self, source: str) -> str:
        """The run's id; without one of its own it follows from what is wanted, so that the same
        command twice is one run. source: which history it is."""
        text = json.dumps([source, self.meant], ensure_ascii=False)
        return self.run or f"auto-{blake2b(text.encode(), digest_size=6).hexdigest()}"


def time_text(when: When) -> str:
    """A time as an option of the source takes it."""
    if isinstance(when, datetime):
        return str(as_time_ms(when))
    return "" if when is None else str(when)
