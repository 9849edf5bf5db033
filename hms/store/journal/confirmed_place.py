"""CONFIRMED: up to where a copy of a replicated log may be read.

A copy has bytes that are not confirmed yet, and may never be: a later primary that lacks them cuts
them off. So a reader of a copy without its lock stops at the place that the primary told last,
which everything confirmed at that moment lies before. The file is written again and again without
a sync, as an older place is true as well. A store without it is no copy, and read to its end.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from hms.store.journal.disk import CREATE, REAL_DISK, Disk, write_all
from hms.store.journal.segment_walk import SegmentInfo, Walk, opened, survey_all

__all__ = [
    "CONFIRMED_NAME",
    "NOTHING",
    "ConfirmedPlace",
    "Place",
    "begin_place",
    "confirmed_place",
    "forget_place",
    "place_in",
]

CONFIRMED_NAME: Final = "CONFIRMED"
_PLACE: Final = struct.Struct("<8sQQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"HMSCONF\x01"
_LOOKS: Final = 5


class Place(NamedTuple):
    """Behind a record: its segment, and the offset in that."""

    segment: int
    offset: int


NOTHING: Final = Place(0, 0)


class ConfirmedPlace:
    """Writes the file; only with the copy's lock, one thread at a time."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk, self._file = disk, folder / CONFIRMED_NAME
        self.place = NOTHING
        """The place that this object wrote last."""

    def begin(self) -> None:
        """Make it a copy: nothing of it may be read until a primary confirms it."""
        with opened(self._disk, self._file, CREATE) as fd:
            is_new = self._disk.size(fd) < _PLACE.size + _CRC.size
        if is_new:
            self._write(NOTHING)

    def tell(self, place: Place) -> None:
        """Everything before a place is confirmed."""
        if place != self.place:
            self._write(place)
            self.place = place

    def lower(self, place: Place) -> None:
        """What is behind a place is in this log no more, though it was confirmed: an operator had a
        copy lead that lacks it. Durable when this returns."""
        told = confirmed_place(self._file.parent, self._disk)
        if told is not None and told > place:
            self._write(place, is_synced=True)
            self.place = place

    def _write(self, place: Place, *, is_synced: bool = False) -> None:
        data = _PLACE.pack(_MAGIC, *place)
        with opened(self._disk, self._file, CREATE) as fd:
            write_all(self._disk, fd, [data + _CRC.pack(crc32(data))], 0)
            if is_synced:
                self._disk.fdatasync(fd)


def begin_place(disk: Disk, folder: Path) -> None:
    """The first copy of a group: all that its log has is confirmed."""
    if CONFIRMED_NAME in disk.list_dir(folder):
        return
    found = survey_all(disk, folder)
    place = ConfirmedPlace(disk, folder)
    place.begin()
    if found:
        place.tell(_end_of(disk, found[-1]))


def forget_place(disk: Disk, folder: Path) -> None:
    """The store belongs to a node without replicas: all of it may be read."""
    disk.unlink(folder / CONFIRMED_NAME)


def _end_of(disk: Disk, info: SegmentInfo) -> Place:
    with opened(disk, info.file) as fd:
        walk = Walk(disk, fd, info)
        for _ in walk.records():
            pass
    return Place(info.number, walk.at)


def confirmed_place(folder: Path, disk: Disk = REAL_DISK) -> Place | None:
    """Where a reader of a copy stops; None: the store is no copy. A file that cannot be understood,
    as a power cut may leave it, tells of nothing."""
    for _ in range(_LOOKS):  # it may be written meanwhile
        try:
            with opened(disk, folder / CONFIRMED_NAME) as fd:
                data = disk.pread(fd, _PLACE.size + _CRC.size, 0)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if (place := place_in(data)) is not None:
            return place
    return NOTHING


def place_in(data: bytes) -> Place | None:
    """What the file says; None when it is not whole."""
    if len(data) < _PLACE.size + _CRC.size:
        return None
    magic, *place = _PLACE.unpack_from(data)
    is_whole = _CRC.unpack_from(data, _PLACE.size) == (crc32(data[: _PLACE.size]),)
    return Place(*place) if magic == _MAGIC and is_whole else None
