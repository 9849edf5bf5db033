"""Openings: the record that begins a segment, read without reading the segment."""

from typing import Final

import msgspec

from hms.records import RecordType, Snapshot, decode_dictionary
from hms.store.journal.disk import Disk
from hms.store.journal.format import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    unpack_record_header,
)
from hms.store.journal.segment_walk import SegmentInfo, is_whole, opened

_FIRST_BYTES: Final = 64 * 1024


def opening(disk: Disk, info: SegmentInfo) -> Snapshot | None:
    """What the first record of a segment tells; None when that cannot be read, or not yet."""
    try:
        with opened(disk, info.file) as fd:
            return _dictionary(disk, fd, info.salt)
    except (OSError, msgspec.MsgspecError):
        return None  # reading it will tell what is wrong with it


def _dictionary(disk: Disk, fd: int, salt: int) -> Snapshot | None:
    start = SEGMENT_HEADER_BYTES
    view = memoryview(disk.pread(fd, _FIRST_BYTES, start))
    header = unpack_record_header(view, 0, salt)
    if header is None or header.kind != RecordType.DICTIONARY:
        return None
    if len(view) < RECORD_HEADER_BYTES + header.length:
        view = memoryview(disk.pread(fd, RECORD_HEADER_BYTES + header.length, start))
    payload = view[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + header.length]
    return decode_dictionary(payload) if is_whole(header, payload) else None
