"""The ring: which segments the log still needs, and what becomes of the others.

The oldest segment is let go in three steps, each safe on disk before the next: what is needed of it
is appended again (by the engine, see next_to_clean); the next new segment's header says that the
log begins later; then the file gets the history's name, or is removed.
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from hms.store.journal.disk import Disk
from hms.store.journal.spare import Spare
from hms.store.journal.walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    SegmentInfo,
    segment_file,
    segment_numbers,
)

SEGMENTS_MIN: Final = 4
"""A log of so few segments is left as it is."""
GARBAGE_FACTOR: Final = 2
"""A log so many times as large as what is live in it is cleaned: each byte that is written costs
at most one byte that is moved."""
LIVE_SHARE_MAX: Final = 0.75
"""A full log with a larger live share is not worth cleaning: it is full."""


class LogLimits(NamedTuple):
    """What a log may take. 0: no limit of the log, no history."""

    log_bytes_max: int = 0
    history_bytes_max: int = 1 << 40
    history_age_s: float = 0.0
    """0: no limit of age."""


class Ring:
    """Sizes of the log's segments and the oldest one needed. Every thread may ask and tell."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        limits: LogLimits,
        spare: Spare,
        forget: Callable[[int], None],
    ) -> None:
        self._disk, self._directory, self._limits = disk, directory, limits
        self._segment_bytes, self._spare, self._forget = segment_bytes, spare, forget
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._cleaned: tuple[int, int] | None = None
        self._live_bytes = 0
        self.log_bytes = 0
        """What the log takes, without segments that are clean already."""
        self.oldest = 0
        """Segments below this number are not needed; a header on the disk says so."""

    def found(self, segments: Iterable[SegmentInfo], oldest: int) -> None:
        """What recovery saw."""
        self._sizes = {info.number: info.size for info in segments}
        self.oldest = oldest
        self._count()

    def oldest_for(self, first_lsn: int) -> int:
        """What the header of a segment that begins with this sequence number may say: everything
        before it is synced."""
        if self._cleaned is not None and first_lsn > self._cleaned[1]:
            return self._cleaned[0]
        return self.oldest

    def begun(self, number: int, oldest: int) -> None:
        """A segment is safe with its header."""
        with self._lock:
            self._sizes[number] = self._segment_bytes
            self.oldest = oldest
            self._count()

    def _count(self) -> None:
        first = self._first()
        self.log_bytes = sum(size for number, size in self._sizes.items() if number >= first)

    # cleaning

    def next_to_clean(self, live_bytes: int) -> int | None:
        """The oldest segment that may hold something needed, when it is time."""
        self._live_bytes = live_bytes
        size = self.log_bytes
        if size <= self._allowed(live_bytes) or live_bytes > LIVE_SHARE_MAX * size:
            return None
        first = self._first()
        return first if first in self._sizes and first + 1 in self._sizes else None

    def cleaned(self, segment: int, last_lsn: int) -> None:
        """What was needed of it, and of older ones, was appended again up to last_lsn."""
        with self._lock:
            self._cleaned = (segment + 1, last_lsn)
            self._count()

    def is_full(self) -> bool:
        """The next segment would be beyond the log's limit."""
        limit = self._limits.log_bytes_max
        return bool(limit) and self.log_bytes + self._segment_bytes > limit

    def refusal(self) -> str | None:
        """Why there is no room for more, when cleaning would not make any."""
        if not self.is_full():
            return None
        limit, live = self._limits.log_bytes_max, self._live_bytes
        return f"the log has reached max_log_bytes = {limit}, with {live} bytes of waiting messages"

    def is_cleanable(self) -> bool:
        """Cleaning will make space."""
        return self.next_to_clean(self._live_bytes) is not None

    def _first(self) -> int:
        return self.oldest if self._cleaned is None else max(self.oldest, self._cleaned[0])

    def _allowed(self, live_bytes: int) -> int:
        allowed = max(SEGMENTS_MIN * self._segment_bytes, GARBAGE_FACTOR * live_bytes)
        limit = self._limits.log_bytes_max
        return min(allowed, limit - SEGMENTS_MIN * self._segment_bytes) if limit else allowed

    # letting go

    @property
    def is_due(self) -> bool:
        """Segments wait to be let go."""
        return any(number < self.oldest for number in list(self._sizes))

    def let_go(self) -> None:
        """Give segments that are not needed to the history, or their space to new ones."""
        with self._lock:
            gone = sorted(number for number in self._sizes if number < self.oldest)
        for number in gone:
            self._let_go(number)
            with self._lock:
                del self._sizes[number]
        if gone:
            self._disk.fsync_dir(self._directory)
            self.limit_history()

    def _let_go(self, number: int) -> None:
        file = segment_file(self._directory, number)
        if self._limits.history_bytes_max:
            self._disk.rename(file, segment_file(self._directory, number, HISTORY_SUFFIX))
        else:
            self._remove(number, file)

    def _remove(self, number: int, file: Path) -> None:
        """The space of a file goes to a new segment, or back to the disk."""
        self._forget(number)
        if not self._spare.offer(file):
            self._disk.unlink(file)

    def limit_history(self) -> None:
        """Remove the history's oldest segments until it is within its limits."""
        numbers = segment_numbers(self._disk, self._directory, HISTORY_SUFFIX)
        files = [segment_file(self._directory, number, HISTORY_SUFFIX) for number in numbers]
        stats = [self._disk.size_and_age(file) for file in files]
        total = sum(size for size, _ in stats)
        for number, file, (size, age_s) in zip(numbers, files, stats, strict=True):
            is_old = 0 < self._limits.history_age_s < age_s
            if total <= self._limits.history_bytes_max and not is_old:
                break
            self._remove(number, file)
            total -= size

    def describe(self) -> dict[str, int]:
        """Figures for operators."""
        live = segment_numbers(self._disk, self._directory, LOG_SUFFIX)
        history = segment_numbers(self._disk, self._directory, HISTORY_SUFFIX)
        files = [segment_file(self._directory, number, HISTORY_SUFFIX) for number in history]
        return {
            "log_bytes": self.log_bytes,
            "live_bytes": self._live_bytes,
            "segments": len(live),
            "history_segments": len(history),
            "history_bytes": sum(self._disk.size_and_age(file)[0] for file in files),
        }
