"""Segment walk: the segments of a directory, and the records of a segment one after the other."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown
from hms.store.interface import SEGMENT_SHIFT, StoredRecord
from hms.store.journal.disk import READ, Disk
from hms.store.journal.format import (
    FORMATS,
    KIND_SEAL,
    NO_RELEASE,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    VERSION,
    RecordHeader,
    Release,
    pack_seal,
    record_bytes,
    unpack_record_header,
    unpack_segment_header,
)
from hms.wire.record_runs import NO_RUNS, RUN, RUN_RECORDS, crc32, records_of

LOG_SUFFIX: Final = ".log"
HISTORY_SUFFIX: Final = ".history"
"""A segment that the log does not need any more and the history keeps."""
PINNED_SUFFIX: Final = ".pinned"
"""A segment behind the log that holds live messages, which the log tells of as they lie."""
ERASED_SUFFIX: Final = ".erased"
"""A copy of one that has left the log, in which erased messages are blank."""
AUDIT_SUFFIX: Final = ".audit"
"""The records of the audit of a segment that is gone (audit_files.py)."""
SUFFIXES: Final = (LOG_SUFFIX, PINNED_SUFFIX, HISTORY_SUFFIX)
"""In the order in which a segment gets them, so that who tries one after the other finds it."""
_NAME: Final = re.compile(r"(\d{16})(\.log|\.pinned|\.history)")
WINDOW_BYTES: Final = 4 * 1024 * 1024
SECTOR_BYTES: Final = 512
"""Bytes that a disk writes in full or not at all."""
LSN_MAX: Final = (1 << 64) - 1


class SegmentInfo(NamedTuple):
    """A segment file, and what its header says."""

    number: int
    file: Path
    size: int
    epoch: int
    node_uid: int
    first_lsn: int
    oldest: int
    salt: int
    is_last: bool
    version: int = VERSION
    release: Release = NO_RELEASE


class ReadUpTo(NamedTuple):
    """Behind a record: its segment, the offset there, the next sequence number, and what tells that
    segment from another one of its number."""

    number: int
    offset: int
    lsn: int
    salt: int


@contextmanager
def opened(disk: Disk, path: Path, flags: int = READ) -> Iterator[int]:
    """An open file for the length of a block."""
    fd = disk.open(path, flags)
    try:
        yield fd
    finally:
        disk.close(fd)


def segment_numbers(disk: Disk, directory: Path, suffix: str) -> list[int]:
    """The numbers of the segments of the log, or of those that only the history keeps."""
    names = [match for name in disk.list_dir(directory) if (match := _NAME.fullmatch(name))]
    return sorted(int(match[1]) for match in names if match[2] == suffix)


def segment_file(directory: Path, number: int, suffix: str = LOG_SUFFIX) -> Path:
    """Where the segment of this number lies."""
    return directory / f"{number:016d}{suffix}"


def all_files(disk: Disk, directory: Path) -> dict[int, Path]:
    """Every segment by number; the earlier of its names counts where a crash left two."""
    # In this order: what a running node lets go in between is then seen twice, not never.
    found = [(suffix, segment_numbers(disk, directory, suffix)) for suffix in SUFFIXES]
    return {
        number: segment_file(directory, number, suffix)
        for suffix, numbers in reversed(found)
        for number in numbers
    }


def survey_all(disk: Disk, directory: Path) -> list[SegmentInfo]:
    """The log's segments behind those that only the history keeps, by number; without pinned ones
    that something is missing behind: of the past before it nothing can be told.

    A segment may be let go between two looks into the directory, so it is looked for again.
    """
    files = all_files(disk, directory)
    first, last = past_begins(files), max(files, default=0)
    found = (_some(disk, directory, n, is_last=n == last) for n in sorted(files) if n >= first)
    return [info for info in found if info is not None]


def survey_alone(disk: Disk, directory: Path) -> list[SegmentInfo]:
    """The pinned segments that survey_all() leaves out."""
    files = all_files(disk, directory)
    first = past_begins(files)
    found = (_some(disk, directory, n, is_last=False) for n in sorted(files) if n < first)
    return [info for info in found if info is not None]


def past_begins(files: Mapping[int, Path]) -> int:
    """The segment behind the last gap before which all are pinned; 0 without such a gap."""
    first = 0
    for one, other in pairwise(sorted(files)):
        if files[one].suffix != PINNED_SUFFIX:
            break
        if other != one + 1:
            first = other
    return first


def _some(disk: Disk, directory: Path, number: int, *, is_last: bool) -> SegmentInfo | None:
    """A segment under whichever name it has; None when it was removed meanwhile."""
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            return read_info(disk, segment_file(directory, number, suffix), number, is_last=is_last)
    return None


def read_info(disk: Disk, file: Path, number: int, *, is_last: bool) -> SegmentInfo:
    """What a segment's header says. Raises StoreCorrupt and StoreFormatUnknown.

    The header is synced before the file gets its name: no crash leaves a segment without one.
    """
    with opened(disk, file) as fd:
        size = disk.size(fd)
        data = disk.pread(fd, SEGMENT_HEADER_BYTES, 0)
    header = unpack_segment_header(data)
    if header is None:
        raise StoreCorrupt(file=str(file), offset=0, lsn=0, detail="its header does not verify")
    if header.version not in FORMATS:
        raise StoreFormatUnknown(file=str(file), found=header.version, known=VERSION)
    if header.number != number:
        detail = f"it says that it is segment {header.number}"
        raise StoreCorrupt(file=str(file), offset=0, lsn=header.first_lsn, detail=detail)
    version, epoch, uid, _, first_lsn, oldest, salt, release = header
    if oldest > number:
        detail = f"it says that the log begins behind it, with segment {oldest}"
        raise StoreCorrupt(file=str(file), offset=0, lsn=first_lsn, detail=detail)
    about = (epoch, uid, first_lsn, oldest, salt, is_last, version, release)
    return SegmentInfo(number, file, size, *about)


def is_same_segment(disk: Disk, one: Path, other: Path) -> bool:
    """Whether two files are as long, and say the same of themselves."""
    found = []
    for file in (one, other):
        with opened(disk, file) as fd:
            found.append((disk.size(fd), disk.pread(fd, SEGMENT_HEADER_BYTES, 0)))
    return found[0] == found[1]


def last_written(disk: Disk, fd: int, start: int, end: int | None = None) -> int:
    """The offset behind the last byte from `start` on, and before `end`, that is not zero, or
    `start`. Sought from the end: a full segment is not read."""
    end = disk.size(fd) if end is None else end
    while end > start:
        at = max(start, end - WINDOW_BYTES)
        data = disk.pread(fd, end - at, at)
        if data != bytes(len(data)):  # compared first: rstrip takes 20 times as long
            return at + len(data.rstrip(b"\0"))
        end = at
    return start


def is_whole(header: RecordHeader, payload: memoryview) -> bool:
    """The payload is the one that was written."""
    return crc32(payload, header.fields_crc) == header.crc


class Walk:
    """The records of one segment, until one does not verify; `at` and `lsn` say where it stands."""

    def __init__(self, disk: Disk, fd: int, info: SegmentInfo) -> None:
        self._disk, self._fd, self._salt = disk, fd, info.salt
        self._base = info.number << SEGMENT_SHIFT
        self._start = 0
        self._window = memoryview(b"")
        self.at = SEGMENT_HEADER_BYTES
        self.lsn = info.first_lsn
        self.batch_at = SEGMENT_HEADER_BYTES
        """Where the last records that were written together begin: only they may be unsynced."""
        self._no_run_before = 0

    def records(
        self, from_lsn: int = 0, runs_of: int = NO_RUNS, until_lsn: int = LSN_MAX
    ) -> Iterator[StoredRecord]:
        """Records from the present place on; those that end before from_lsn are hopped over.
        runs_of: those of this kind, of one event each, may come as runs, before until_lsn."""
        while (header := self.header()) is not None:
            if header.kind == runs_of and header.events == 1 and self.at >= self._no_run_before:
                run = self._run(runs_of, until_lsn)
                if run is not None:
                    yield run
                    continue
            payload = self._payload(header.length)
            is_wanted = header.lsn + header.events > from_lsn
            if payload is None or (is_wanted and not is_whole(header, payload)):
                return
            if not header.unsynced:
                self.batch_at = self.at
            position = self._base + self.at + RECORD_HEADER_BYTES
            self.at += record_bytes(header.length)
            self.lsn += header.events
            if is_wanted:
                yield header.lsn, header.kind, header.events, payload, position

    def _run(self, kind: int, until_lsn: int) -> StoredRecord | None:
        """The records of this kind that stand here, if there are enough of them."""
        if records_of is None:
            return None
        view, at = self._view(RECORD_HEADER_BYTES)
        found = records_of(view, at, self.lsn, until_lsn, self._salt, kind)
        if found[0] < RUN_RECORDS and found[3] and at:
            self.forget_window()  # more of them may stand behind what was read
            view, at = self._view(RECORD_HEADER_BYTES)
            found = records_of(view, at, self.lsn, until_lsn, self._salt, kind)
        count, end, batch_at, _ = found
        if count < RUN_RECORDS:
            self._no_run_before = self.at + end - at + 1
            return None
        if batch_at >= 0:
            self.batch_at = self.at + batch_at - at
        run = self.lsn, kind | RUN, count, view[at:end], self._base + self.at
        self.at += end - at
        self.lsn += count
        return run

    def header(self) -> RecordHeader | None:
        """The next record's header if it verifies and follows in sequence."""
        view, at = self._view(RECORD_HEADER_BYTES)
        header = unpack_record_header(view, at, self._salt)
        if header is None or header.lsn != self.lsn or header.events == 0:
            return None
        return header

    def is_at_seal(self) -> bool:
        """Whether a segment ends here whose successor was synced."""
        view, at = self._view(RECORD_HEADER_BYTES)
        header = unpack_record_header(view, at, self._salt)
        return header is not None and header.kind == KIND_SEAL and header.lsn == self.lsn

    def is_at_torn_seal(self) -> bool:
        """Whether a seal was written here in part, and nothing behind it."""
        data = self._disk.pread(self._fd, RECORD_HEADER_BYTES, self.at)
        seal = pack_seal(self.lsn, self._salt)
        if any(byte not in (0, wanted) for byte, wanted in zip(data, seal, strict=False)):
            return False
        return last_written(self._disk, self._fd, self.at) <= self.at + RECORD_HEADER_BYTES

    def is_at_zeros(self) -> bool:
        """Whether nothing was written here."""
        view, at = self._view(RECORD_HEADER_BYTES)
        return not any(view[at : at + RECORD_HEADER_BYTES])

    def is_at_end(self) -> bool:
        """Whether nothing was written here or behind it."""
        return last_written(self._disk, self._fd, self.at) == self.at

    def is_torn(self) -> bool:
        """The record here was not written in full: a sector of it, or all from some place on, is
        still zero, as before. One that was, and does not verify, is damaged. Zeros of its own look
        the same."""
        if self.is_proved_synced():
            return False
        header = self.header()
        size = RECORD_HEADER_BYTES + (0 if header is None else header.length)
        if last_written(self._disk, self._fd, self.at) < self.at + size:
            return True
        data = self._disk.pread(self._fd, size, self.at)
        cuts = [0, *range(-self.at % SECTOR_BYTES or SECTOR_BYTES, size, SECTOR_BYTES), size]
        return any(not any(data[one:other]) for one, other in pairwise(cuts))

    def forget_window(self) -> None:
        """Read again from the file: a writer may have gone on."""
        self._window = memoryview(b"")

    def is_proved_synced(self) -> bool:
        """A record behind this place was written after the one that belongs here had been synced.

        Every possible place is looked at, behind the bad record itself if its
        header is whole: no length found on the way is trusted.
        """
        header = self.header()
        at = self.at + (record_bytes(header.length) if header else 0)
        end = last_written(self._disk, self._fd, self.at)
        view = memoryview(self._disk.pread(self._fd, max(end + 8 - at, 0), at))
        for place in range(0, len(view), 8):
            found = unpack_record_header(view, place, self._salt)
            if found and found.lsn - found.unsynced > self.lsn:
                return True
        return False

    def _payload(self, length: int) -> memoryview | None:
        view, at = self._view(RECORD_HEADER_BYTES + length)
        payload = view[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + length]
        return payload if len(payload) == length else None

    def _view(self, size: int) -> tuple[memoryview, int]:
        """A buffer and the present place in it, with `size` bytes behind it if there are."""
        at = self.at - self._start
        if at + size > len(self._window):
            data = self._disk.pread(self._fd, max(size, WINDOW_BYTES), self.at)
            self._window, self._start, at = memoryview(data), self.at, 0
        return self._window, at
