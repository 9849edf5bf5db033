"""Damage of a copy: told from a torn write, noted in its file DAMAGE, and repaired by its primary.

A copy that lacks something that it had answered for must not lead by itself: what it lacks was
confirmed. So it does not campaign while the file names a segment of its log. It joins as one that
lacks those bytes, gets them, looks at them again, and only then forgets the damage.

A write that a power cut tore was never answered for. Segments are zeros before they are written,
and a disk writes sectors, so a torn write has a sector that is still zero; where none is, and
where a record is bad that was confirmed, something has happened to bytes that were whole.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from hms.errors.catalogue import StoreCorrupt
from hms.store.journal.confirmed_place import NOTHING, Place, confirmed_place
from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.recovery import all_records, alone_records
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    SegmentInfo,
    Walk,
    all_files,
    opened,
    read_info,
    segment_numbers,
)

__all__ = [
    "DAMAGE_NAME",
    "Damage",
    "check_segment",
    "damage_of",
    "forget_damages",
    "is_needed",
    "note_damages",
    "read_damages",
    "tail_damage",
]

DAMAGE_NAME: Final = "DAMAGE"
PAUSE_BYTES: Final = 256 * 1024

log = logging.getLogger("hms.replicas")
_changes: Final = threading.Lock()
"""Of the file: who follows forgets what is repaired, while another thread notes what it has found.
"""


class Damage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment whose bytes from an offset on are not what was written."""

    segment: int
    offset: int
    detail: str


def damage_of(fault: StoreCorrupt) -> Damage:
    """What a reader of the log found."""
    return Damage(int(Path(fault.file).stem), fault.offset, fault.detail)


# the file


def read_damages(disk: Disk, folder: Path) -> dict[int, Damage]:
    """What is known, by segment. A file that cannot be understood is none: it is found again."""
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        with opened(disk, folder / DAMAGE_NAME) as fd:
            data = disk.pread(fd, disk.size(fd), 0)
        return {one.segment: one for one in msgspec.json.decode(data, type=list[Damage])}
    return {}


def note_damages(disk: Disk, folder: Path, found: Iterable[Damage]) -> None:
    """Durable when this returns; what was known stays."""
    with _changes:
        known = read_damages(disk, folder)
        for one in found:
            log.error("segment %d is damaged at offset %d: %s", one.segment, one.offset, one.detail)
            before = known.get(one.segment, one)
            known[one.segment] = one if one.offset <= before.offset else before
        _write(disk, folder, known)


def forget_damages(disk: Disk, folder: Path, segments: Iterable[int]) -> None:
    """These are repaired."""
    with _changes:
        known = read_damages(disk, folder)
        for number in segments:
            if known.pop(number, None) is not None:
                log.warning("segment %d is repaired", number)
        _write(disk, folder, known)


def _write(disk: Disk, folder: Path, known: Mapping[int, Damage]) -> None:
    if not known:
        disk.unlink(folder / DAMAGE_NAME)
        return
    new = folder / f"{DAMAGE_NAME}.new"
    disk.unlink(new)
    with opened(disk, new, CREATE) as fd:
        write_all(disk, fd, [msgspec.json.encode(list(known.values()))], 0)
        disk.fsync(fd)
    disk.rename(new, folder / DAMAGE_NAME)
    disk.fsync_dir(folder)


def is_needed(disk: Disk, folder: Path, number: int) -> bool:
    """The log needs that segment, or it is not there; else only the history has it."""
    return number not in segment_numbers(disk, folder, HISTORY_SUFFIX)


# looking


def _nothing() -> None:
    pass


def check_segment(
    disk: Disk, folder: Path, number: int, pause: Callable[[], None] = _nothing
) -> Damage | None:
    """Read a segment that is not written any more. What looks damaged is looked at twice: a node
    may let go of a file meanwhile, and use it again. pause: called again and again."""
    first = _look(disk, folder, number, pause)
    return None if first is None else _look(disk, folder, number, pause)


def _look(disk: Disk, folder: Path, number: int, pause: Callable[[], None]) -> Damage | None:
    files = all_files(disk, folder)
    file, next_file = files.get(number), files.get(number + 1)
    if file is None:
        return None
    try:
        info = read_info(disk, file, number, is_last=False)
        successor = None
        if next_file is not None:
            with suppress(StoreCorrupt):  # which is told by itself
                successor = read_info(disk, next_file, number + 1, is_last=False)
        with opened(disk, file) as fd:
            _read(Walk(disk, fd, info), info, successor, pause)
    except FileNotFoundError:
        return None  # it has another name by now, or none
    except StoreCorrupt as fault:
        return damage_of(fault)
    return None


def _read(
    walk: Walk, info: SegmentInfo, successor: SegmentInfo | None, pause: Callable[[], None]
) -> None:
    is_alone = successor is None
    paused_at = 0
    for _ in alone_records(walk, info) if is_alone else all_records(walk, info, successor):
        if walk.at - paused_at >= PAUSE_BYTES:
            paused_at = walk.at
            pause()


def tail_damage(disk: Disk, folder: Path, *, is_live: bool = False) -> Damage | None:
    """What is wrong with the end of a copy's log, if it is not just a torn write. is_live: a
    primary writes it just now."""
    numbers = segment_numbers(disk, folder, LOG_SUFFIX)
    place = confirmed_place(folder, disk) or NOTHING
    if not numbers:
        return None
    number = numbers[-1]
    if place.segment > number:
        return Damage(number + 1, 0, "the segment is missing, and was confirmed")
    file = all_files(disk, folder)[number]
    try:
        info = read_info(disk, file, number, is_last=True)
        with opened(disk, file) as fd:
            walk = Walk(disk, fd, info)
            for _ in walk.records():
                pass
            return _end_damage(walk, number, place, is_live=is_live)
    except StoreCorrupt as fault:
        return damage_of(fault)


def _end_damage(walk: Walk, number: int, place: Place, *, is_live: bool) -> Damage | None:
    if place.segment == number and walk.at < place.offset:
        detail = f"a record does not verify, and was confirmed up to {place.offset}"
        return Damage(number, walk.at, detail)
    if is_live or walk.is_at_seal() or walk.is_at_end() or walk.is_torn():
        return None
    return Damage(number, walk.at, "a record does not verify, and is no torn write")
