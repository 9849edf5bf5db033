"""A copy of a log compared with that of the replica that leads, by hash, while both work.

Copies have the same bytes at the same place of each segment (decision 0058), so equal hashes are
equal copies. A segment that is not written any more is compared as a whole, the newest one up to
where this copy knows that it is confirmed.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from hms.boot.primary_questions import PrimaryQuestions
from hms.errors.catalogue import StoreCorrupt
from hms.server.replicas.damage import check_segment, tail_damage
from hms.server.replicas.frames import BYTES_MAX, Digest, Digested, Inspect, Inspected, digest_of
from hms.store.journal.confirmed_place import NOTHING, Place, confirmed_place
from hms.store.journal.disk import READ, REAL_DISK
from hms.store.journal.segment_walk import (
    LOG_SUFFIX,
    all_files,
    opened,
    read_info,
    segment_numbers,
)

__all__ = ["Compared", "Difference", "compare"]

REST_SHARE: Final = 4
"""So many times as long as an answer took nothing is asked: others get four fifths (P13)."""
REST_MAX_S: Final = 0.1
IN_SYNC: Final = "IN_SYNC"


class Difference(msgspec.Struct, frozen=True):
    """A segment whose bytes differ from an offset on. here: what is wrong with those of this copy,
    "" when each of its records verifies; is_past: it lies behind the log, where an erasure writes
    on each machine by itself."""

    segment: int
    offset: int
    epoch: int
    here: str
    is_past: bool


class Compared(msgspec.Struct, frozen=True):
    """What came of it. lacks: segments that only the primary has; differs: of those that both
    have; state: of this copy as the primary knows it; is_behind: it is not in sync, and more is
    confirmed than it knows of."""

    primary: str
    epoch: int
    segments: int
    bytes: int
    lacks: list[int]
    differs: list[Difference]
    state: str
    is_behind: bool

    @property
    def is_same(self) -> bool:
        """Nothing differs, and nothing is missing."""
        return not (self.lacks or self.differs or self.is_behind)

    def described(self) -> dict[str, Any]:
        """As plain data."""
        return {**msgspec.to_builtins(self), "is_same": self.is_same}


def compare(primary: PrimaryQuestions, folder: Path) -> Compared:
    """All segments that are at either place now. RequestTimeout."""
    seen = primary.ask(Inspect(), Inspected)
    own = all_files(REAL_DISK, folder)
    newest = max(segment_numbers(REAL_DISK, folder, LOG_SUFFIX), default=0)
    place = confirmed_place(folder) or NOTHING
    compared, size, differs = 0, 0, []
    for number in sorted(set(own) & set(seen.segments)):
        if number > place.segment:
            continue  # nothing of it is confirmed here yet
        end = place.offset if number == place.segment else None
        one = _Segment(primary, folder, number, end, is_newest=number == newest)
        found = one.difference()
        compared, size = compared + 1, size + one.size
        differs += [] if found is None else [found]
    still = set(primary.ask(Inspect(), Inspected).segments)  # it lets go of some meanwhile
    there = set(all_files(REAL_DISK, folder))
    lacks = sorted(n for n in still & set(seen.segments) - there if n <= seen.confirmed[0])
    is_behind = seen.state != IN_SYNC and place < Place(*seen.confirmed)
    now = primary.now
    return Compared(now.primary, now.epoch, compared, size, lacks, differs, seen.state, is_behind)


class _Segment:
    """One of them. end: behind which nothing is compared, None for all of it."""

    def __init__(
        self,
        primary: PrimaryQuestions,
        folder: Path,
        number: int,
        end: int | None,
        *,
        is_newest: bool,
    ) -> None:
        self._primary, self._folder, self._number, self._end = primary, folder, number, end
        self._is_newest = is_newest
        self.size = 0
        """Bytes that were compared."""

    def difference(self) -> Difference | None:
        """The first one; looked at twice, as either side may let a file go and use it again."""
        if self._first() is None:
            return None
        offset = self._first()
        return None if offset is None else self._told(offset)

    def _first(self) -> int | None:
        """The offset of the first byte that differs."""
        self.size = 0
        for offset, data in self._parts():
            there = self._asked(offset, len(data) or BYTES_MAX)
            if there is None or not (data or there.size):
                return None  # let go of meanwhile, or both have ended
            if not _is_same(data, there):
                return self._narrowed(offset, data)
            self.size += len(data)
        return None

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """What is here, in pieces; empty ones behind the end of a file that is compared whole, as
        the other one may be longer."""
        file = all_files(REAL_DISK, self._folder).get(self._number)
        if file is None:
            return
        with suppress(FileNotFoundError), opened(REAL_DISK, file, READ) as fd:
            at = 0
            while self._end is None or at < self._end:
                room = BYTES_MAX if self._end is None else min(BYTES_MAX, self._end - at)
                data = REAL_DISK.pread(fd, room, at)
                yield at, data
                at += len(data) or room

    def _asked(self, offset: int, size: int) -> Digested | None:
        """What is there, and a rest for those who work."""

        def fits(found: Digested) -> bool:
            is_it = (found.number, found.offset) == (self._number, offset)
            return is_it and found.size <= size

        begun = time.monotonic()
        found = self._primary.ask(Digest(self._number, offset, size), Digested, fits)
        rest_s = min(REST_SHARE * (time.monotonic() - begun), REST_MAX_S)
        threading.Event().wait(rest_s)
        return None if found.size < 0 else found

    def _narrowed(self, offset: int, data: bytes) -> int:
        """By halves, to the byte."""
        if not data:
            return offset
        low, high = 0, len(data)
        while high - low > 1:
            middle = (low + high) // 2
            there = self._asked(offset + low, middle - low)
            if there is not None and _is_same(data[low:middle], there):
                low = middle
            else:
                high = middle
        return offset + low

    def _told(self, offset: int) -> Difference | None:
        file = all_files(REAL_DISK, self._folder).get(self._number)
        if file is None:
            return None
        damage = (
            tail_damage(REAL_DISK, self._folder, is_live=True)
            if self._is_newest
            else check_segment(REAL_DISK, self._folder, self._number)
        )
        here, epoch = "" if damage is None else f"at {damage.offset}: {damage.detail}", 0
        with suppress(StoreCorrupt, FileNotFoundError):  # which is told by the look at it
            epoch = read_info(REAL_DISK, file, self._number, is_last=self._is_newest).epoch
        return Difference(self._number, offset, epoch, here, file.suffix != LOG_SUFFIX)


def _is_same(here: bytes, there: Digested) -> bool:
    """Behind the end of the shorter one there are zeros, of a segment that was not filled."""
    size = there.size
    padded = here[:size].ljust(size, b"\0")
    return digest_of(padded) == there.digest and not any(here[size:])
