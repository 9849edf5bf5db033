"""Pages of a store's audit, the newest records first, without a look at those that are newer or
much older.

The opening of a segment tells how many records came before it, so the one that holds a number is
found by halving, and so is the block of it; a segment is walked once to find its blocks.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import StoreUnavailable
from hms.history.audit_trail import decoded
from hms.history.tables import audit_below
from hms.records.audit import AuditEntry
from hms.store.journal.audit_blocks import AuditBlocks
from hms.store.journal.audit_files import audit_files
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.reader import segment_info
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_walk import AUDIT_SUFFIX, all_files

__all__ = ["AuditLog", "AuditPage", "Wanted", "page_of_tables"]

LOOK_S = 1.5
"""So long a page looks for records that are asked for; then it says how far it came."""
NEWEST = (1 << 63) - 1
Wanted = Callable[[AuditEntry], bool]
Clock = Callable[[], float]


class AuditPage(NamedTuple):
    """entries: the newest first; before: what comes next has lower numbers than this, 0: there is
    nothing; is_cut: the time was over before the page was full."""

    entries: list[AuditEntry]
    before: int
    is_cut: bool = False


class AuditLog:
    """Of a store's folder. In any thread; one page at a time."""

    def __init__(self, folder: Path, clock: Clock = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._blocks = AuditBlocks(REAL_DISK)
        self._lock = threading.Lock()

    def page(self, wanted: Wanted, before: int = 0, limit: int = 100) -> AuditPage:
        """Up to `limit` records with numbers lower than `before`, 0: of all. StoreCorrupt,
        StoreUnavailable."""
        try:
            with self._lock:
                files = _Files(self._folder, self._blocks)
                return _page(files, wanted, before or NEWEST, limit, self._clock)
        except OSError as error:
            detail = error.strerror or str(error)
            raise StoreUnavailable(path=str(self._folder), detail=detail) from error


def page_of_tables(
    address: str,
    password: str | None,
    wanted: Wanted,
    before: int = 0,
    limit: int = 100,
    clock: Clock = time.monotonic,
) -> AuditPage:
    """The same of a database. DatabaseUnavailable."""
    found: list[AuditEntry] = []
    until_s, last = clock() + LOOK_S, 0
    for record in audit_below(address, password, before or NEWEST):
        if last and (len(found) == limit or clock() >= until_s):
            return AuditPage(found, last, is_cut=len(found) < limit)
        one = decoded(record, address.rpartition("@")[2])
        last = one.number
        if wanted(one):
            found.append(one)
    return AuditPage(found, 0)


def _page(files: "_Files", wanted: Wanted, end: int, limit: int, clock: Clock) -> AuditPage:
    found: list[AuditEntry] = []
    until_s = clock() + LOOK_S
    while len(files):
        at = max(files.before(end), 0)
        for entries in files.backwards(at, end):
            if entries:
                end = entries[0].number
                found += [one for one in reversed(entries) if wanted(one)]
            if len(found) >= limit:
                return AuditPage(found[:limit], files.unless_first(found[limit - 1].number))
            if clock() >= until_s and files.unless_first(end):
                return AuditPage(found, end, is_cut=True)
        end = min(end, files.first_number(at))
        if not at:
            break
    return AuditPage(found, 0)


class _Files:
    """What holds the audit of a store, the oldest first."""

    def __init__(self, folder: Path, blocks: AuditBlocks) -> None:
        segments = all_files(REAL_DISK, folder).values()
        files = [*audit_files(REAL_DISK, folder), *segments]
        self._files, self._blocks = sorted(files, key=lambda file: file.stem), blocks
        self._first: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._files)

    def before(self, end: int) -> int:
        """The last one whose first record has a lower number; -1 none."""
        low, high = 0, len(self._files)
        while low < high:
            middle = (low + high) // 2
            if self.first_number(middle) < end:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def first_number(self, at: int) -> int:
        """Of the first record in it, or of one that comes later when it has none."""
        if at not in self._first:
            self._first[at] = self._told(at)
        return self._first[at]

    def unless_first(self, number: int) -> int:
        """The number, or 0 when nothing is older."""
        is_older = number > self.first_number(0) or number > self._first_of(0)
        return number if is_older else 0

    def backwards(self, at: int, end: int) -> Iterator[list[AuditEntry]]:
        """Records with lower numbers than end that stand in a file, the last ones first, each list
        in the order of the log. StoreCorrupt."""
        parts = self._blocks_of(at, end)
        first = next(parts, [])
        # An opening counts records that were made before it was written and stand behind it.
        if end < NEWEST and (not first or first[-1].number < end - 1):
            yield from self._behind(at, end)
        yield first
        yield from parts

    def _behind(self, at: int, end: int) -> Iterator[list[AuditEntry]]:
        following = range(at + 1, len(self._files))
        alike = [n for n in following if self.first_number(n) == self.first_number(at + 1)]
        for follower in reversed(alike):
            yield from self._blocks_of(follower, end)

    def _blocks_of(self, at: int, end: int) -> Iterator[list[AuditEntry]]:
        file = self._files[at]
        starts = self._blocks.of(file)
        low, high = 0, len(starts)
        while low < high:
            middle = (low + high) // 2
            if self._number_at(file, starts, middle) < end:
                low = middle + 1
            else:
                high = middle
        for block in reversed(range(low)):
            until = starts[block + 1] if block + 1 < len(starts) else None
            every = self._entries(file, starts[block], until)
            yield [one for one in every if one.number < end]

    def _number_at(self, file: Path, starts: list[int], block: int) -> int:
        return next((one.number for one in self._entries(file, starts[block], None)), NEWEST)

    def _first_of(self, at: int) -> int:
        """The number of the first record that stands in a file; NEWEST: it has none."""
        file = self._files[at]
        starts = self._blocks.of(file)
        return self._number_at(file, starts, 0) if starts else NEWEST

    def _told(self, at: int) -> int:
        file = self._files[at]
        if file.suffix != AUDIT_SUFFIX:
            told = opening(REAL_DISK, segment_info(REAL_DISK, file))
            if told is not None:
                return told.audit_number + 1
        return self._first_of(at)

    def _entries(self, file: Path, start: int, end: int | None) -> Iterator[AuditEntry]:
        for payload in self._blocks.read(file, start, end):
            yield decoded(payload, str(file))
