"""Recovery: what the log holds at boot, and where it ends.

A write that a crash tore can only be the last one, so a bad record is cut off when nothing behind
it proves that it had been synced (see format), in the last segment only. Everything else that is
bad or missing is damage: it is named by file and offset and nothing is changed.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise, zip_longest
from pathlib import Path
from types import MappingProxyType

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.interface import StoredRecord
from hms.store.journal.disk import UPDATE, Disk, write_all
from hms.store.journal.format import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES
from hms.store.journal.segment import seal
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    ReadUpTo,
    SegmentInfo,
    Walk,
    opened,
    read_info,
    segment_file,
    segment_numbers,
)
from hms.wire.record_runs import NO_RUNS

FIRST_NUMBER = 1
FIRST_LSN = 1


def corrupt(file: Path, offset: int, lsn: int, detail: str) -> StoreCorrupt:
    """The error for damage at a place."""
    return StoreCorrupt(file=str(file), offset=offset, lsn=lsn, detail=detail)


def check_chain(segments: list[SegmentInfo]) -> None:
    """Raise StoreCorrupt when a segment is missing or does not belong."""
    needed = oldest_needed(segments)
    if segments and segments[0].number > needed:
        missing = segments[0].file.with_name(f"{needed:016d}.log")
        raise corrupt(missing, 0, 0, "the segment is missing")
    for one, other in pairwise(segments):
        if other.number != one.number + 1:
            missing = one.file.with_name(f"{one.number + 1:016d}.log")
            raise corrupt(missing, 0, 0, "the segment is missing")
        if other.epoch < one.epoch or other.node_uid != one.node_uid:
            detail = "the segment is of another node or boot than the one before it"
            raise corrupt(other.file, 0, other.first_lsn, detail)


def oldest_needed(segments: list[SegmentInfo]) -> int:
    """The first segment of the log, as its newest header says."""
    return max((info.oldest for info in segments), default=FIRST_NUMBER)


class Recovery:
    """One reading of the whole log; when records() is exhausted, the rest of it is known."""

    def __init__(self, disk: Disk, directory: Path, node_uid: int) -> None:
        self._disk, self._directory, self._node_uid = disk, directory, node_uid
        self._tail: SegmentInfo | None = None
        self._tail_end = self._batch_at = 0
        self.next_lsn = FIRST_LSN
        self.next_number = FIRST_NUMBER
        self.epoch = 0
        self.version = 0
        """The format of the newest segment; 0: there is none."""
        self.is_done = False
        self._written: Mapping[int, int] = {}
        self.oldest = FIRST_NUMBER
        self.segments: dict[int, int] = {}
        """Sizes of all that are there, also those that are not needed and wait to be let go."""
        self.pinned: dict[int, int] = {}
        """Sizes of those behind the log that hold live messages."""

    def records(
        self,
        runs_of: int = NO_RUNS,
        behind: ReadUpTo | None = None,
        written: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[StoredRecord]:
        """Every record in order, or runs of that kind; changes nothing. behind: those before it
        were read already, by this process, and are confirmed; written: behind which offset this
        process has written nothing to a segment that it began, by number."""
        self._written = written
        segments = self._survey()
        if not segments:
            return
        check_chain(segments)
        self._check_owner(segments)
        first = 0 if behind is None else self._index_of(behind, segments)
        self.next_lsn = segments[first].first_lsn
        for info, successor in zip_longest(segments[first:], segments[first + 1 :]):
            is_begun = behind is not None and info.number == behind.number
            yield from self._segment(info, successor, runs_of, behind if is_begun else None)
        self._find_end(segments)

    def _index_of(self, behind: ReadUpTo, segments: list[SegmentInfo]) -> int:
        for index, info in enumerate(segments):
            if (info.number, info.salt) == (behind.number, behind.salt):
                return index
        file = segment_file(self._directory, behind.number)
        raise corrupt(file, behind.offset, behind.lsn, "what was read of the log is there no more")

    def pinned_records(self, number: int, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
        """The records of a segment that was pinned. FileNotFoundError; StoreCorrupt where one does
        not verify."""
        suffix = PINNED_SUFFIX if number in self.pinned else LOG_SUFFIX
        file = segment_file(self._directory, number, suffix)
        info = read_info(self._disk, file, number, is_last=False)
        self._check_owner([info])
        with opened(self._disk, file) as fd:
            yield from alone_records(Walk(self._disk, fd, info), info, runs_of)

    def check_reaches(self, segment: int, offset: int) -> None:
        """Raise StoreCorrupt when the log ends before a place that was confirmed: what is bad there
        is no torn write."""
        number = 0 if self._tail is None else self._tail.number
        if (number, self._tail_end) < (segment, offset):
            file = segment_file(self._directory, segment)
            at = self._tail_end if number == segment else 0
            raise corrupt(file, at, self.next_lsn, f"it was confirmed up to {offset}")

    def cut_tail(self) -> None:
        """Cut the last segment behind its last record, so that no bytes of a torn write remain; it
        keeps the room for its seal, which must not need new space.

        Its last batch is written again: where a sync had failed, the system may still show us what
        it has given up writing, and call it clean. A sync alone would then save nothing.
        """
        if self._tail is not None:
            with opened(self._disk, self._tail.file, UPDATE) as fd:
                self._disk.ftruncate(fd, self._tail_end + RECORD_HEADER_BYTES)
                batch = self._disk.pread(fd, self._tail_end - self._batch_at, self._batch_at)
                room = bytes(RECORD_HEADER_BYTES)
                write_all(self._disk, fd, [batch, room], self._batch_at)
                self._disk.fsync(fd)
        self.is_done = True

    def seal_tail(self) -> None:
        """The next segment is safe: say so in the last one of the boot before."""
        if self._tail is not None and self._tail.number < self.next_number:
            with opened(self._disk, self._tail.file, UPDATE) as fd:
                seal(self._disk, fd, self._tail_end, self.next_lsn, self._tail.salt)

    def _survey(self) -> list[SegmentInfo]:
        """The needed segments, as the newest one says: what is left below them is not looked into,
        since damage there must not keep a node from booting that has all it needs."""
        numbers = segment_numbers(self._disk, self._directory, LOG_SUFFIX)
        files = {number: segment_file(self._directory, number) for number in numbers}
        self.segments = {number: self._disk.size_and_age(file)[0] for number, file in files.items()}
        for number in segment_numbers(self._disk, self._directory, PINNED_SUFFIX):
            file = segment_file(self._directory, number, PINNED_SUFFIX)
            self.pinned[number] = self._disk.size_and_age(file)[0]
        if not numbers:
            self._check_new()
            return []
        newest = read_info(self._disk, files[numbers[-1]], numbers[-1], is_last=True)
        found = [
            read_info(self._disk, files[number], number, is_last=False)
            for number in numbers[:-1]
            if number >= newest.oldest
        ]
        self.oldest = oldest_needed([*found, newest])
        return [info for info in (*found, newest) if info.number >= self.oldest]

    def _check_new(self) -> None:
        """Raise StoreCorrupt where there is no log, but what has left one: begun anew under these
        numbers, it would take the place of its history, and nobody would know of what waited."""
        history = segment_numbers(self._disk, self._directory, HISTORY_SUFFIX)
        last = max((*history, *self.pinned), default=0)
        if last:
            missing = segment_file(self._directory, last + 1)
            raise corrupt(missing, 0, 0, "the segment is missing")

    def _check_owner(self, segments: list[SegmentInfo]) -> None:
        for info in segments:
            if info.node_uid != self._node_uid:
                detail = f"it belongs to node {info.node_uid}, this is node {self._node_uid}: the "
                detail += "numbers follow from the names of domain and node and from HMSINDEX"
                raise StoreUnavailable(path=str(self._directory), detail=detail)

    def _segment(
        self,
        info: SegmentInfo,
        successor: SegmentInfo | None,
        runs_of: int,
        behind: ReadUpTo | None = None,
    ) -> Iterator[StoredRecord]:
        if info.first_lsn != self.next_lsn:
            detail = f"it begins with {info.first_lsn}, but {self.next_lsn} comes next"
            raise corrupt(info.file, 0, self.next_lsn, detail)
        with opened(self._disk, info.file) as fd:
            walk = Walk(self._disk, fd, info)
            if behind is not None:
                walk.at = walk.batch_at = behind.offset
                walk.lsn = behind.lsn
            yield from all_records(walk, info, successor, runs_of, self._written.get(info.number))
            self.next_lsn, self._tail_end, self._tail = walk.lsn, walk.at, info
            self._batch_at = walk.batch_at

    def _find_end(self, segments: list[SegmentInfo]) -> None:
        """An empty last segment is begun anew: its file is replaced under the same number."""
        last, is_empty = segments[-1], self._tail_end == SEGMENT_HEADER_BYTES
        self.next_number = last.number if is_empty else last.number + 1
        self.epoch = max(info.epoch for info in segments)
        self.version = max(info.version for info in segments)


def alone_records(walk: Walk, info: SegmentInfo, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
    """The records of a segment whose successor may be gone. Raises StoreCorrupt when one is bad: a
    crash may have left it without its seal or with a part of it, never with other bytes there."""
    yield from walk.records(0, runs_of)
    if not (walk.is_at_seal() or walk.is_at_zeros() or walk.is_at_torn_seal()):
        raise corrupt(info.file, walk.at, walk.lsn, "the record does not verify")


def all_records(
    walk: Walk,
    info: SegmentInfo,
    successor: SegmentInfo | None,
    runs_of: int = NO_RUNS,
    written: int | None = None,
) -> Iterator[StoredRecord]:
    """The records of a segment. Raises StoreCorrupt when one is bad that had been synced. written:
    there are zeros behind it."""
    if successor is None:
        yield from walk.records(0, runs_of)
        if written is None or walk.at < written:
            _check_end(walk, info)
    else:
        yield from _followed_records(walk, info, successor.first_lsn, runs_of)


def _followed_records(
    walk: Walk, info: SegmentInfo, next_lsn: int, runs_of: int
) -> Iterator[StoredRecord]:
    """The records of a segment that another one follows: all up to there must be whole."""
    if walk.lsn < next_lsn:
        for record in walk.records(0, runs_of, next_lsn):
            yield record
            if walk.lsn >= next_lsn:
                break
    if walk.lsn != next_lsn:
        detail = f"a record does not verify; the next segment begins with {next_lsn}"
        raise corrupt(info.file, walk.at, walk.lsn, detail)


def _check_end(walk: Walk, info: SegmentInfo) -> None:
    """Raise StoreCorrupt unless the log ends here, or with a torn write."""
    if walk.is_at_seal():
        missing = info.file.with_name(f"{info.number + 1:016d}.log")
        raise corrupt(missing, 0, walk.lsn, "the segment is missing")
    if walk.is_proved_synced():
        detail = "the record does not verify, yet later ones prove that it was synced"
        raise corrupt(info.file, walk.at, walk.lsn, detail)
