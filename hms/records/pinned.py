"""PINNED: live messages that stay where they lie, in a segment behind the log.

It restates messages as MOVED does, and in place of their bytes says where these are: so a segment
that is mostly live leaves the log without being written again. No event in the history.
"""

import struct
from collections.abc import Sequence

import msgspec

from hms.records.kept import Stay
from hms.records.kinds import LogPosition, Record, RecordType

_encode = msgspec.msgpack.Encoder().encode


class PinnedRun(msgspec.Struct, frozen=True, array_like=True):
    """Messages that are at the same places in the same way.

    ids: the first one when they follow one another, else each of them in 8 bytes; offsets: where
    each one's head and body begin in the segment's file, 4 bytes each, little-endian.
    """

    ids: int | bytes
    offsets: bytes
    stays: Sequence[Stay]

    def positions(self) -> list[int]:
        """Offset of each message."""
        return list(_unpacked("I", self.offsets))

    def each(self) -> list[tuple[int, int]]:
        """Id and offset of each message."""
        offsets = _unpacked("I", self.offsets)
        if isinstance(self.ids, int):
            return list(zip(range(self.ids, self.ids + len(offsets)), offsets, strict=True))
        return list(zip(_unpacked("Q", self.ids), offsets, strict=True))


class Pinned(msgspec.Struct, frozen=True, array_like=True):
    """Some messages of a segment. part: 0 for the first record of a telling, which all its live
    messages are in."""

    segment: int
    part: int
    runs: Sequence[PinnedRun]


def pinned_run(ids: list[int], offsets: Sequence[int], stays: Sequence[Stay]) -> PinnedRun:
    """Messages in the order of their ids or not."""
    first, count = ids[0], len(ids)
    is_dense = ids[-1] - first == count - 1 and ids == list(range(first, first + count))
    return PinnedRun(first if is_dense else _packed("Q", ids), _packed("I", offsets), stays)


def pinned(
    segment: int, part: int, runs: Sequence[PinnedRun], log_position: LogPosition | None = None
) -> Record:
    """Messages that stay where they lie; log_position: notified of where the record is written."""
    log_positions = () if log_position is None else ((log_position, 0),)
    return Record(RecordType.PINNED, 1, (_encode(Pinned(segment, part, runs)),), log_positions)


def decode_pinned(payload: bytes | memoryview) -> Pinned:
    """A PINNED record's payload."""
    return msgspec.msgpack.decode(payload, type=Pinned)


def _packed(kind: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


def _unpacked(kind: str, data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // struct.calcsize('<' + kind)}{kind}", data)
