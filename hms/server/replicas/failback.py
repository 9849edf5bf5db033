"""Fail-back: when the preferred copy of a log is to lead again by itself (sans-IO).

It leads again when it has had everything for `after_s` without a break, and nothing is wrong with
the group. A break is another start of its process, a frame that it lacks, silence, an alarm.

A copy that comes and goes does not move the group each time: every move back of the last day
doubles the wait, and so does every move that was refused since this copy leads; up to WAIT_MAX_S.
A copy that an operator's switchover took the lead from is to be worked at: it leads again after its
next boot.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.segment_walk import opened

__all__ = ["Failback", "note_move", "recent_moves"]

WAIT_MAX_S: Final = 3600.0
RECENT_S: Final = 86_400
NAME: Final = "FAILBACK"


class Failback:
    """Of a primary that is not the preferred one. recent: moves back in the last day; sent_away_in:
    the start of the preferred copy's process that an operator took the lead from, 0 for none.
    Times are seconds of one clock."""

    def __init__(
        self, preferred: str, after_s: float, *, recent: int = 0, sent_away_in: int = 0
    ) -> None:
        self.preferred = preferred
        self._after_s, self._doublings = after_s, recent
        self._sent_away_in = sent_away_in
        self._start = 0
        self._since_s: float | None = None
        self.state = f"waits: {preferred} is not here"
        """For an operator."""

    def look(self, now_s: float, start: int, why_not: str) -> bool:
        """Whether it is to lead now. start: of its process, 0 when it is not connected; why_not: ""
        when it could lead at once, and nothing is wrong."""
        if not why_not and self._sent_away_in and start <= self._sent_away_in + 1:
            why_not = f"an operator's switchover left {self.preferred}: after its next boot"
        if why_not or start != self._start:
            self._start, self._since_s = start, None
        if why_not:
            self.state = f"waits: {why_not}"
            return False
        if self._since_s is None:
            self._since_s = now_s
        left_s = self._since_s + self.wait_s - now_s
        self.state = f"{self.preferred} leads again in {max(0.0, left_s):.0f} s"
        return left_s <= 0

    @property
    def wait_s(self) -> float:
        """How long it must have had everything."""
        longest_s = max(self._after_s, WAIT_MAX_S)
        return min(self._after_s * 2.0 ** min(self._doublings, 16), longest_s)

    def refused(self) -> None:
        """The move was begun, and something under way did not end: later again."""
        self._doublings += 1
        self._since_s = None


def recent_moves(disk: Disk, folder: Path, now_s: float) -> int:
    """How many moves back this copy has noted in the last day; now_s: since 1970. What cannot be
    read is none: it costs a move at most."""
    return len([one for one in _noted(disk, folder) if now_s - one < RECENT_S])


def note_move(disk: Disk, folder: Path, now_s: float) -> None:
    """One more, durably."""
    known: Sequence[float] = [one for one in _noted(disk, folder) if now_s - one < RECENT_S]
    new = folder / f"{NAME}.new"
    with opened(disk, new, CREATE) as fd:
        disk.ftruncate(fd, 0)
        write_all(disk, fd, [msgspec.json.encode([*known[-31:], now_s])], 0)
        disk.fsync(fd)
    disk.rename(new, folder / NAME)
    disk.fsync_dir(folder)


def _noted(disk: Disk, folder: Path) -> list[float]:
    try:
        with opened(disk, folder / NAME) as fd:
            return msgspec.json.decode(disk.pread(fd, disk.size(fd), 0), type=list[float])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []
