"""DELIVERED, ACKNOWLEDGED, FAILED, RELEASED, DISCARDED: what happened to ranges of messages."""

import struct
from collections.abc import Sequence
from itertools import starmap
from operator import itemgetter
from typing import NamedTuple

from hms.records.kinds import Cause, Record, RecordType

RANGES_HEAD = struct.Struct("<IQII")
"""number, at_ms, cause, ranges."""
_RANGE = struct.Struct("<QQ")
_FIRST, _LAST = itemgetter(0), itemgetter(1)


class Ranges(NamedTuple):
    """A decoded DELIVERED, ACKNOWLEDGED, FAILED, RELEASED or DISCARDED record.

    number: of the queue or durable subscription; ranges: first and last message id, both included.
    """

    number: int
    at_ms: int
    cause: Cause
    ranges: list[tuple[int, int]]


def ranges(
    kind: RecordType,
    number: int,
    at_ms: int,
    spans: Sequence[tuple[int, int]],
    cause: Cause = Cause.NONE,
) -> Record:
    """A record of what happened to ranges of messages."""
    count = len(spans) + sum(map(_LAST, spans)) - sum(map(_FIRST, spans))
    head = RANGES_HEAD.pack(number, at_ms, cause, len(spans))
    return Record(kind, count, (head + b"".join(starmap(_RANGE.pack, spans)),))


def decode_ranges(payload: bytes | memoryview) -> Ranges:
    """The payload of a record that `ranges` made."""
    number, at_ms, cause, n = RANGES_HEAD.unpack_from(payload)
    view = memoryview(payload)[RANGES_HEAD.size : RANGES_HEAD.size + n * _RANGE.size]
    return Ranges(number, at_ms, Cause(cause), list(_RANGE.iter_unpack(view)))
