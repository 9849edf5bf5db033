"""Recovery: what the log holds at boot, and where it ends.

A write that a crash tore can only be the last one, so a bad record is cut off when nothing behind
it proves that it had been synced (see format), in the last segment only. Everything else that is
bad or missing is damage: it is named by file and offset and nothing is changed.
"""

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path

from field_buffer.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.interface import StoredRecord
from hms.store.journal.disk import UPDATE, Disk, write_all
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.segment import seal
from hms.store.journal.walk import SegmentInfo, Walk, opened, survey

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
        if not other.is_blank and (other.epoch < one.epoch or other.node_uid != one.node_uid):
            detail = "the segment is of another node or boot than the one before it"
            raise corrupt(other.file, 0, other.first_lsn, detail)


def oldest_needed(segments: list[SegmentInfo]) -> int:
    """The first segment of the log, as its newest header says."""
    return max((info.oldest for info in segments if not info.is_blank), default=FIRST_NUMBER)


class Recovery:
    """One reading of the whole log; when records() is exhausted, the rest of it is known."""

    def __init__(self, disk: Disk, directory: Path, node_uid: int) -> None:
        self._disk, self._directory, self._node_uid = disk, directory, node_uid
        self._tail: SegmentInfo | None = None
        self._tail_end = self._batch_at = 0
        self.next_lsn = FIRST_LSN
        self.next_number = FIRST_NUMBER
        self.epoch = 0
        self.is_done = False
        self.oldest = FIRST_NUMBER
        self.segments: list[SegmentInfo] = []
        """All that are there, also those that are not needed and wait to be let go."""

    def records(self) -> Iterator[StoredRecord]:
        """Every record in order; changes nothing."""
        self.segments = survey(self._disk, self._directory)
        self.oldest = oldest_needed(self.segments)
        segments = [info for info in self.segments if info.number >= self.oldest]
        check_chain(segments)
        if segments and not segments[0].is_blank:
            self.next_lsn = segments[0].first_lsn
        self._check_owner(segments)
        for info, successor in zip_longest(segments, segments[1:]):
            if not info.is_blank:
                yield from self._segment(info, successor)
        if segments:
            self._find_end(segments)

    def cut_tail(self) -> None:
        """Cut the last segment behind its last record, so that no bytes of a torn write remain.

        Its last batch is written again: where a sync had failed, the system may still show us what
        it has given up writing, and call it clean. A sync alone would then save nothing.
        """
        if self._tail is not None:
            with opened(self._disk, self._tail.file, UPDATE) as fd:
                self._disk.ftruncate(fd, self._tail_end)
                batch = self._disk.pread(fd, self._tail_end - self._batch_at, self._batch_at)
                write_all(self._disk, fd, [batch], self._batch_at)
                self._disk.fsync(fd)
        self.is_done = True

    def seal_tail(self) -> None:
        """The next segment is safe: say so in the last one of the boot before."""
        if self._tail is not None and self._tail.number < self.next_number:
            with opened(self._disk, self._tail.file, UPDATE) as fd:
                seal(self._disk, fd, self._tail_end, self.next_lsn, self._tail.salt)

    def _check_owner(self, segments: list[SegmentInfo]) -> None:
        for info in segments:
            if not info.is_blank and info.node_uid != self._node_uid:
                detail = f"it belongs to node {info.node_uid}, this is node {self._node_uid}"
                raise StoreUnavailable(path=str(self._directory), detail=detail)

    def _segment(self, info: SegmentInfo, successor: SegmentInfo | None) -> Iterator[StoredRecord]:
        if info.first_lsn != self.next_lsn:
            detail = f"it begins with {info.first_lsn}, but {self.next_lsn} comes next"
            raise corrupt(info.file, 0, self.next_lsn, detail)
        with opened(self._disk, info.file) as fd:
            walk = Walk(self._disk, fd, info)
            yield from all_records(walk, info, successor)
            self.next_lsn, self._tail_end, self._tail = walk.lsn, walk.at, info
            self._batch_at = walk.batch_at

    def _find_end(self, segments: list[SegmentInfo]) -> None:
        """An empty last segment is begun anew: its file is replaced under the same number."""
        last = segments[-1]
        is_empty = last.is_blank or self._tail_end == SEGMENT_HEADER_BYTES
        self.next_number = last.number if is_empty else last.number + 1
        self.epoch = max(info.epoch for info in segments)


def all_records(
    walk: Walk, info: SegmentInfo, successor: SegmentInfo | None
) -> Iterator[StoredRecord]:
    """The records of a segment. Raises StoreCorrupt when one is bad that had been synced."""
    if successor is None or successor.is_blank:
        yield from walk.records()
        _check_end(walk, info, is_last=successor is None)
    else:
        yield from _followed_records(walk, info, successor.first_lsn)


def _followed_records(walk: Walk, info: SegmentInfo, next_lsn: int) -> Iterator[StoredRecord]:
    """The records of a segment that another one follows: all up to there must be whole."""
    if walk.lsn < next_lsn:
        for record in walk.records():
            yield record
            if walk.lsn >= next_lsn:
                break
    if walk.lsn != next_lsn:
        detail = f"a record does not verify; the next segment begins with {next_lsn}"
        raise corrupt(info.file, walk.at, walk.lsn, detail)


def _check_end(walk: Walk, info: SegmentInfo, *, is_last: bool) -> None:
    """Raise StoreCorrupt unless the records end here, or in the last segment with a torn write."""
    if walk.is_at_seal():
        if is_last:
            missing = info.file.with_name(f"{info.number + 1:016d}.log")
            raise corrupt(missing, 0, walk.lsn, "the segment is missing")
        return
    if walk.is_proved_synced() or not (is_last or walk.is_at_zeros()):
        detail = "the record does not verify, yet later ones prove that it was synced"
        raise corrupt(info.file, walk.at, walk.lsn, detail)
