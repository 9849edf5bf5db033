"""Runs: records of the log that follow one another, and are read as one.

A boot reads a million records of a message each; one by one that is a hundred times the read of the
same bytes. Where the loops of _native_log.c are compiled a store gives such records together (see
Store.recover), and a reader that wants them one by one takes the run apart. Also what the log's
bytes are checked with.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from hms.wire import packed_messages
from hms.wire.packed_messages import ROW

__all__ = [
    "NO_RUNS",
    "RUN",
    "RUN_RECORDS",
    "SingleSends",
    "crc32",
    "records_of",
    "records_of_sends",
    "sends_in",
    "singly",
]

RUN: Final = 1 << 8
"""The kind of a run is that of its records and this; its count is theirs, its payload and position
are those of the bytes from the first one's header on."""
NO_RUNS: Final = 0
RUN_RECORDS: Final = 32
"""Fewer are given one by one."""
SENDS_MAX: Final = 1024
"""So many messages are waiting together at most, as many as in a batch."""
_HEADER_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<8xI")
_BEFORE_MESSAGE: Final = 96
"""Bytes of a SENT record of one message, at one place, before its head."""
StoredRecord = tuple[int, int, int, memoryview, int]

records_of: Final[Callable[..., tuple[int, int, int, bool]] | None] = getattr(
    packed_messages.native, "records_of", None
)
"""(view, at, lsn, lsn_max, salt, kind): how many records of that kind, of one event each, follow
from there on and verify; where they end; where the last one begins that was written behind nothing
unsynced, or -1; and whether only the view's end ends them. None where nothing is compiled."""
crc32: Final[Callable[..., int]] = getattr(packed_messages.native, "crc32", zlib.crc32)
"""The checksum of zlib, in a third of the time: 18 us for 256 KiB instead of 60."""
_single_sends: Final[Any] = getattr(packed_messages.native, "single_sends", None)


class SingleSends(NamedTuple):
    """Plain messages that were sent one by one to one place: no time to live, no delay, all of one
    priority, ids and places in the order of arrival ascending. positions: where head and body of
    each begin in the log; rows and heads: all of them, one behind the other."""

    number: int
    ids: "array[int]"
    seqs: "array[int]"
    times_ms: "array[int]"
    clients: "array[int]"
    producers: "array[int]"
    sequences: "array[int]"
    positions: "array[int]"
    rows: bytes
    heads: bytes

    @property
    def row_sizes(self) -> "array[int]":
        """Bytes of head and of body, and six numbers more, of each message in turn."""
        return array("I", self.rows)

    def part(self, start: int, end: int) -> "SingleSends":
        """Those from one index to another."""
        ends = list(accumulate(self.row_sizes[0::8], initial=0))
        return SingleSends(
            self.number,
            self.ids[start:end],
            self.seqs[start:end],
            self.times_ms[start:end],
            self.clients[start:end],
            self.producers[start:end],
            self.sequences[start:end],
            self.positions[start:end],
            self.rows[ROW.size * start : ROW.size * end],
            self.heads[ends[start] : ends[end]],
        )


def sends_in(run: memoryview, position: int) -> Iterator[SingleSends | tuple[memoryview, int]]:
    """What a run of SENT records at that position has: messages that wait together, and records
    that have to be looked at, with the position of their payload."""
    for found in _single_sends(run, RUN_RECORDS, SENDS_MAX):
        if isinstance(found, int):
            yield _payload(run, found), position + found + _HEADER_BYTES
        else:
            number, *columns, rows, heads = found
            told = [array("Q", column) for column in columns]
            told[-1] = array("Q", [position + at for at in told[-1]])
            yield SingleSends._make((number, *told, rows, heads))


def records_of_sends(
    found: SingleSends | tuple[memoryview, int], run: memoryview, position: int
) -> list[tuple[memoryview, int]]:
    """The same, always as records; run, position: what they were found in."""
    if not isinstance(found, SingleSends):
        return [found]
    first = position + _BEFORE_MESSAGE
    return [
        (_payload(run, at - first - _HEADER_BYTES), at - _BEFORE_MESSAGE) for at in found.positions
    ]


def singly(records: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
    """The same records, those of runs one by one."""
    for record in records:
        if record[1] & RUN:
            yield from _each(record)
        else:
            yield record


def _each(record: StoredRecord) -> Iterator[StoredRecord]:
    lsn, kind, count, run, position = record
    at = 0
    for one in range(lsn, lsn + count):
        payload = _payload(run, at)
        yield one, kind & ~RUN, 1, payload, position + at + _HEADER_BYTES
        at += _HEADER_BYTES + len(payload) + -len(payload) % 8


def _payload(run: memoryview, at: int) -> memoryview:
    (length,) = _LENGTH.unpack_from(run, at)
    return run[at + _HEADER_BYTES : at + _HEADER_BYTES + length]
