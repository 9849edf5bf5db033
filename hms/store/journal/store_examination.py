"""Store examination: what a store holds and where it is damaged, told by the rules of recovery.

Nothing is changed, and no lock is kept. A node that runs writes on meanwhile: of its last segment
only what is whole already can be told.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.journal.disk import READ, REAL_DISK, Disk
from hms.store.journal.lock import LOCK_NAME
from hms.store.journal.reader import PathName, read_segment
from hms.store.journal.recovery import all_records, alone_records, oldest_needed
from hms.store.journal.segment_walk import (
    LOG_SUFFIX,
    PINNED_SUFFIX,
    SUFFIXES,
    SegmentInfo,
    Walk,
    all_files,
    last_written,
    opened,
    past_begins,
    read_info,
    segment_file,
)

MISSING: Final = "the segment is missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where the log does not say what was written.

    is_needed: the node refuses to boot; otherwise only the history has lost something.
    """

    file: Path
    offset: int
    lsn: int
    detail: str
    is_needed: bool


@dataclass(frozen=True, slots=True)
class TornEnd:
    """Bytes of a write that was cut short at the end of the log; the next boot cuts them off."""

    file: Path
    offset: int
    size: int


@dataclass(slots=True)
class Examination:
    """What examine() found. in_use_by: the process that has the store, when one has."""

    path: Path
    in_use_by: str | None = None
    segments: int = 0
    pinned_segments: int = 0
    history_segments: int = 0
    records: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    torn: TornEnd | None = None
    damages: list[Damage] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """good, torn or damaged."""
        if self.damages:
            return "damaged"
        return "torn" if self.torn else "good"


def holder(path: Path, disk: Disk = REAL_DISK) -> str | None:
    """The process that has a store, "unknown" if it does not say; None when nobody has it."""
    try:
        with opened(disk, path / LOCK_NAME) as fd:
            if disk.lock(fd):
                return None
            return disk.pread(fd, 20, 0).strip().decode("ascii", "replace") or "unknown"
    except FileNotFoundError:
        return None


def examine(path: PathName, disk: Disk = REAL_DISK) -> Examination:
    """Read a whole store. Raises StoreUnavailable, and StoreFormatUnknown for a newer one."""
    directory = Path(path)
    try:
        found = Examination(directory, holder(directory, disk))
        files = all_files(disk, directory)
        if not files:
            detail = "there is no log in it"
            raise StoreUnavailable(path=str(directory), detail=detail)
        _examine(disk, files, found)
    except OSError as error:
        raise StoreUnavailable(path=str(path), detail=error.strerror or str(error)) from error
    return found


def _examine(disk: Disk, files: dict[int, Path], found: Examination) -> None:
    infos, unreadable = headers(disk, files)
    needed = oldest_needed(infos)
    found.segments = sum(file.suffix == LOG_SUFFIX for file in files.values())
    found.pinned_segments = sum(file.suffix == PINNED_SUFFIX for file in files.values())
    found.history_segments = len(files) - found.segments - found.pinned_segments
    for error in (*unreadable, *_chain(files, infos, needed)):
        _add(found, error, needed)
    successors = {info.number: info for info in infos}
    for info in infos:
        try:
            _count(disk, info, successors.get(info.number + 1), found)
        except StoreCorrupt as error:
            _add(found, error, needed)
    if found.in_use_by is not None:
        # What a node removes meanwhile gets other contents under the reader's hands.
        first = min(all_files(disk, found.path))
        found.damages = [one for one in found.damages if int(one.file.stem) >= first]
    found.damages.sort(key=lambda damage: (damage.file.stem, damage.offset))


def _add(found: Examination, error: StoreCorrupt, needed: int) -> None:
    file = Path(error.file)
    is_needed = int(file.stem) >= needed or file.suffix == PINNED_SUFFIX
    damage = Damage(file, error.offset, error.lsn, error.detail, is_needed)
    if all((one.file, one.offset) != (damage.file, damage.offset) for one in found.damages):
        found.damages.append(damage)


def headers(disk: Disk, files: dict[int, Path]) -> tuple[list[SegmentInfo], list[StoreCorrupt]]:
    """The headers that verify, by number, and what is wrong with the others."""
    infos, unreadable = [], []
    for number, file in sorted(files.items()):
        try:
            infos.append(_header(disk, file, number, is_last=number == max(files)))
        except StoreCorrupt as error:
            unreadable.append(error)
        except FileNotFoundError:
            continue  # a running node has let it go and removed it
    return infos, unreadable


def _header(disk: Disk, file: Path, number: int, *, is_last: bool) -> SegmentInfo:
    """A segment's header; one that has left the log meanwhile has another name."""
    for suffix in SUFFIXES[SUFFIXES.index(file.suffix) :]:
        with suppress(FileNotFoundError):
            return read_info(disk, file.with_suffix(suffix), number, is_last=is_last)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))


def _chain(files: dict[int, Path], infos: list[SegmentInfo], needed: int) -> Iterator[StoreCorrupt]:
    """Segments that are missing or do not belong."""
    directory = next(iter(files.values())).parent
    first = max(min(*files, needed), past_begins(files))
    for number in range(first, max(files)):
        if number not in files:
            file = segment_file(directory, number)
            yield StoreCorrupt(file=str(file), offset=0, lsn=0, detail=MISSING)
    for one, other in pairwise(infos):
        if other.epoch < one.epoch or other.node_uid != one.node_uid:
            detail = "the segment is of another node or boot than the one beside it"
            # The boot compares only those that it needs.
            odd = other if one.number >= needed else one
            yield StoreCorrupt(file=str(odd.file), offset=0, lsn=odd.first_lsn, detail=detail)


def _count(
    disk: Disk, info: SegmentInfo, successor: SegmentInfo | None, found: Examination
) -> None:
    """Count a segment's records up to its end. Raises StoreCorrupt where one is bad."""
    found.first_lsn = found.first_lsn or info.first_lsn
    if found.in_use_by is not None:
        with suppress(FileNotFoundError):  # let go and removed meanwhile
            for lsn, _, events, *_ in read_segment(info.file, disk=disk):
                found.records, found.last_lsn = found.records + 1, lsn + events - 1
        return
    is_alone = info.file.suffix == PINNED_SUFFIX and successor is None
    with opened(disk, info.file, READ) as fd:
        walk = Walk(disk, fd, info)
        try:
            for _ in alone_records(walk, info) if is_alone else all_records(walk, info, successor):
                found.records += 1
        finally:
            found.last_lsn = max(found.last_lsn, walk.lsn - 1)
        if info.is_last:
            found.torn = _torn(disk, fd, walk, info)


def _torn(disk: Disk, fd: int, walk: Walk, info: SegmentInfo) -> TornEnd | None:
    end = last_written(disk, fd, walk.at)
    if walk.is_at_seal() or end == walk.at:
        return None
    return TornEnd(info.file, walk.at, end - walk.at)
