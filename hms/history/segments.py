"""Segments: which of them a reading needs, and where the log is safe up to. No lock is taken.

A node may write, let go and use files again meanwhile. What looks like damage in a file that has
lost its name is none: the file is the log's no more. A record that is written but not synced is
never shown, since a crash could take it back and give its number to another one: a reader of the
newest segment syncs it first, which costs nothing where the node has done it already. A copy of a
replicated log is read up to the place that its primary told it, see confirmed_place.
"""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hms.errors.catalogue import HistoryError, HistoryGone, StoreCorrupt, StoreUnavailable
from hms.history.scope import Scope
from hms.records import Identity, Snapshot, Writer
from hms.store.journal.confirmed_place import Place, confirmed_place
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.reader import list_segments, read_segment
from hms.store.journal.salvage import held
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_walk import (
    LOG_SUFFIX,
    SUFFIXES,
    SegmentInfo,
    Walk,
    opened,
    read_info,
    segment_file,
    segment_numbers,
)

__all__ = [
    "PathName",
    "Segment",
    "Tail",
    "identity_of_log",
    "is_copy",
    "records_of",
    "sealed",
    "segments_for",
    "survey",
    "unwritten",
]

PathName = str | os.PathLike[str]
LogRecord = tuple[int, int, int, bytes | memoryview, int]
"""lsn, type, count, payload, position."""
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, or what of it is safe: offsets from first_offset to until_offset, excluded."""

    file: str
    number: int
    size: int
    first_offset: int
    until_offset: int


def survey(path: PathName) -> list[SegmentInfo]:
    """The segments of a store by number.

    StoreUnavailable also for a directory that holds none; StoreCorrupt, StoreFormatUnknown.
    """
    for _ in range(_LOOKS - 1):
        try:
            return _some(path)
        except StoreCorrupt as fault:
            if _has_name(Path(str(fault.fields["file"]))):
                raise
    return _some(path)


def _some(path: PathName) -> list[SegmentInfo]:
    found = list_segments(path)
    if not found:
        detail = "it holds no segment of a log; give the directory of a store, or an archive"
        raise StoreUnavailable(path=os.fspath(path), detail=detail)
    return found


def _has_name(file: Path) -> bool:
    return any(file.with_suffix(suffix).exists() for suffix in SUFFIXES)


class Tail:
    """Where a log is safe up to; asked again, it looks on from where it was before."""

    def __init__(self, path: PathName) -> None:
        self._path = path
        self._salt = self._at = self._lsn = -1
        self._told: tuple[int, Identity] | None = None

    def end(self) -> int:
        """The first offset that is not there yet, or not safe."""
        place = confirmed_place(Path(self._path))
        last = _newest(self._path) if place is None else _newest_of_copy(self._path, place)
        with opened(REAL_DISK, last.file) as fd:
            walk = Walk(REAL_DISK, fd, last)
            if last.salt == self._salt:
                walk.at, walk.lsn = self._at, self._lsn
            if place is None:
                deque(walk.records(), maxlen=0)
            else:
                _walk_to(walk, place.offset if last.number == place.segment else 0)
            if walk.lsn > self._lsn:
                _sync(fd, last)
        self._salt, self._at, self._lsn = last.salt, walk.at, walk.lsn
        return walk.lsn

    def writer_before(self, offset: int) -> Writer:
        """Who wrote what stands before an offset, up to the end that was told last."""
        if self._told is None or self._told[0] != self._salt:
            self._told = identity_of_log(self._path)
        return self._told[1].writer_before(offset)


def identity_of_log(path: PathName) -> tuple[int, Identity]:
    """Which store it is and which boots wrote it, and the salt of the segment that says so."""
    for info in reversed(survey(path)):
        found = opening(REAL_DISK, info)
        if found is not None:
            return info.salt, found.identity.public
    return -1, Identity()


def _newest(path: PathName) -> SegmentInfo:
    """The last segment alone: a stream asks ten times a second, and there may be thousands."""
    folder = Path(path)
    with suppress(OSError, StoreCorrupt):
        number = segment_numbers(REAL_DISK, folder, LOG_SUFFIX)[-1:]
        if number:
            file = segment_file(folder, number[0])
            return read_info(REAL_DISK, file, number[0], is_last=True)
    return survey(path)[-1]


def _newest_of_copy(path: PathName, place: Place) -> SegmentInfo:
    """The segment in which the confirmed part of a copy ends; where that one has left the log, or
    has not come yet, the part ends at the beginning of the one behind it, or of the newest."""
    found = survey(path)
    return next((info for info in found if info.number >= place.segment), found[-1])


def _walk_to(walk: Walk, offset: int) -> None:
    """Up to a place that lies behind a record."""
    if walk.at < offset:
        for _ in walk.records():
            if walk.at >= offset:
                return


def _sync(fd: int, info: SegmentInfo) -> None:
    try:
        os.fdatasync(fd)
    except OSError as fault:
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            return  # nobody writes there
        raise StoreUnavailable(path=str(info.file), detail=str(fault)) from fault


def is_copy(path: PathName) -> bool:
    """Whether a store is a copy of a replicated log: it ends where its primary says."""
    return confirmed_place(Path(path)) is not None


def sealed(path: PathName) -> list[Segment]:
    """The segments that nobody writes any more, oldest first; of a copy what is confirmed."""
    place, found = confirmed_place(Path(path)), survey(path)
    return [
        _segment(one, other.first_lsn)
        for one, other in pairwise(found)
        if place is None or one.number < place.segment
    ]


def unwritten(path: PathName) -> Segment | None:
    """The newest segment up to its end, of a store that no node has: the next boot begins another
    one. None when nothing is in it. StoreLocked when a node has the store."""
    if is_copy(path):
        return None
    with held(REAL_DISK, Path(path)):
        end, last = Tail(path).end(), survey(path)[-1]
    return _segment(last, end) if last.first_lsn < end else None


def _segment(info: SegmentInfo, until: int) -> Segment:
    return Segment(str(info.file), info.number, info.size, info.first_lsn, until)


def segments_for(path: PathName, scope: Scope, end: int) -> list[Segment]:
    """The segments that may hold what is asked for, oldest first; end: the first offset to leave
    out. Their openings tell when they were begun, and which ids had been given then."""
    # Later than the end was found: a segment that was begun meanwhile is left out below.
    found = survey(path)
    if scope.until_offset is not None:
        end = min(end, scope.until_offset)
    ends = [*(info.first_lsn for info in found[1:]), end]
    around = [
        (_segment(info, min(stop, end)), info, after)
        for info, stop, after in zip(found, ends, [*found[1:], None], strict=True)
        if info.first_lsn < end and stop > scope.first_offset
    ]
    if scope.from_ms is None and scope.until_ms is None and not scope.message_ids:
        return [segment for segment, _, _ in around]
    return [segment for segment, info, after in around if _may_hold(scope, info, after)]


def _may_hold(scope: Scope, info: SegmentInfo, after: SegmentInfo | None) -> bool:
    """Times never fall in a log, nor do ids; an opening that says nothing excludes nothing."""
    begun, ended = _opening(info), _opening(after)
    if scope.until_ms is not None and begun.now_ms >= scope.until_ms:
        return False
    if scope.from_ms is not None and 0 < ended.now_ms < scope.from_ms:
        return False
    return not scope.message_ids or _may_name(scope.message_ids, ended.ids_below)


def _may_name(wanted: frozenset[int], ids_below: int) -> bool:
    """Whether one of the ids may have been given; another node's may have come from there."""
    return not ids_below or any(one < ids_below or one >> 40 != ids_below >> 40 for one in wanted)


def _opening(info: SegmentInfo | None) -> Snapshot:
    """What the first record of a segment tells; nothing when that cannot be read here."""
    return (opening(REAL_DISK, info) if info else None) or Snapshot(())


def records_of(segment: Segment) -> Iterator[LogRecord]:
    """The records of a segment, which must reach up to its end: nothing is left out silently.

    Raises HistoryGone when it was let go meanwhile.
    """
    reached = segment.first_offset
    try:
        info = _present(segment)
        last, of_copy = segment.until_offset - 1, is_copy(info.file.parent)
        for record in read_segment(info.file, until_lsn=last, is_copy=of_copy):
            yield record
            reached = record[0] + record[2]
    except FileNotFoundError as fault:
        raise _gone(segment, reached) from fault
    except StoreCorrupt as fault:
        if not _is_there(segment):
            raise _gone(segment, reached) from fault
        raise
    if reached < segment.until_offset:
        raise _gone(segment, reached) if not _is_there(segment) else _short(segment, reached)


def _present(segment: Segment) -> SegmentInfo:
    """The segment, under whichever name it has."""
    file = Path(segment.file)
    for suffix in SUFFIXES:
        try:
            return read_info(REAL_DISK, file.with_suffix(suffix), segment.number, is_last=True)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(segment.file)


def _is_there(segment: Segment) -> bool:
    """Whether it still has a name, and is the one that was planned."""
    try:
        return _present(segment).first_lsn == segment.first_offset
    except FileNotFoundError:
        return False


def _gone(segment: Segment, reached: int) -> HistoryGone:
    last = segment.until_offset - 1
    return HistoryGone(first=reached, last=last, detail=f"{segment.file} was let go")


def _short(segment: Segment, reached: int) -> HistoryError:
    detail = f"{segment.file} ends before offset {reached}, but the history goes on at "
    detail += f"{segment.until_offset}: a segment is missing or damaged"
    return HistoryError(detail=detail)
