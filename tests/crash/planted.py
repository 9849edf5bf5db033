"""Mistakes in the journal that are planted on purpose: an enumeration that never failed proves
nothing. Each is given with the program that must show it.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

import hms.store.journal.segment_walk as walking
from hms.store.journal import segment_manager
from hms.store.journal.disk import UPDATE, Disk, write_all
from hms.store.journal.format import (
    RECORD_HEADER_BYTES,
    Author,
    Entry,
    pack_records,
    pack_segment_header,
)
from hms.store.journal.journal import Journal
from hms.store.journal.preallocated_segment import PreallocatedSegment
from hms.store.journal.recovery import Recovery
from hms.store.journal.segment import SPARE_NAME, Segment
from hms.store.journal.segment_manager import SegmentManager
from hms.store.journal.segment_trim import sealed_end
from hms.store.journal.segment_walk import opened, segment_file
from tests.crash.cleaning import (
    cleaning_with_a_history,
    killed_while_using_files_again,
    moved_out_of_pinned_segments,
    moving_over_segment_ends,
    pinned_and_drained,
    sealed_and_let_go,
)
from tests.crash.programs import (
    batches_over_segments,
    failed_syncs,
    several_boots,
)
from tests.crash.recording import RecordingDisk

Plant = Callable[[pytest.MonkeyPatch], None]
Program = Callable[[RecordingDisk], None]


def _write_with(sync: Callable[[Segment], None]) -> Callable[[Segment, Sequence[Entry]], None]:
    def write(self: Segment, entries: Sequence[Entry]) -> None:
        buffers = pack_records(entries, self._salt)
        self._end = write_all(self._disk, self._fd, buffers, self._end)
        sync(self)

    return write


def confirmation_before_sync(patch: pytest.MonkeyPatch) -> None:
    """What was written is called durable; the sync comes with the next batch."""
    waiting: list[Segment] = []

    def late(segment: Segment) -> None:
        if waiting and waiting.pop() is segment:
            segment._disk.fdatasync(segment._fd)
        waiting.append(segment)

    patch.setattr(Segment, "write", _write_with(late))


def no_sync(patch: pytest.MonkeyPatch) -> None:
    """The sync of a batch is left out."""
    patch.setattr(Segment, "write", _write_with(lambda _segment: None))


def sync_retried(patch: pytest.MonkeyPatch) -> None:
    """A failed sync is tried again, and then reports success."""

    def stubborn(segment: Segment) -> None:
        with contextlib.suppress(OSError):
            segment._disk.fdatasync(segment._fd)
            return
        segment._disk.fdatasync(segment._fd)

    patch.setattr(Segment, "write", _write_with(stubborn))


def checksum_skipped(patch: pytest.MonkeyPatch) -> None:
    """A record whose header is whole is believed."""
    patch.setattr(walking, "is_whole", lambda _header, _payload: True)


def directory_sync_missing(patch: pytest.MonkeyPatch) -> None:
    """No name is ever made safe."""
    patch.setattr(RecordingDisk, "fsync_dir", lambda _self, _path: None)


def _begin_with(
    steps: Callable[[Disk, Path, int, Path, bytes], None],
) -> Callable[..., Segment]:
    def begin(
        cls: type[Segment],
        disk: Disk,
        directory: Path,
        fd: int,
        number: int,
        author: Author,
        *lsns: int,
    ) -> Segment:
        header = pack_segment_header(author, number, *lsns)
        path = segment_file(directory, number)
        steps(disk, directory, fd, path, header)
        return cls(disk, path, fd, number, header)

    return classmethod(begin)  # type: ignore[return-value]


def rename_not_synced_before_use(patch: pytest.MonkeyPatch) -> None:
    """Records go into a segment whose name is made safe only when the next one begins."""

    def steps(disk: Disk, directory: Path, fd: int, path: Path, header: bytes) -> None:
        write_all(disk, fd, [header], 0)
        disk.fdatasync(fd)
        disk.fsync_dir(directory)
        disk.rename(directory / SPARE_NAME, path)

    patch.setattr(Segment, "begin", _begin_with(steps))


def header_not_synced_before_rename(patch: pytest.MonkeyPatch) -> None:
    """A segment can get its name without a header, and the one before it be sealed."""

    def steps(disk: Disk, directory: Path, fd: int, path: Path, header: bytes) -> None:
        disk.rename(directory / SPARE_NAME, path)
        disk.fsync_dir(directory)
        write_all(disk, fd, [header], 0)

    patch.setattr(Segment, "begin", _begin_with(steps))


def sealed_too_early(patch: pytest.MonkeyPatch) -> None:
    """The seal promises a successor that is not there yet."""
    write, begin = Journal._write, Journal._begin_segment

    def hasty(self: Journal, number: int, entries: Sequence[Entry]) -> None:
        segment = self._segment
        if segment is not None and number != segment.number:
            segment.seal(entries[0].lsn)
            self._segment = begin(self, number, entries[0].lsn)
        write(self, number, entries)

    patch.setattr(Journal, "_write", hasty)


def tail_not_written_again(patch: pytest.MonkeyPatch) -> None:
    """Recovery trusts a sync to save what a failed sync had given up."""

    def cut_tail(self: Recovery) -> None:
        if self._tail is not None:
            with opened(self._disk, self._tail.file, UPDATE) as fd:
                self._disk.ftruncate(fd, self._tail_end)
                self._disk.fsync(fd)

    patch.setattr(Recovery, "cut_tail", cut_tail)


def let_go_before_the_moved_is_synced(patch: pytest.MonkeyPatch) -> None:
    """A new segment says that the log begins later, while records are moved into that segment."""

    def cleaned(self: SegmentManager, segment: int, _last_lsn: int) -> None:
        self._cleaned = segment + 1, 0

    patch.setattr(SegmentManager, "cleaned", cleaned)


def pins_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A segment that is only told of goes with the log's beginning, as if it had been moved."""
    patch.setattr(SegmentManager, "pin", lambda _self, _segments: None)


def given_back_before_the_end_is_safe(patch: pytest.MonkeyPatch) -> None:
    """A pinned segment goes while the acknowledgement of its last message can still be lost."""
    emptied = SegmentManager.emptied

    def hasty(self: SegmentManager, segments: Iterable[int], _last_lsn: int) -> None:
        emptied(self, segments, 0)
        self.let_go(0)

    patch.setattr(SegmentManager, "emptied", hasty)


def given_back_before_the_move_is_safe(patch: pytest.MonkeyPatch) -> None:
    """The blocks of a pinned segment are copied, and it is released before the copy is synced."""
    emptied = Journal.emptied

    def hasty(self: Journal, segments: Iterable[int]) -> None:
        gone = list(segments)
        emptied(self, gone)
        for number in gone:
            if number in self._segments._emptied:
                self._segments._emptied[number] = 0
        self._segments.let_go(self.durable_lsn)

    patch.setattr(Journal, "emptied", hasty)


def removed_at_once(patch: pytest.MonkeyPatch) -> None:
    """A segment is removed when its records are appended again, not when they are safe."""
    cleaned = SegmentManager.cleaned

    def hasty(self: SegmentManager, segment: int, last_lsn: int) -> None:
        cleaned(self, segment, last_lsn)
        self.oldest = segment + 1
        self.let_go(0)

    patch.setattr(SegmentManager, "cleaned", hasty)


def zeros_before_the_name_is_safe(patch: pytest.MonkeyPatch) -> None:
    """An old segment's file is filled with zeros while a crash may bring its old name back."""
    is_prepared = PreallocatedSegment._is_prepared

    def hasty(self: PreallocatedSegment, fd: int) -> bool:
        if not is_prepared(self, fd):
            self._fill(fd)
        return True

    patch.setattr(PreallocatedSegment, "_is_prepared", hasty)


def trimmed_too_short(patch: pytest.MonkeyPatch) -> None:
    """A segment that leaves the log is cut into its last record."""

    def hasty(disk: Disk, file: Path) -> int:
        with opened(disk, file, UPDATE) as fd:
            end = min(sealed_end(disk, fd) - RECORD_HEADER_BYTES - 8, disk.size(fd))
            disk.ftruncate(fd, end)
            disk.fsync(fd)
        return end

    patch.setattr(segment_manager, "trim", hasty)


PLANTS: dict[Plant, Program] = {
    confirmation_before_sync: several_boots,
    no_sync: several_boots,
    sync_retried: failed_syncs,
    checksum_skipped: several_boots,
    directory_sync_missing: several_boots,
    rename_not_synced_before_use: several_boots,
    header_not_synced_before_rename: batches_over_segments,
    sealed_too_early: batches_over_segments,
    tail_not_written_again: failed_syncs,
    let_go_before_the_moved_is_synced: moving_over_segment_ends,
    removed_at_once: cleaning_with_a_history,
    trimmed_too_short: sealed_and_let_go,
    pins_forgotten: pinned_and_drained,
    given_back_before_the_end_is_safe: pinned_and_drained,
    given_back_before_the_move_is_safe: moved_out_of_pinned_segments,
    zeros_before_the_name_is_safe: killed_while_using_files_again,
}
