"""Segment manager: which segments the log still needs, and what becomes of the others.

The oldest segment leaves the log in three steps, each safe on disk before the next: what is needed
of it is told again (by the engine, see next_to_clean); the next new segment's header says that the
log begins later; then the file gets the history's name, or is removed. One that is mostly live is
pinned as it lies, and its file gets the name of a pinned one; it goes when nothing in it is live.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hms.errors.catalogue import InvalidArgument, StoreCorrupt, StoreFormatUnknown
from hms.store.aging import Aging
from hms.store.interface import CleaningStep, LiveData
from hms.store.journal.archive_mark import archived_below
from hms.store.journal.audit_files import keep_audit, retire_audit
from hms.store.journal.disk import Disk
from hms.store.journal.preallocated_segment import PreallocatedSegment
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_trim import trim
from hms.store.journal.segment_walk import (
    ERASED_SUFFIX,
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    all_files,
    is_same_segment,
    read_info,
    segment_file,
    segment_numbers,
)

SEGMENTS_MIN: Final = 4
"""A log of so few segments is left as it is."""
PIN_SHARE: Final = 0.25
"""A segment with so much in it that is live is not moved: at most a third of what it frees would
have to be written again, and live data takes at most four times its size on the disk."""
SPENT_PER_BYTE: Final = 4
"""What cleaning a log that is mostly live may write for each byte of others: at LIVE_SHARE_MAX
three bytes are moved to make room for one."""
LIVE_SHARE_MAX: Final = 0.75
"""A segment with a larger live share is not worth moving, however scarce space is."""
HISTORY_FILES_MAX: Final = 20_000
"""Segments that were sealed early are small: a history of them would fill its directory with files
long before it fills its bytes."""
SCARCE_MIN: Final = 2
"""While space is scarce a log of so many segments is left as it is, and not fewer are freed by a
segment that is begun for their sake."""
TURN_MIN: Final = 8
"""When so many are clean one is begun for their sake, also while there is space."""


_log = logging.getLogger("hms.store")


class LogLimits(NamedTuple):
    """What a log may take. 0: no limit of the log, no history."""

    log_bytes_max: int = 0
    history_bytes_max: int = 1 << 40
    history_age_s: float = 0.0
    """0: no limit of age."""
    is_archive_required: bool = False
    """What no archive has yet stays in the history, beyond every limit."""
    audit_keep_s: float = 0.0
    """How long the audit of segments that are gone is kept; 0: for ever."""


class _Nothing:
    """What is live before anybody has told."""

    def live_bytes(self) -> int:
        """Nothing."""
        return 0

    def live_bytes_in(self, _segment: int) -> int:
        """Nothing."""
        return 0


class SegmentManager:
    """Sizes of the log's segments and the oldest one needed. Every thread may ask and tell."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        limits: LogLimits,
        preallocated: PreallocatedSegment,
        forget: Callable[[int], None],
        open_anew: Callable[[int], None],
    ) -> None:
        """forget: nobody reads a segment any more; open_anew: its file is another one."""
        self._disk, self._directory, self._limits = disk, directory, limits
        self._segment_bytes, self._preallocated, self._forget = segment_bytes, preallocated, forget
        self._open_anew = open_anew
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._pins: set[int] = set()
        """Segments that hold live messages, told of as they lie; also before they have left."""
        self._pinned: dict[int, int] = {}
        """Sizes of those that have their name."""
        self._emptied: dict[int, int] = {}
        """Those of the pins in which nothing is live once the log is durable up to there."""
        self._cleaned: tuple[int, int] | None = None
        self._live: LiveData = _Nothing()
        self._leaving_below = 0
        """Segments below this number hold what was erased: they leave, however small the log is."""
        self._copied: set[int] = set()
        """Segments whose copies are to take their place."""
        self._fruitless_at = float("inf")
        """So much was live when no pinned segment was worth moving."""
        self._aging, self._audit_aging = Aging(), Aging()
        self._written = self._spent = 0
        self._history_bytes = self._history_files = self._given_up = 0
        self.log_bytes = 0
        """Bytes of the log, without segments that are clean already."""
        self.oldest = 0
        """Segments below this number are not needed; a header on the disk says so."""
        self._oldest_lsn = 0
        """What was needed of them was told again up to there."""

    def found(self, segments: Mapping[int, int], oldest: int, pinned: Mapping[int, int]) -> None:
        """What recovery saw: the sizes of the log's segments by number, and of pinned ones."""
        with self._lock:
            self._sizes = dict(segments)
            self._pinned = dict(pinned)
            self._pins = set(pinned)
            self.oldest = oldest
            self._count()
        sizes = [size for _, size, _ in self._history()]
        self._history_bytes, self._history_files = sum(sizes), len(sizes)

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
            if oldest > self.oldest and self._cleaned is not None:
                self._oldest_lsn = self._cleaned[1]
            self.oldest = oldest
            self._count()

    def _count(self) -> None:
        first = self._first()
        self.log_bytes = sum(size for number, size in self._sizes.items() if number >= first)

    # cleaning

    def next_to_clean(self, live: LiveData) -> CleaningStep | None:
        """The oldest segment, when the log is larger than it should be; or the pinned one that
        gives back most, when space is wanted."""
        self._live = live
        return self._next(live)

    def _next(self, live: LiveData) -> CleaningStep | None:
        first = self._first()
        is_whole = first in self._sizes and first + 1 in self._sizes
        is_too_large = self.log_bytes > self._allowed(live.live_bytes())
        if is_whole and (is_too_large or first < self._leaving_below):
            step = self._oldest_step(first, live.live_bytes_in(first))
            if step is not None:
                return step
        return self._best_to_move(live) if self._pinned and self._is_pressed else None

    def _oldest_step(self, first: int, live_bytes: int) -> CleaningStep | None:
        """What becomes of the oldest segment: it can go, stays pinned, or what is live in it moves.
        None while none of it pays."""
        if not live_bytes:
            return CleaningStep(first, is_pinned=False)
        if self._stays(first, live_bytes, self._sizes[first]):
            return CleaningStep(first, is_pinned=True)
        can_move = self._has_room and self._is_worth_moving(live_bytes, self._sizes[first])
        return CleaningStep(first, is_pinned=False) if can_move else None

    def may_stay(self, segment: int, live_bytes: int) -> bool:
        """A pinned segment that has to be told of again may stay, or has to while moving does not
        pay."""
        size = self._pinned.get(segment) or self._sizes.get(segment) or self._segment_bytes
        if self._stays(segment, live_bytes, size):
            return True
        return not (self._has_room and self._is_worth_moving(live_bytes, size))

    def _stays(self, segment: int, live_bytes: int, size: int) -> bool:
        if self._is_pressed:
            return live_bytes > LIVE_SHARE_MAX * size
        if live_bytes < PIN_SHARE * size:
            return False
        return not self._is_too_old(segment) or not self._has_budget()

    def _is_too_old(self, segment: int) -> bool:
        """Whether it is older than the history may keep."""
        age_max_s = self._limits.history_age_s
        if not age_max_s:
            return False
        for suffix in (LOG_SUFFIX, PINNED_SUFFIX):
            with suppress(FileNotFoundError):
                file = segment_file(self._directory, segment, suffix)
                return self._disk.size_and_age(file)[1] > age_max_s
        return False

    def _best_to_move(self, live: LiveData) -> CleaningStep | None:
        """The pinned segment of which least has to be moved. Looked for again only when more has
        left: a log that is full of live messages would ask at every commit."""
        total = live.live_bytes()
        if not self._has_room or total > self._fruitless_at - self._segment_bytes // 16:
            return None
        found = [
            (here, number)
            for number, size in sorted(self._pinned.items())
            if number not in self._emptied
            and self._is_worth_moving(here := live.live_bytes_in(number), size)
            and here
        ]
        if not found:
            self._fruitless_at = total
            return None
        return CleaningStep(min(found)[1], is_pinned=False)

    def _is_worth_moving(self, live_bytes: int, size: int) -> bool:
        if live_bytes > LIVE_SHARE_MAX * size and self._is_pressed:
            return False
        return live_bytes <= size // 2 or self._has_budget()

    def pays_to_clean(self) -> bool:
        """What cleaning leaves, and all the files that are wanted, are within the log's limit."""
        live_bytes = self._live.live_bytes()
        left = SCARCE_MIN + self._preallocated.wanted + 1
        if live_bytes + left * self._segment_bytes > self._limits.log_bytes_max:
            return False
        return self._is_worth_moving(live_bytes, self.log_bytes + self.pinned_bytes)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the pinned segments."""
        return sum(list(self._pinned.values()))

    @property
    def _is_scarce(self) -> bool:
        return self._preallocated.refusal is not None

    @property
    def _has_room(self) -> bool:
        """What is moved has a place to go to."""
        return not self._is_scarce or self._preallocated.has_room_to_clean

    @property
    def _is_pressed(self) -> bool:
        """Space counts: it is scarce, or the log's limit is near."""
        if self._is_scarce:
            return True
        limit = self._limits.log_bytes_max
        return bool(limit) and self.log_bytes + self.pinned_bytes > limit - self._kept_free

    @property
    def _kept_free(self) -> int:
        """Distance in bytes from its limit at which the log is cleaned."""
        return max(SEGMENTS_MIN, self._preallocated.wanted + 2) * self._segment_bytes

    @property
    def is_turn_due(self) -> bool:
        """So many segments are clean that it pays to begin a new one; sooner while space is scarce.
        A node that is booted more often than it fills a segment would read them all each time."""
        cleaned = self._cleaned
        if cleaned is None or not (self._is_scarce or cleaned[0] - self.oldest >= TURN_MIN):
            return False
        return len(self._freed_from(cleaned[0])) >= SCARCE_MIN

    def _freed_from(self, oldest: int) -> list[int]:
        """The segments whose space comes back when the log begins there."""
        return [n for n in list(self._sizes) if self.oldest <= n < oldest and n not in self._pins]

    def frees(self, oldest: int) -> bool:
        """Whether a segment whose header says that the log begins there gives back space."""
        return bool(self._freed_from(oldest))

    def _has_budget(self) -> bool:
        """A log that is mostly live is cleaned for the sake of new records only: cleaning must not
        feed on what it writes itself, for ever."""
        others = self._written - self._spent
        return self._spent <= SPENT_PER_BYTE * others + SEGMENTS_MIN * self._segment_bytes

    def spent(self, size: int) -> None:
        """Count bytes that were appended by cleaning."""
        self._spent += size

    @property
    def spent_bytes(self) -> int:
        """Bytes that were appended by cleaning."""
        return self._spent

    def pin(self, segments: Iterable[int]) -> None:
        """These stay when they have left the log."""
        with self._lock:
            self._pins.update(segments)

    def pins(self) -> list[int]:
        """Those that stay, or have stayed since before this boot."""
        with self._lock:
            return sorted(self._pins)

    def leave(self, until: int) -> int:
        """Segments below this number leave the log as soon as what is live in them was told again;
        the first one of which it was not. InvalidArgument for one that is not begun soon: all that
        come would be moved on, for as long as the node runs."""
        newest = max(list(self._sizes), default=self.oldest)
        if until > newest + 1:  # that one may be begun now
            detail = f"{until} is beyond the segment that is being written, {newest}"
            raise InvalidArgument(what="until", detail=detail)
        self._leaving_below = max(self._leaving_below, until)
        return self._first()

    def adopt(self, segment: int) -> None:
        """A copy lies beside a segment and is to take its place."""
        with self._lock:
            self._copied.add(segment)

    def put_copies(self) -> None:
        """Copies in which erased messages are blank take the place of segments that have left the
        log; those of others are removed. One caller at a time, the one that lets go."""
        with self._lock:
            copied, self._copied = self._copied, set()
        for number in sorted(copied):
            self._put_copy(number, segment_file(self._directory, number, ERASED_SUFFIX))
        if copied:
            self._disk.fsync_dir(self._directory)

    def _put_copy(self, number: int, copy: Path) -> None:
        names = set(self._disk.list_dir(self._directory))
        if copy.name not in names:
            return
        for suffix in (PINNED_SUFFIX, HISTORY_SUFFIX):
            file = segment_file(self._directory, number, suffix)
            if file.name in names and is_same_segment(self._disk, file, copy):
                self._disk.rename(copy, file)
                self._open_anew(number)
                return
        self._disk.unlink(copy)

    def emptied(self, segments: Iterable[int], last_lsn: int) -> None:
        """Nothing in these is live once the log is durable up to last_lsn."""
        with self._lock:
            for number in segments:
                if number in self._pins:
                    self._emptied.setdefault(number, last_lsn)

    def cleaned(self, segment: int, last_lsn: int) -> None:
        """What was needed of it, and of older ones, was told again up to last_lsn."""
        with self._lock:
            self._cleaned = (segment + 1, last_lsn)
            self._count()

    def refuses(self, prepared: int) -> str | None:
        """Why one more file would be beyond the log's limit, which counts segments, so many
        prepared files and the history, but for one that an archive must have first; or None."""
        limit = self._limits.log_bytes_max
        if not limit:
            return None
        files = self._files_bytes + (prepared + 1) * self._segment_bytes
        history = 0 if self._limits.is_archive_required else self._history_bytes
        if files + history <= limit:
            return None
        live = self._live.live_bytes()
        return f"the log has reached max_log_bytes = {limit}, with {live} bytes of waiting messages"

    def has_room_to_seal(self) -> bool:
        """A segment may be left half empty: cleaning, which needs some, has enough without it."""
        limit, wanted = self._limits.log_bytes_max, (SEGMENTS_MIN + 1) * self._segment_bytes
        return not limit or self.log_bytes + self.pinned_bytes + wanted <= limit

    @property
    def _files_bytes(self) -> int:
        return sum(list(self._sizes.values())) + self.pinned_bytes

    def is_freeing(self, durable_lsn: int) -> bool:
        """Cleaning will make space; or it did, and a segment is about to be begun for its sake, or
        those that are not needed any more are about to go."""
        if self.is_turn_due or self.is_due(durable_lsn) or self._emptied:
            return True
        live = self._live
        is_one_empty = any(not live.live_bytes_in(number) for number in self.pins())
        return is_one_empty or self._next(live) is not None

    def _first(self) -> int:
        cleaned = self._cleaned
        return self.oldest if cleaned is None else max(self.oldest, cleaned[0])

    @property
    def excess_bytes(self) -> int:
        """So much more than it should the log takes; 0 when it does not."""
        return max(0, self.log_bytes - self._allowed(self._live.live_bytes()))

    def _allowed(self, live_bytes: int) -> int:
        if self._is_scarce:
            return SCARCE_MIN * self._segment_bytes
        allowed = max(SEGMENTS_MIN * self._segment_bytes, live_bytes)
        limit = self._limits.log_bytes_max
        if not limit:
            return allowed
        left = limit - self._kept_free - self.pinned_bytes
        return min(allowed, max(left, SCARCE_MIN * self._segment_bytes))

    # letting go

    def is_due(self, durable_lsn: int) -> bool:
        """Segments wait to be let go."""
        if self._copied or min(list(self._sizes), default=self.oldest) < self.oldest:
            return True
        return any(lsn <= durable_lsn for lsn in list(self._emptied.values()))

    def let_go(self, lsn: int) -> bool:
        """Give segments that are not needed to the history, or their space to new ones, and pinned
        ones their name; whether there were any. lsn: up to there the log is durable, and nobody
        reads any more what has left.

        One caller at a time, beside those that write and clean.
        """
        with self._lock:
            # Only now: a message whose end is not safe yet would be there again, and its body gone.
            for number in [n for n, last_lsn in self._emptied.items() if last_lsn <= lsn]:
                del self._emptied[number]
                self._pins.discard(number)
            oldest = self.oldest if self._oldest_lsn <= lsn else 0
            leaving = {n: size for n, size in self._sizes.items() if n < oldest}
            pins = set(self._pins)
            leaving |= {n: size for n, size in self._pinned.items() if n not in pins}
        for number, size in sorted(leaving.items()):
            if number in pins:
                self._name_pinned(number)
            else:
                self._let_go(number, size)
            with self._lock:
                self._sizes.pop(number, None)
        if leaving:
            self._fruitless_at = float("inf")
            self._disk.fsync_dir(self._directory)
            self.limit_history()
        return bool(leaving)

    def _name_pinned(self, number: int) -> None:
        source = segment_file(self._directory, number)
        size = trim(self._disk, source)
        self._disk.rename(source, segment_file(self._directory, number, PINNED_SUFFIX))
        with self._lock:
            self._pinned[number] = size

    def _let_go(self, number: int, size: int) -> None:
        is_pinned = number in self._pinned
        suffix = PINNED_SUFFIX if is_pinned else LOG_SUFFIX
        file = segment_file(self._directory, number, suffix)
        is_kept = self._is_kept(number) and (not is_pinned or self._has_successor(number))
        if is_kept or not self._keep_audit(file):
            # A pinned one has been trimmed: the size of what has left the log never changes, so
            # that a copy of it in which something was erased can take its place.
            self._history_bytes += size if is_pinned else trim(self._disk, file)
            self._history_files += 1
            self._disk.rename(file, segment_file(self._directory, number, HISTORY_SUFFIX))
        else:
            self._forget(number)
            if not self._preallocated.offer(file):
                self._disk.unlink(file)
        with self._lock:
            self._pinned.pop(number, None)

    def _has_successor(self, number: int) -> bool:
        """The history goes on behind a segment: with a gap it would be none."""
        later = number + 1
        if later in self._sizes or later in self._pinned:
            return True
        return later in segment_numbers(self._disk, self._directory, HISTORY_SUFFIX)

    def _is_kept(self, number: int) -> bool:
        """Whether the history keeps a segment: not while space is scarce, except for what no
        archive has yet."""
        if self._limits.is_archive_required:
            return not self._is_scarce or number >= self._archived_below()
        return bool(self._limits.history_bytes_max) and not self._preallocated.is_out_of_space

    def _archived_below(self) -> int:
        return archived_below(self._disk, self._directory)

    def limit_history(self) -> None:
        """Remove the history's oldest segments until it is within its limits.

        They are not used again: who reads one without the lock would find other bytes in it.
        """
        files = list(self._history())
        total, left = sum(size for _, size, _ in files), len(files)
        until_s = self._past_until_s(files[0][0], files[0][2]) if files else 0.0
        is_required = self._limits.is_archive_required and bool(files)
        below = self._archived_below() if is_required else 0
        most = self._history_bytes_max()
        for number, size, age_s in files:
            by_file_s = self._aging.wall_s() - age_s
            is_old = by_file_s < until_s and self._written_s(number, by_file_s) < until_s
            if total <= most and left <= HISTORY_FILES_MAX and not is_old:
                break
            if is_required and number >= below:
                break
            if not self._remove_history(number):
                break
            total, left = total - size, left - 1
        self._history_bytes, self._history_files = total, left
        retire_audit(self._disk, self._directory, self._limits.audit_keep_s, self._audit_aging)

    def _past_until_s(self, number: int, age_s: float) -> float:
        """What was written before that moment is older than the history may keep; number and age of
        its oldest segment."""
        keep_s, wall_s = self._limits.history_age_s, self._aging.wall_s
        if not keep_s:
            return 0.0
        return self._aging.until_s(keep_s, lambda: self._written_s(number, wall_s() - age_s))

    def _written_s(self, number: int, by_file_s: float) -> float:
        """When a segment was written by the machine's clock, or when the next one was begun by the
        node's, whichever is later: the first may have been behind."""
        file = all_files(self._disk, self._directory).get(number + 1)
        told = None
        if file is not None:
            with suppress(OSError, StoreCorrupt, StoreFormatUnknown):
                told = opening(self._disk, read_info(self._disk, file, number + 1, is_last=False))
        return by_file_s if told is None else max(by_file_s, told.now_ms / 1000)

    def _history_bytes_max(self) -> int:
        """Beside the log and what is prepared for it, within the log's limit."""
        most, limit = self._limits.history_bytes_max, self._limits.log_bytes_max
        if not limit:
            return most
        # the spare, and the segment that it will have become
        needed = self._preallocated.wanted + 2
        return min(most, limit - self._files_bytes - needed * self._segment_bytes)

    def give_up_history(self) -> bool:
        """Remove the history's oldest segment, for the sake of the log; False when there is none
        that may go."""
        first = next(self._history(), None)
        if first is None:
            return False
        number, size, _ = first
        if self._limits.is_archive_required and number >= self._archived_below():
            return False
        if not self._remove_history(number):
            return False
        self._history_bytes -= size
        self._history_files -= 1
        self._given_up += 1
        if self._given_up == 1:
            _log.warning("space is scarce: the history's oldest segments are removed")
        return True

    def _remove_history(self, number: int) -> bool:
        """False when its audit could not be kept."""
        file = segment_file(self._directory, number, HISTORY_SUFFIX)
        if not self._keep_audit(file):
            return False
        self._forget(number)
        self._disk.unlink(file)
        return True

    def _keep_audit(self, file: Path) -> bool:
        """Whether a segment may go: its audit lies elsewhere. On a full disk there is room for that
        in the reserve, which gets back more."""
        return keep_audit(self._disk, file) or (
            self._preallocated.lend() and keep_audit(self._disk, file)
        )

    def _history(self) -> Iterator[tuple[int, int, float]]:
        """Number, size and age of each segment of the history; any of them may go meanwhile."""
        for number in segment_numbers(self._disk, self._directory, HISTORY_SUFFIX):
            with suppress(FileNotFoundError):
                file = segment_file(self._directory, number, HISTORY_SUFFIX)
                yield number, *self._disk.size_and_age(file)

    def describe(self) -> dict[str, int]:
        """Figures for operators, from memory: they are asked for under the engine's lock."""
        return {
            "log_bytes": self.log_bytes,
            "live_bytes": self._live.live_bytes(),
            "segments": len(self._sizes),
            "pinned_segments": len(self._pinned),
            "pinned_bytes": self.pinned_bytes,
            "history_segments": self._history_files,
            "history_bytes": self._history_bytes,
            "history_given_up": self._given_up,
            "history_held_s": round(max(self._aging.held_s, self._audit_aging.held_s)),
        }
