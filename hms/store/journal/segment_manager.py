"""Segment manager: which segments the log still needs, and what becomes of the others.

The oldest segment is let go in three steps, each safe on disk before the next: what is needed of it
is appended again (by the engine, see next_to_clean); the next new segment's header says that the
log begins later; then the file gets the history's name, or is removed.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hms.store.journal.archive_mark import archived_below
from hms.store.journal.disk import Disk
from hms.store.journal.preallocated_segment import PreallocatedSegment
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    segment_file,
    segment_numbers,
)

SEGMENTS_MIN: Final = 4
"""A log of so few segments is left as it is."""
GARBAGE_FACTOR: Final = 2
"""A log so many times as large as what is live in it is cleaned: each byte that is written costs
at most one byte that is moved."""
SPENT_PER_BYTE: Final = 4
"""What cleaning a log that is mostly live may write for each byte of others: at LIVE_SHARE_MAX
three bytes are moved to make room for one."""
LIVE_SHARE_MAX: Final = 0.75
"""A full log with a larger live share is not worth cleaning: it is full."""
SCARCE_MIN: Final = 2
"""While space is scarce a log of so many segments is left as it is, and not fewer are freed by a
segment that is begun for their sake."""


_log = logging.getLogger("hms.store")


class LogLimits(NamedTuple):
    """What a log may take. 0: no limit of the log, no history."""

    log_bytes_max: int = 0
    history_bytes_max: int = 1 << 40
    history_age_s: float = 0.0
    """0: no limit of age."""
    is_archive_required: bool = False
    """What no archive has yet stays in the history, beyond every limit."""


class SegmentManager:
    """Sizes of the log's segments and the oldest one needed. Every thread may ask and tell."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        limits: LogLimits,
        spare: PreallocatedSegment,
        forget: Callable[[int], None],
    ) -> None:
        self._disk, self._directory, self._limits = disk, directory, limits
        self._segment_bytes, self._spare, self._forget = segment_bytes, spare, forget
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._cleaned: tuple[int, int] | None = None
        self._live_bytes = 0
        self._written = self._spent = 0
        self._history_bytes = self._given_up = 0
        self.log_bytes = 0
        """What the log takes, without segments that are clean already."""
        self.oldest_live = 0
        """Nothing live lies in segments below this number."""
        self.oldest = 0
        """Segments below this number are not needed; a header on the disk says so."""

    def found(self, segments: Mapping[int, int], oldest: int) -> None:
        """What recovery saw: the sizes of segments by number."""
        with self._lock:
            self._sizes = dict(segments)
            self.oldest = oldest
            self._count()
        self._history_bytes = sum(size for _, size, _ in self._history())

    def oldest_for(self, first_lsn: int) -> int:
        """What the header of a segment that begins with this sequence number may say: everything
        before it is synced."""
        cleaned = self._cleaned  # asked once: the engine may clean the next segment meanwhile
        if cleaned is not None and first_lsn > cleaned[1]:
            return cleaned[0]
        return self.oldest

    def begun(self, number: int, oldest: int) -> None:
        """A segment is safe with its header."""
        with self._lock:
            self._sizes[number] = self._segment_bytes
            self._written += self._segment_bytes
            self.oldest = oldest
            self._count()

    def _count(self) -> None:
        first = self._first()
        self.log_bytes = sum(size for number, size in self._sizes.items() if number >= first)

    # cleaning

    def next_to_clean(self, live_bytes: int) -> int | None:
        """The oldest segment that may hold something needed, when it is time."""
        self._live_bytes = live_bytes
        return self._to_clean(live_bytes)

    def _to_clean(self, live_bytes: int) -> int | None:
        first = self._first()
        if first not in self._sizes or first + 1 not in self._sizes:
            return None
        if self.log_bytes <= self._allowed(live_bytes):
            return None
        is_dead = first < self.oldest_live  # nothing is to be moved
        has_room = not self._is_scarce or self._spare.has_room_to_clean
        return first if is_dead or (has_room and self._is_worth_moving(live_bytes)) else None

    def _is_worth_moving(self, live_bytes: int) -> bool:
        size = self.log_bytes
        if live_bytes > LIVE_SHARE_MAX * size:
            return False
        return live_bytes <= size // 2 or self._has_budget()

    def pays_to_clean(self) -> bool:
        """What cleaning leaves, and all the files that are wanted, are within the log's limit."""
        left = SCARCE_MIN + self._spare.wanted + 1
        is_less = self._live_bytes + left * self._segment_bytes <= self._limits.log_bytes_max
        return is_less and self._is_worth_moving(self._live_bytes)

    @property
    def _is_scarce(self) -> bool:
        return self._spare.refusal is not None

    @property
    def is_turn_due(self) -> bool:
        """Space is scarce, and so many segments are clean that it pays to begin a new one."""
        cleaned = self._cleaned
        return self._is_scarce and cleaned is not None and cleaned[0] - self.oldest >= SCARCE_MIN

    def _has_budget(self) -> bool:
        """A log that is mostly live is cleaned for the sake of new records only: cleaning must not
        feed on what it writes itself, for ever."""
        others = self._written - self._spent
        return self._spent <= SPENT_PER_BYTE * others + SEGMENTS_MIN * self._segment_bytes

    def spent(self, size: int) -> None:
        """So many bytes were appended for the sake of cleaning."""
        self._spent += size

    def cleaned(self, segment: int, last_lsn: int) -> None:
        """What was needed of it, and of older ones, was appended again up to last_lsn."""
        with self._lock:
            self._cleaned = (segment + 1, last_lsn)
            self._count()

    def refuses(self, prepared: int) -> str | None:
        """Why one more file would be beyond the log's limit, which counts segments, so many
        prepared files and the history, but for one that an archive must have first; or None."""
        limit = self._limits.log_bytes_max
        if not limit:
            return None
        files = sum(list(self._sizes.values())) + (prepared + 1) * self._segment_bytes
        history = 0 if self._limits.is_archive_required else self._history_bytes
        if files + history <= limit:
            return None
        live = self._live_bytes
        return f"the log has reached max_log_bytes = {limit}, with {live} bytes of waiting messages"

    def has_room_to_seal(self) -> bool:
        """A segment may be left half empty: cleaning, which needs some, has enough without it."""
        limit, wanted = self._limits.log_bytes_max, (SEGMENTS_MIN + 1) * self._segment_bytes
        return not limit or self.log_bytes + wanted <= limit

    @property
    def is_freeing(self) -> bool:
        """Cleaning will make space; or it did, and a segment is about to be begun for its sake, or
        those that are not needed any more are about to go."""
        is_cleanable = self._to_clean(self._live_bytes) is not None
        return is_cleanable or self.is_turn_due or self.is_due

    def _first(self) -> int:
        cleaned = self._cleaned
        return self.oldest if cleaned is None else max(self.oldest, cleaned[0])

    def _allowed(self, live_bytes: int) -> int:
        if self._is_scarce:
            return SCARCE_MIN * self._segment_bytes
        allowed = max(SEGMENTS_MIN * self._segment_bytes, GARBAGE_FACTOR * live_bytes)
        limit = self._limits.log_bytes_max
        kept = max(SEGMENTS_MIN, self._spare.wanted + 2) * self._segment_bytes
        return min(allowed, limit - kept) if limit else allowed

    # letting go

    @property
    def is_due(self) -> bool:
        """Segments wait to be let go."""
        return min(list(self._sizes), default=self.oldest) < self.oldest

    def let_go(self) -> bool:
        """Give segments that are not needed to the history, or their space to new ones; whether
        there were any.

        One caller at a time, beside those that write and clean.
        """
        with self._lock:
            gone = sorted(number for number in self._sizes if number < self.oldest)
        for number in gone:
            self._let_go(number)
            with self._lock:
                del self._sizes[number]
        if gone:
            self._disk.fsync_dir(self._directory)
            self.limit_history()
        return bool(gone)

    def _let_go(self, number: int) -> None:
        file = segment_file(self._directory, number)
        if self._is_kept(number):
            self._history_bytes += self._sizes[number]
            self._disk.rename(file, segment_file(self._directory, number, HISTORY_SUFFIX))
        else:
            self._forget(number)
            if not self._spare.offer(file):
                self._disk.unlink(file)

    def _is_kept(self, number: int) -> bool:
        """Whether the history takes a segment: it does not while space is scarce, but for what no
        archive has yet."""
        if self._limits.is_archive_required:
            return not self._is_scarce or number >= self._archived_below()
        return bool(self._limits.history_bytes_max) and not self._spare.is_out_of_space

    def _archived_below(self) -> int:
        return archived_below(self._disk, self._directory)

    def limit_history(self) -> None:
        """Remove the history's oldest segments until it is within its limits.

        They are not used again: who reads one without the lock would find other bytes in it.
        """
        files = list(self._history())
        total = sum(size for _, size, _ in files)
        is_required = self._limits.is_archive_required and bool(files)
        below = self._archived_below() if is_required else 0
        most = self._history_bytes_max()
        for number, size, age_s in files:
            is_old = 0 < self._limits.history_age_s < age_s
            if total <= most and not is_old:
                break
            if is_required and number >= below:
                break
            self._remove_history(number)
            total -= size
        self._history_bytes = total

    def _history_bytes_max(self) -> int:
        """Beside the log and what is prepared for it, within the log's limit."""
        most, limit = self._limits.history_bytes_max, self._limits.log_bytes_max
        if not limit:
            return most
        needed = self._spare.wanted + 2  # the spare, and the segment that it will have become
        return min(most, limit - sum(list(self._sizes.values())) - needed * self._segment_bytes)

    def give_up_history(self) -> bool:
        """Remove the history's oldest segment, for the sake of the log; False when there is none
        that may go."""
        first = next(self._history(), None)
        if first is None:
            return False
        number, size, _ = first
        if self._limits.is_archive_required and number >= self._archived_below():
            return False
        self._remove_history(number)
        self._history_bytes -= size
        self._given_up += 1
        if self._given_up == 1:
            _log.warning("space is scarce: the history's oldest segments are removed")
        return True

    def _remove_history(self, number: int) -> None:
        self._forget(number)
        self._disk.unlink(segment_file(self._directory, number, HISTORY_SUFFIX))

    def _history(self) -> Iterator[tuple[int, int, float]]:
        """Number, size and age of each segment of the history; any of them may go meanwhile."""
        for number in segment_numbers(self._disk, self._directory, HISTORY_SUFFIX):
            with suppress(FileNotFoundError):
                file = segment_file(self._directory, number, HISTORY_SUFFIX)
                yield number, *self._disk.size_and_age(file)

    def describe(self) -> dict[str, int]:
        """Figures for operators."""
        live = segment_numbers(self._disk, self._directory, LOG_SUFFIX)
        history = [size for _, size, _ in self._history()]
        return {
            "log_bytes": self.log_bytes,
            "live_bytes": self._live_bytes,
            "segments": len(live),
            "history_segments": len(history),
            "history_bytes": sum(history),
            "history_given_up": self._given_up,
        }
