"""Reading the log without its lock: for the history, and for the operator.

A node may be writing meanwhile. The last segment ends where the first record does not verify yet;
in a segment that another one follows, or that is sealed, every record must be there.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.interface import StoredRecord
from hms.store.journal.disk import REAL_DISK, Disk
from hms.store.journal.recovery import all_records, alone_records, check_chain, corrupt
from hms.store.journal.segment_walk import (
    SUFFIXES,
    SegmentInfo,
    Walk,
    opened,
    read_info,
    segment_file,
    survey_all,
    survey_alone,
)

PathName = str | os.PathLike[str]


class Finding(NamedTuple):
    """Damage that verify() found."""

    file: str
    offset: int
    lsn: int
    detail: str


def list_segments(path: PathName, disk: Disk = REAL_DISK) -> list[SegmentInfo]:
    """The segments of a store by number, those that only the history keeps before the others.

    Raises StoreUnavailable, StoreCorrupt and others.
    """
    try:
        return survey_all(disk, Path(path))
    except OSError as error:
        raise StoreUnavailable(path=str(path), detail=error.strerror or str(error)) from error


def read_segment(
    file: PathName,
    first_lsn: int = 0,
    until_lsn: int | None = None,
    disk: Disk = REAL_DISK,
    *,
    is_copy: bool = False,
) -> Iterator[StoredRecord]:
    """The records of a segment that hold sequence numbers from first_lsn to until_lsn, included.

    A record that is written is not always safe yet: until_lsn may be the node's durable one. What
    stands behind it is looked at too, as damage is told and not taken for the end; but not in a
    copy of a replicated log (is_copy), where it may be written over.
    Raises StoreCorrupt, and FileNotFoundError for a segment that was retired meanwhile.
    """
    info = segment_info(disk, Path(file))
    with opened(disk, info.file) as fd:
        for record in _live_records(disk, Walk(disk, fd, info), info, first_lsn):
            if until_lsn is not None and record[0] > until_lsn:
                return
            yield record
            if is_copy and until_lsn is not None and record[0] + record[2] > until_lsn:
                return


def segment_info(disk: Disk, file: Path) -> SegmentInfo:
    """A segment's header; one that has left the log since it was listed has another name now."""
    number = int(file.stem)
    for suffix in SUFFIXES[SUFFIXES.index(file.suffix) :]:
        with suppress(FileNotFoundError):
            return read_info(disk, file.with_suffix(suffix), number, is_last=True)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))


def _live_records(
    disk: Disk, walk: Walk, info: SegmentInfo, first_lsn: int
) -> Iterator[StoredRecord]:
    """Records as far as they are written; what seems damaged is looked at twice.

    The writer may have finished a record after we read it and before we looked behind it.
    """
    yield from walk.records(first_lsn)
    while True:
        place, is_suspect = walk.at, _is_damaged(disk, walk, info)
        walk.forget_window()
        yield from walk.records(first_lsn)
        if walk.at == place:
            break
    if is_suspect:
        raise corrupt(info.file, walk.at, walk.lsn, "the record does not verify")


def read_store(path: PathName, disk: Disk = REAL_DISK) -> Iterator[StoredRecord]:
    """Every record of the history and the log, of a store that no node has booted.

    Raises StoreCorrupt and StoreUnavailable.
    """
    segments = list_segments(path, disk)
    check_chain(segments)
    for info, successor in zip_longest(segments, segments[1:]):
        with opened(disk, info.file) as fd:
            yield from all_records(Walk(disk, fd, info), info, successor)


def last_lsn(path: PathName, disk: Disk = REAL_DISK) -> int:
    """The last sequence number that is written, 0 in a store without records."""
    segments = list_segments(path, disk)
    if not segments:
        return 0
    with opened(disk, segments[-1].file) as fd:
        walk = Walk(disk, fd, segments[-1])
        deque(walk.records(), maxlen=0)
        return walk.lsn - 1


def verify(path: PathName, disk: Disk = REAL_DISK) -> Iterator[Finding]:
    """Every damage in a store that no node has booted; a torn tail is none. Changes nothing."""
    try:
        segments = list_segments(path, disk)
        alone = survey_alone(disk, Path(path))
        check_chain(segments)
    except StoreCorrupt as error:
        yield _finding(error)
        return
    for info in alone:
        yield from _verify_records(disk, info, partial(alone_records, info=info))
    for info, successor in zip_longest(segments, segments[1:]):
        yield from _verify_segment(disk, info, successor)


def _verify_segment(
    disk: Disk, info: SegmentInfo, successor: SegmentInfo | None
) -> Iterator[Finding]:
    yield from _verify_records(disk, info, partial(all_records, info=info, successor=successor))


def _verify_records(
    disk: Disk, info: SegmentInfo, records: Callable[[Walk], Iterator[StoredRecord]]
) -> Iterator[Finding]:
    with opened(disk, info.file) as fd:
        try:
            deque(records(Walk(disk, fd, info)), maxlen=0)
        except StoreCorrupt as error:
            yield _finding(error)


def _finding(error: StoreCorrupt) -> Finding:
    return Finding(error.file, error.offset, error.lsn, error.detail)


def _is_damaged(disk: Disk, walk: Walk, info: SegmentInfo) -> bool:
    """The record that should stand here had been synced."""
    if walk.is_at_seal():
        return False
    file = segment_file(info.file.parent, info.number + 1)
    try:
        successor = segment_info(disk, file)
    except FileNotFoundError:
        return not walk.is_at_zeros() and walk.is_proved_synced()
    return successor.first_lsn != walk.lsn
