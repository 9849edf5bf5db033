"""Sift: the records of a damaged segment that verify, and the sequence numbers between them.

Behind a bad record every possible place is looked at. A header that verifies and whose payload does
not is hopped over: nothing inside a message is taken for a record.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hms.store.journal.format import (
    KIND_SEAL,
    SEGMENT_HEADER_BYTES,
    RecordHeader,
    record_bytes,
    unpack_record_header,
)
from hms.store.journal.segment_walk import is_whole

PLACES_MAX: Final = 1 << 17
"""Where the salt of a segment is not known, its first megabyte must show it."""


class Sound(NamedTuple):
    """A record that verifies."""

    lsn: int
    kind: int
    events: int
    payload: memoryview


class Lost(NamedTuple):
    """Sequence numbers whose records do not verify. records: how many, None when not known."""

    offset: int
    first_lsn: int
    last_lsn: int
    records: int | None


def sift(
    data: memoryview, salt: int, first_lsn: int, end_lsn: int | None
) -> Iterator[Sound | Lost]:
    """A segment's records in order, up to its seal. end_lsn: where it ends at the latest, excluded,
    None when that is not known."""
    at, lsn = SEGMENT_HEADER_BYTES, first_lsn
    while end_lsn is None or lsn < end_lsn:
        place, header = _here_or_behind(data, at, salt, lsn, end_lsn)
        if header is None:
            break
        if header.lsn > lsn:
            yield Lost(at, lsn, header.lsn - 1, None)
        if header.kind == KIND_SEAL:
            return
        payload = _payload(data, place, header)
        at, lsn = place + record_bytes(header.length), header.lsn + header.events
        if is_whole(header, payload):
            yield Sound(header.lsn, header.kind, header.events, payload)
        else:
            yield Lost(place, header.lsn, lsn - 1, 1)
    if end_lsn is not None and lsn < end_lsn:
        yield Lost(at, lsn, end_lsn - 1, None)


def _here_or_behind(
    data: memoryview, at: int, salt: int, lsn: int, end_lsn: int | None
) -> tuple[int, RecordHeader | None]:
    """The record header at this place if it is the next one, else the first one behind it."""
    header = _header(data, at, salt, lsn, end_lsn)
    if header is not None and header.lsn == lsn:
        return at, header
    place = _next_place(data, at + 8, salt, lsn, end_lsn)
    return (at, None) if place is None else (place, _header(data, place, salt, lsn, end_lsn))


def _payload(data: memoryview, at: int, header: RecordHeader) -> memoryview:
    start = at + record_bytes(0)
    return data[start : start + header.length]


def _header(
    data: memoryview, at: int, salt: int, lsn: int, end_lsn: int | None
) -> RecordHeader | None:
    """A record header that can belong here."""
    header = unpack_record_header(data, at, salt)
    if header is None or header.lsn < lsn:
        return None
    if header.kind == KIND_SEAL:
        return header
    is_inside = end_lsn is None or header.lsn + header.events <= end_lsn
    return header if header.events and is_inside else None


def _next_place(
    data: memoryview, start: int, salt: int, lsn: int, end_lsn: int | None
) -> int | None:
    """The next place where a header verifies. No length on the way is trusted."""
    end = start + len(bytes(data[start:]).rstrip(b"\0")) + 8
    for at in range(start, min(end, len(data)), 8):
        if is_possible(data, at) and _header(data, at, salt, lsn, end_lsn) is not None:
            return at
    return None


def first_record(data: memoryview, salt: int) -> int | None:
    """The sequence number of the first record whose header verifies with this salt."""
    end = len(bytes(data).rstrip(b"\0"))
    for at in range(SEGMENT_HEADER_BYTES, min(end, PLACES_MAX * 8), 8):
        if is_possible(data, at):
            header = unpack_record_header(data, at, salt)
            if header is not None and header.kind != KIND_SEAL:
                return header.lsn
    return None


def is_possible(data: memoryview, at: int) -> bool:
    """Every record header ends with its kind and three zeros."""
    return at + 32 <= len(data) and data[at + 28] != 0 and not any(data[at + 29 : at + 32])
