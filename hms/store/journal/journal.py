"""The journal: the store that is a log of our own.

append() only numbers records; one leader at a time takes all that waits, writes it and syncs once
(group commit). The first failed write or sync is the last: the journal is dead from then on, and
the node recovers at boot (P7).
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hms.errors.catalogue import StoreFailed, StoreFenced, StoreUnavailable
from hms.errors.tree import FieldValue
from hms.store.interface import (
    CleaningStep,
    DictionaryMaker,
    LiveData,
    LogGrowth,
    Parts,
    SegmentGoneError,
    StoredRecord,
)
from hms.store.journal.append_backlog import Backlog
from hms.store.journal.disk import REAL_DISK, Disk
from hms.store.journal.format import (
    NO_RELEASE,
    VERSION,
    Author,
    Entry,
    Release,
    record_bytes,
)
from hms.store.journal.lock import DirectoryLock
from hms.store.journal.preallocated_segment import (
    RESERVE_MIN,
    NoFileError,
    PreallocatedSegment,
    bulk_syncs,
)
from hms.store.journal.record_fetch import Fetch
from hms.store.journal.recovery import Recovery
from hms.store.journal.segment import Segment
from hms.store.journal.segment_manager import LogLimits, SegmentManager
from hms.store.journal.segment_walk import ReadUpTo
from hms.wire.record_runs import NO_RUNS

SEGMENT_BYTES: Final = 64 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 4096
NO_LIMITS: Final = LogLimits()
_log = logging.getLogger("hms.store")
_segment_of = attrgetter("segment")

LOOKS_PER_SEGMENT: Final = 64


class Journal:
    """A log directory, locked by this process. Implements hms.store.interface.Store."""

    def __init__(
        self,
        path: Path,
        segment_bytes: int,
        node_uid: int,
        disk: Disk,
        limits: LogLimits,
        epoch: int | None,
        release: Release,
        reaches: tuple[int, int],
        is_zeros: Callable[[Path], bool] = lambda _file: False,
    ) -> None:
        assert segment_bytes >= SEGMENT_BYTES_MIN
        assert segment_bytes % 8 == 0
        self._path, self._segment_bytes = path, segment_bytes
        self._node_uid, self._disk, self._granted = node_uid, disk, epoch
        self._reaches = reaches
        self._lock = DirectoryLock(disk, path)
        self._leader = threading.Lock()
        self._preallocated = PreallocatedSegment(
            disk, path, segment_bytes, self._refuses, self._pays, is_zeros
        )
        self._fetch = Fetch(disk, path)
        reading = self._fetch.forget, self._fetch.open_anew
        self._segments = SegmentManager(
            disk, path, segment_bytes, limits, self._preallocated, *reading
        )
        self._maintenance = threading.Lock()
        self._recovery: Recovery | None = None
        self._backlog: Backlog | None = None
        self._segment: Segment | None = None
        self._author = Author(node_uid, 0, VERSION, release)
        self.last_lsn = 0
        """The last sequence number that was assigned, 0 before the first."""
        self.durable_lsn = 0
        """Everything up to this sequence number is synced."""
        self.appended_bytes = self.safe_bytes = 0
        """Bytes of all records so far, and of those that are synced."""
        self.look_bytes = 0
        """Bytes that may be committed before maintenance is due; 0 while space is scarce."""
        self.sync_s = 0.0
        self._durable_end = 0
        self._rests_until_s = float("-inf")
        self._failure: str | None = None
        self._is_short = False
        """Spare or reserve could not be prepared, and nothing was left to make room for them."""
        self._is_closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        node_uid: int,
        disk: Disk = REAL_DISK,
        limits: LogLimits = NO_LIMITS,
        epoch: int | None = None,
        release: Release = NO_RELEASE,
        reaches: tuple[int, int] = (0, 0),
        is_zeros: Callable[[Path], bool] = lambda _file: False,
    ) -> "Journal":
        """Lock a directory, made when absent. Raises StoreLocked and StoreUnavailable.

        epoch: of this boot, where an arbiter grants it; None: the one after that of the last boot.
        release: of HMS, which segments of the newest format tell.
        reaches: segment and offset that the log is known to reach: a log that ends before it is
        damaged, not torn.
        is_zeros: whether a file that is left for the next segment is known to read as zeros.
        """
        directory = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as the operator set them
        with _unavailable(directory):
            disk.make_dir(directory)
            about = node_uid, disk, limits, epoch, release, reaches, is_zeros
            return cls(directory, segment_bytes, *about)

    @property
    def backlog_bytes(self) -> int:
        """Appended and not yet synced."""
        return self.appended_bytes - self.safe_bytes

    @property
    def is_waiting_for_space(self) -> bool:
        """The spare is only not ready yet and less than an eighth of the segment is left, or the
        reserve has not grown yet with what waits, or room is being made."""
        if self._backlog is None or self._segment is None:
            return False
        spare, begun_ahead = self._preallocated, self._backlog.segment - self._segment.number
        if spare.refusal is not None:  # the history may give way yet
            return not self._is_short or self._is_freeing or self._maintenance.locked()
        is_whole = spare.is_whole
        if is_whole and not begun_ahead:
            return False
        is_ready = spare.is_ready
        if is_ready and not is_whole:
            return True
        return begun_ahead > is_ready or self._backlog.room_bytes < self._segment_bytes // 8

    @property
    def _is_freeing(self) -> bool:
        return self._segments.is_freeing(self.durable_lsn)

    @property
    def needs_maintenance(self) -> bool:
        """Spare or reserve are to be prepared, or tried again after the disk was full."""
        if self._segment is None or self._backlog is None or self._failure is not None:
            return False
        is_half_empty = self._backlog.room_bytes > self._segment_bytes // 2
        if is_half_empty and self._disk.monotonic() < self._rests_until_s:
            return False
        return self._preallocated.is_due or self._segments.is_due(self.durable_lsn)

    def rest(self, seconds: float) -> None:
        """Clients wait for the disk: nothing is prepared for so long, or until half of the segment
        is full."""
        self._rests_until_s = self._disk.monotonic() + seconds

    def recover(
        self,
        runs_of: int = NO_RUNS,
        behind: ReadUpTo | None = None,
        written: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[StoredRecord]:
        """Every record in order; what a crash left incomplete at the end is cut off. behind,
        written: as of Recovery."""
        recovery = self._recovery = Recovery(self._disk, self._path, self._node_uid)
        self._durable_end = sys.maxsize  # whatever is given out here lies on the disk
        records = recovery.records(runs_of, behind, written)
        while True:
            try:
                record = next(records, None)
            except OSError as error:
                raise _unavailable_because(self._path, error) from error
            if record is None:
                break
            yield record
        recovery.check_reaches(*self._reaches)
        with _unavailable(self._path):
            recovery.cut_tail()
            self._segments.found(recovery.segments, recovery.oldest, recovery.pinned)
        self.last_lsn = self.durable_lsn = recovery.next_lsn - 1

    @property
    def pinned_at_boot(self) -> frozenset[int]:
        """The segments behind the log that may hold live messages, as recover() found them: also
        those that have not got that name yet."""
        found = self._recovery
        if found is None:
            return frozenset()
        return frozenset((*found.pinned, *(n for n in found.segments if n < found.oldest)))

    @property
    def recovery_bytes(self) -> int:
        """Bytes that recover() reads, once it has begun."""
        found = self._recovery
        if found is None:
            return 0
        needed = [size for number, size in found.segments.items() if number >= found.oldest]
        return sum(needed) + sum(found.pinned.values())

    def start(self, dictionary: DictionaryMaker) -> None:
        """Begin a segment of this boot's own (epoch + 1)."""
        recovery = self._recovery
        assert recovery is not None, "recover() comes first"
        assert recovery.is_done, "recover() is read to its end first"
        assert self._backlog is None, "started twice"
        epoch, version = self._epoch_after(recovery.epoch), recovery.version or VERSION
        self._author = self._author._replace(epoch=epoch, version=version)
        backlog = Backlog(self._segment_bytes, recovery.next_number, recovery.next_lsn, dictionary)
        with _unavailable(self._path):
            self._segment = self._begin_first(recovery.next_number, recovery.next_lsn)
            self._durable_end = self._segment.end_position
            recovery.seal_tail()
        self._backlog, self.last_lsn = backlog, backlog.last_lsn
        self.appended_bytes = backlog.appended_bytes

    def _epoch_after(self, last: int) -> int:
        """Raises StoreFenced when the log has the epoch that was granted, or a later one."""
        if self._granted is not None and self._granted <= last:
            raise StoreFenced(path=str(self._path), theirs=last, ours=self._granted)
        return last + 1 if self._granted is None else self._granted

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Append a record; the position of its payload. Raises RecordTooLarge."""
        if self._failure is not None:
            raise self._failed()
        backlog = self._backlog
        assert backlog is not None, "start() comes first"
        position = backlog.append(kind, count, parts)
        self.last_lsn, self.appended_bytes = backlog.last_lsn, backlog.appended_bytes
        return position

    def commit(self) -> int:
        """Write and sync all that waits; the durable sequence number."""
        if self._failure is not None:
            raise self._failed()
        assert self._backlog is not None, "start() comes first"
        is_leader = self._leader.acquire(blocking=False)
        assert is_leader, "one leader at a time"
        try:
            if entries := self._backlog.take():
                self._lock.check()
                last = entries[-1]
                assert self._segment is not None, "start() comes first"
                if entries[0].segment == last.segment == self._segment.number:
                    self._durable_end = self._segment.write(entries)
                else:
                    for number, group in groupby(entries, _segment_of):
                        self._write(number, list(group))
                self.sync_s = self._segment.sync_s
                self._lock.check()
                self.durable_lsn = last.lsn + last.events - 1
                self.safe_bytes = self._backlog.taken_bytes
        except BaseException as error:
            self._die(error)
            raise
        finally:
            self._leader.release()
        return self.durable_lsn

    def sends_refused(self) -> str | None:
        """Why new persistent messages must be refused: no space for the segment after this one. A
        store that has failed refuses nothing: what comes then is not answered, and its client asks
        the next primary."""
        return self._preallocated.refusal if self._is_short else None

    def maintain(self, read_lsn: int | None = None) -> None:
        """Let go of old segments and prepare spare and reserve; a full disk refuses sends, any
        other failure is deadly. On a full disk the history gives way. read_lsn: as of Store."""
        with self._deadly():
            if self._maintenance.acquire(blocking=False):
                try:
                    if not self._is_closed:
                        self._make_room(self.durable_lsn if read_lsn is None else read_lsn)
                finally:
                    self._maintenance.release()

    def _make_room(self, lsn: int) -> None:
        self._segments.put_copies()
        if self._segments.let_go(lsn):
            self._preallocated.retry()
        self._preallocated.maintain()
        while self._preallocated.is_out_of_space and self._segments.give_up_history():
            self._preallocated.retry()
            self._preallocated.maintain()
        is_short = self._preallocated.refusal is not None
        if is_short and not self._is_short:
            _log.warning("new persistent messages are refused: %s", self._preallocated.refusal)
        elif self._is_short and not is_short:
            _log.warning("new persistent messages are taken again: there is room")
        self._is_short = is_short
        self.look_bytes = 0 if is_short else self._segment_bytes // LOOKS_PER_SEGMENT

    def read(self, position: int, size: int) -> bytes:
        """Bytes of a durable record. Raises StoreFailed and SegmentGoneError."""
        assert position + size <= self._durable_end, "what is not synced yet cannot be read back"
        return self._fetch.read(position, size)

    @property
    def newest_segment(self) -> int:
        """The segment that is being written: all before it are synced."""
        return self._segment.number if self._segment else 0

    def pinned_records(self, segment: int, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
        """The records of a pinned segment. Raises SegmentGoneError and StoreCorrupt."""
        assert self._recovery is not None, "recover() comes first"
        try:
            yield from self._recovery.pinned_records(segment, runs_of)
        except FileNotFoundError as error:
            raise SegmentGoneError(segment) from error
        except OSError as error:
            raise _unavailable_because(self._path, error) from error

    def pin(self, segments: Iterable[int]) -> None:
        """These segments hold live messages that PINNED records name; at boot: no others do."""
        pinned = set(segments)
        self._segments.pin(pinned)
        if self._backlog is None:
            self._segments.emptied(set(self._segments.pins()) - pinned, self.durable_lsn)

    def emptied(self, segments: Iterable[int]) -> None:
        """Nothing in these is live, as the records appended so far say."""
        self._segments.emptied(segments, self.last_lsn)

    def next_to_clean(self, live: LiveData) -> CleaningStep | None:
        """The segment to be cleaned next, and how."""
        if self._segment is None or self._failure is not None:
            return None
        return self._segments.next_to_clean(live)

    def may_stay(self, segment: int, live_bytes: int) -> bool:
        """Whether a pinned segment stays when it has to be told of again."""
        return self._segments.may_stay(segment, live_bytes)

    def expect(self, owed_bytes: int) -> None:
        """Make the reserve large enough for the bytes that are owed."""
        self._preallocated.wanted = RESERVE_MIN - (-owed_bytes // self._segment_bytes)

    def seal(self) -> int | None:
        """Let the next record begin a new segment; its sequence number. None while no further one
        is prepared: the rest of this one is for acknowledgements (P10)."""
        if self._failure is not None:
            raise self._failed()
        is_ready = self._preallocated.is_ready and self._segments.has_room_to_seal()
        return self._seal() if is_ready else None

    def _seal(self) -> int | None:
        assert self._backlog is not None, "start() comes first"
        assert self._segment is not None, "start() comes first"
        is_ahead = self._backlog.segment != self._segment.number
        return None if is_ahead else self._backlog.seal()

    def growth(self) -> LogGrowth:
        """The oldest and newest segment, and the bytes beyond what the log should take."""
        return LogGrowth(self._segments.oldest, self.newest_segment, self._segments.excess_bytes)

    def finalize(self) -> tuple[int, int] | None:
        """Let the next record begin a segment of the newest format, if this is not one; the format
        before and then. None like seal()."""
        before = self._author.version
        if before < VERSION:
            if self.seal() is None:
                return None
            self._author = self._author._replace(version=VERSION)
        return before, self._author.version

    def leave(self, until: int) -> int:
        """The segments before this one are to leave the log; the first one not told again yet."""
        return self._segments.leave(until)

    def adopt(self, segment: int) -> None:
        """A copy in which erased messages are blank takes its place at the next maintenance."""
        self._segments.adopt(segment)

    @property
    def is_turn_due(self) -> bool:
        """A new segment would let many go at once; several, where space is scarce."""
        return self._segment is not None and self._failure is None and self._segments.is_turn_due

    def turn(self) -> bool:
        """Let the next record begin a new segment when that is due; whether it will."""
        return self.is_turn_due and self._preallocated.files > 0 and self._seal() is not None

    def spent(self, lengths: Iterable[int]) -> None:
        """Payloads of such lengths were appended for the sake of cleaning."""
        self._segments.spent(sum([record_bytes(length) for length in lengths]))

    def cleaned(self, segment: int) -> None:
        """Everything needed of this segment and the older ones has been told again."""
        self._segments.cleaned(segment, self.last_lsn)

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""
        return {
            "kind": "journal",
            "path": str(self._path),
            "store_format": self._author.version,
            "newest_store_format": VERSION,
            **self._segments.describe(),
            **self._amplification(),
            "reserve_bytes": self._preallocated.files * self._segment_bytes,
        }

    def _amplification(self) -> dict[str, FieldValue]:
        """What was appended since boot, what of it for the sake of cleaning, and how many bytes
        that makes for each one of others."""
        appended = self.appended_bytes
        rewritten = self._segments.spent_bytes
        factor = appended / (appended - rewritten) if appended > rewritten else 1.0
        return {
            "appended_bytes": appended,
            "rewritten_bytes": rewritten,
            "write_amplification": round(factor, 3),
        }

    def close(self) -> None:
        """Let go of the directory; what was not committed is dropped.

        A thread that still works in it is waited for: with the lock released it may be another's.
        """
        with self._leader, self._maintenance:
            if self._is_closed:
                return
            self._is_closed = True
            self._failure = self._failure or "the store is closed"
            self._preallocated.close()
            self._fetch.close()
            if self._segment is not None:
                self._segment.close()
            self._lock.release()

    def _write(self, number: int, entries: Sequence[Entry]) -> None:
        """Write records of one segment, and sync them before those of the next are written."""
        assert self._segment is not None
        if number != self._segment.number:
            old, first_lsn = self._segment, entries[0].lsn
            self._preallocated.is_for_bulk = old.syncs <= bulk_syncs(self._segment_bytes)
            self._segment = self._begin_segment(number, first_lsn)
            old.seal(first_lsn)
        # Here, not behind the batch: what lies before newest_segment can be read.
        self._durable_end = self._segment.write(entries)

    def _refuses(self, prepared: int) -> str | None:
        return self._segments.refuses(prepared)

    def _pays(self) -> bool:
        return self._segments.pays_to_clean()

    def _begin_first(self, number: int, first_lsn: int) -> Segment:
        """The segment of this boot; on a full disk what only the history needs gives way. Only a
        file that could not be made is made again: what failed once is not written again (P7)."""
        with suppress(NoFileError):
            return self._begin_segment(number, first_lsn, is_boot=True)
        self._make_room(self.durable_lsn)
        return self._begin_segment(number, first_lsn, is_boot=True)

    def _begin_segment(self, number: int, first_lsn: int, *, is_boot: bool = False) -> Segment:
        oldest = self._segments.oldest_for(first_lsn)
        is_freeing = self._segments.frees(oldest)
        with self._preallocated.taken(may_be_last=is_boot or is_freeing) as fd:
            about = (number, self._author, first_lsn, oldest)
            segment = Segment.begin(self._disk, self._path, fd, *about)
        self._segments.begun(number, oldest)
        return segment

    @contextmanager
    def _deadly(self) -> Iterator[None]:
        """Whatever fails in the block kills the journal (P7)."""
        if self._failure is not None:
            raise self._failed()
        try:
            yield
        except BaseException as error:
            self._die(error)
            raise

    def _die(self, error: BaseException) -> None:
        """Remember why nothing is written any more; StoreFailed for an error of the disk."""
        if isinstance(error, StoreFailed):
            self._failure = str(error.fields["detail"])
        elif isinstance(error, OSError):
            self._failure = f"{self._path}: {error.strerror or error}"
            raise self._failed() from error
        else:  # records may be half taken: going on would leave a hole in the log
            self._failure = f"{type(error).__name__} while writing: {error}"

    def _failed(self) -> StoreFailed:
        return StoreFailed(detail=self._failure, path=str(self._path))


@contextmanager
def _unavailable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unavailable_because(directory, error) from error


def _unavailable_because(directory: Path, error: OSError) -> StoreUnavailable:
    detail = error.strerror or str(error)
    if error.filename is not None:
        detail = f"{detail}: {error.filename}"
    return StoreUnavailable(path=str(directory), detail=detail)
