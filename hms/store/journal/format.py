"""The bytes of the log.

Segment: a header of 64 bytes, then records, each beginning at a multiple of 8, then zeros.

    0  magic 8 · format version u16 · 2 zeros · epoch u32 · node uid u64 · segment number u64
   32  first sequence number u64 · oldest segment u64
   48  release of HMS, three u16 · 6 zeros · crc32 u32 of the 60 bytes before

Format 2 has zeros for the release that wrote the segment. A log goes on in the format of its newest
segment until an operator raises it, so that the release before can take it back until then.

The oldest segment is the first one that was still needed when this one was begun: everything
needed of the ones before it had been written again, and synced.

The first 64 bytes keep this layout in every version, so that an old node can name a newer store.
The header's crc is the *salt*: every crc of the segment's records starts with it, so that bytes of
another segment, boot or node never verify here.

Record: a header of 32 bytes, the payload, zeros up to a multiple of 8.

    0  crc32 u32 of fields and payload · crc32 u32 of the fields alone
    8  fields: length u32 · sequence number u64 · count u32 · unsynced u32 · kind u8 · 3 zeros

`unsynced` is how many sequence numbers before this one were written together with it and not yet
synced. A record thus proves that everything before `lsn - unsynced` had been synced when it was
written; a bad record down there is damage, not a torn write. The crc of the fields alone lets
recovery look for such proof without trusting a length. Kind 0 is the end. Kind 255 is the *seal*,
written (with count 0) when the next segment is safe: a sealed segment that is the last one tells
that its successor was removed.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from hms.store.interface import Parts
from hms.wire.record_runs import crc32

MAGIC: Final = b"HMSLOG\x00\x01"
VERSION: Final = 3
FORMATS: Final = (2, VERSION)
"""The formats that this version reads; it writes each of them, too."""
RELEASE_SINCE: Final = 3
"""From this format on a header tells the release."""
Release = tuple[int, int, int]
NO_RELEASE: Final[Release] = (0, 0, 0)
SEGMENT_HEADER_BYTES: Final = 64
RECORD_HEADER_BYTES: Final = 32
KIND_END: Final = 0
KIND_SEAL: Final = 255
JOIN_BELOW_BYTES: Final = 16 * 1024

_SEGMENT: Final = struct.Struct("<8sHxxIQQQQHHH6x")
_CRC: Final = struct.Struct("<I")
_CHECKS: Final = struct.Struct("<II")
_FIELDS: Final = struct.Struct("<IQIIB3x")
_RECORD: Final = struct.Struct("<IIIQIIB3x")
_PADDING: Final = tuple(bytes(-n % 8) for n in range(8))

assert _SEGMENT.size + _CRC.size == SEGMENT_HEADER_BYTES
assert _RECORD.size == RECORD_HEADER_BYTES


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    version: int
    epoch: int
    node_uid: int
    number: int
    first_lsn: int
    oldest: int
    salt: int
    release: Release


class Author(NamedTuple):
    """The author of segments: a node, in a boot of a release of HMS, in a format."""

    node_uid: int
    epoch: int
    version: int = VERSION
    release: Release = NO_RELEASE


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record that waits for the disk: its segment, first sequence number, payload's length."""

    segment: int
    lsn: int
    kind: int
    events: int
    parts: Parts
    length: int


class RecordHeader(NamedTuple):
    """A record's header whose own crc is right."""

    crc: int
    fields_crc: int
    length: int
    lsn: int
    events: int
    unsynced: int
    kind: int


def record_bytes(length: int) -> int:
    """Bytes of a record with a payload of this length."""
    return RECORD_HEADER_BYTES + length + -length % 8


def pack_segment_header(author: Author, number: int, first_lsn: int, oldest: int) -> bytes:
    """The first 64 bytes of a segment."""
    uid, epoch, version, release = author
    told = release if version >= RELEASE_SINCE else NO_RELEASE
    head = _SEGMENT.pack(MAGIC, version, epoch, uid, number, first_lsn, oldest, *told)
    return head + _CRC.pack(crc32(head))


def unpack_segment_header(data: bytes) -> SegmentHeader | None:
    """A segment's header, of whatever version, or None when these bytes are none."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, version, epoch, node_uid, number, first_lsn, oldest, *release = _SEGMENT.unpack_from(
        data
    )
    (salt,) = _CRC.unpack_from(data, _SEGMENT.size)
    if magic != MAGIC or salt != crc32(data[: _SEGMENT.size]):
        return None
    major, minor, patch = release
    told = (major, minor, patch)
    return SegmentHeader(version, epoch, node_uid, number, first_lsn, oldest, salt, told)


def unpack_record_header(view: memoryview, at: int, salt: int) -> RecordHeader | None:
    """The record header at this place, or None when these bytes are none of this segment."""
    if at + RECORD_HEADER_BYTES > len(view):
        return None
    header = RecordHeader(*_RECORD.unpack_from(view, at))
    fields = view[at + _CHECKS.size : at + RECORD_HEADER_BYTES]
    if header.kind == KIND_END or header.fields_crc != crc32(fields, salt):
        return None
    return header


def set_checksum(data: bytearray, at: int) -> None:
    """The record at this place, of which the payload was changed, verifies again."""
    length, fields_crc = (
        _FIELDS.unpack_from(data, at + _CHECKS.size)[0],
        _CRC.unpack_from(data, at + 4)[0],
    )
    payload = memoryview(data)[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + length]
    _CRC.pack_into(data, at, crc32(payload, fields_crc))


def pack_seal(next_lsn: int, salt: int) -> bytes:
    """The mark behind the last record of a segment whose successor is safe."""
    fields = _FIELDS.pack(0, next_lsn, 0, 0, KIND_SEAL)
    crc = crc32(fields, salt)
    return _CHECKS.pack(crc, crc) + fields


def pack_records(entries: Sequence[Entry], salt: int) -> list[bytes | memoryview]:
    """The buffers to write for records that are synced together, to one segment.

    Small pieces are joined and large ones are written from where they lie.
    """
    first_lsn = entries[0].lsn
    out: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for entry in entries:
        parts, length = entry.parts, entry.length
        fields = _FIELDS.pack(length, entry.lsn, entry.events, entry.lsn - first_lsn, entry.kind)
        crc = fields_crc = crc32(fields, salt)
        for part in parts:
            crc = crc32(part, crc)
        small += (_CHECKS.pack(crc, fields_crc), fields)
        if length < JOIN_BELOW_BYTES:
            small += parts
        else:
            out += (b"".join(small), *parts)
            small.clear()
        small.append(_PADDING[length % 8])
    out.append(b"".join(small))
    return out
