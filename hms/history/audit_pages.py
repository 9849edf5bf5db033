"""Pages of a store's audit, the newest records first, without a look at those that are newer or
much older.

The opening of a segment tells how many records came before it, so the one that holds a number is
found by halving; within it records are walked from its beginning, and no more is kept than a page.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import StoreUnavailable
from hms.history.audit_trail import decoded
from hms.history.tables import audit_below
from hms.records.audit import AuditEntry
from hms.store.journal.audit_files import audit_files, audit_payloads, audited
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.reader import segment_info
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_walk import AUDIT_SUFFIX, all_files

__all__ = ["AuditPage", "page_of_log", "page_of_tables"]

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


def page_of_log(
    folder: Path, wanted: Wanted, before: int = 0, limit: int = 100, clock: Clock = time.monotonic
) -> AuditPage:
    """Up to `limit` records with numbers lower than `before`, 0: of all. StoreCorrupt,
    StoreUnavailable."""
    try:
        return _page(_Files(folder), wanted, before or NEWEST, limit, clock)
    except OSError as error:
        raise StoreUnavailable(path=str(folder), detail=error.strerror or str(error)) from error


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
        seen, follower = _Seen(end, wanted, limit - len(found)), at + 1
        seen.walk(files.entries(at))
        # An opening counts records that were made before it was written, and may stand behind it.
        while seen.last < end - 1 and follower < len(files) and seen.walk(files.entries(follower)):
            follower += 1
        found += reversed(seen.page)
        end = min(seen.first, files.first_number(at))
        if len(found) == limit:
            last = found[-1].number
            return AuditPage(found, last if at or last > seen.first else 0)
        if not at:
            break
        if clock() >= until_s:
            return AuditPage(found, end, is_cut=True)
    return AuditPage(found, 0)


class _Seen:
    """Of the records of a file those before a number that are wanted, the last ones.
    first, last: the lowest and the highest number before it."""

    def __init__(self, end: int, wanted: Wanted, room: int) -> None:
        self._end, self._wanted = end, wanted
        self.page: deque[AuditEntry] = deque(maxlen=room)
        self.first, self.last = end, 0

    def walk(self, entries: Iterator[AuditEntry]) -> bool:
        """False: the number itself was met, so what is wanted does not stand behind."""
        for one in entries:
            if one.number >= self._end:
                return False
            self.first, self.last = min(self.first, one.number), one.number
            if self._wanted(one):
                self.page.append(one)
        return True


class _Files:
    """What holds the audit of a store, the oldest first."""

    def __init__(self, folder: Path) -> None:
        segments = all_files(REAL_DISK, folder).values()
        files = [*audit_files(REAL_DISK, folder), *segments]
        self._files = sorted(files, key=lambda file: file.stem)
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

    def _told(self, at: int) -> int:
        file = self._files[at]
        if file.suffix != AUDIT_SUFFIX:
            told = opening(REAL_DISK, segment_info(REAL_DISK, file))
            if told is not None:
                return told.audit_number + 1
        return next((one.number for one in self.entries(at)), NEWEST)

    def entries(self, at: int) -> Iterator[AuditEntry]:
        """Its records, in order. StoreCorrupt."""
        file = self._files[at]
        if file.suffix == AUDIT_SUFFIX:
            payloads = audit_payloads(REAL_DISK, file)
        else:
            payloads = audited(REAL_DISK, segment_info(REAL_DISK, file))
        for payload in payloads:
            yield decoded(payload, str(file))
