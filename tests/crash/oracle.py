"""What must be, and what may be, in the log at a place of a trace: the judge of crash states."""

from collections.abc import Iterable
from typing import Final

from tests.crash.recording import Noted, Step

Kept = tuple[int, int, int, bytes]
"""A record: first sequence number, kind, count, payload."""
SENT: Final = 3
TAKEN: Final = 5
MOVED: Final = 13
PINNED: Final = 43


def waiting(records: Iterable[Kept]) -> set[bytes]:
    """The names of messages that were sent, moved or pinned, and not taken."""
    found: set[bytes] = set()
    for _, kind, _, body in records:
        if kind == TAKEN:
            found.discard(body)
        elif kind == PINNED:
            found.update(pinned_names(body)[1])
        else:
            found.add(body.partition(b" ")[0])
    return found


def pinned_names(body: bytes) -> tuple[int, list[bytes]]:
    """The segment that a PINNED record of these programs tells of, and the names of what waits."""
    segment, *names = body.split(b" ")
    return int(segment), names


class Oracle:
    """The records in order: those that were confirmed, and behind them those that were appended.

    Of a log that is cleaned the first part may be gone, when no message waits in it.
    """

    def __init__(self) -> None:
        self.records: list[Kept] = []
        self.confirmed = 0

    def apply(self, step: Step) -> None:
        """One step further; a boot makes everything that it found certain."""
        if not isinstance(step, Noted):
            return
        if step.what == "appended":
            self.records.append(step.value)
        elif step.what == "confirmed":
            self.confirmed = len(self.records)
        elif step.what == "booted":
            assert self.fault(step.value) is None, self.fault(step.value)
            del self.records[self._place_of(step.value) + len(step.value) :]
            self.confirmed = len(self.records)

    def fault(self, found: list[Kept]) -> str | None:
        """What is wrong with a recovered log, or None."""
        first = self._place_of(found)
        end = first + len(found)
        if end < self.confirmed:
            return f"{self.confirmed} records were confirmed, {end} are there"
        if found != self.records[first:end]:
            return "a record is there that was not appended, or not at this place"
        if first and waiting(found) != waiting(self.records[:end]):
            return "a message that still waits was let go with its segment"
        return None

    def _place_of(self, found: list[Kept]) -> int:
        if not found:
            return 0
        for n, record in enumerate(self.records):
            if record[0] == found[0][0]:
                return n
        return 0
