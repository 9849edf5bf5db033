"""DELIVERED, ACKNOWLEDGED, FAILED, RELEASED, DISCARDED: what happened to ranges of messages.

Behind the ranges of FAILED and RELEASED may stand when the messages are due again; a release that
does not know that reads the ranges, and no further (docs/decisions/0085).
"""

import struct
from collections.abc import Sequence
from itertools import starmap
from operator import itemgetter
from typing import NamedTuple

from hms.records.kinds import Cause, Record, RecordType

RANGES_HEAD = struct.Struct("<IQII")
"""number, at_ms, cause, ranges."""
_RANGE = struct.Struct("<QQ")
_DUE = struct.Struct("<Q")
_FIRST, _LAST = itemgetter(0), itemgetter(1)


class Ranges(NamedTuple):
    """A decoded DELIVERED, ACKNOWLEDGED, FAILED, RELEASED or DISCARDED record.

    number: of the queue or durable subscription; ranges: first and last message id, both included;
    due_ms: they wait again, but not before; 0: at once.
    """

    number: int
    at_ms: int
    cause: Cause
    ranges: list[tuple[int, int]]
    due_ms: int = 0


def ranges(
    kind: RecordType,
    number: int,
    at_ms: int,
    spans: Sequence[tuple[int, int]],
    cause: Cause = Cause.NONE,
    due_ms: int = 0,
) -> Record:
    """A record of what happened to ranges of messages."""
    count = len(spans) + sum(map(_LAST, spans)) - sum(map(_FIRST, spans))
    head = RANGES_HEAD.pack(number, at_ms, cause, len(spans))
    body = head + b"".join(starmap(_RANGE.pack, spans))
    return Record(kind, count, (body + _DUE.pack(due_ms) if due_ms else body,))


def decode_ranges(payload: bytes | memoryview) -> Ranges:
    """The payload of a record that `ranges` made."""
    number, at_ms, cause, n = RANGES_HEAD.unpack_from(payload)
    end = RANGES_HEAD.size + n * _RANGE.size
    spans = list(_RANGE.iter_unpack(memoryview(payload)[RANGES_HEAD.size : end]))
    due_ms = _DUE.unpack_from(payload, end)[0] if len(payload) > end else 0
    return Ranges(number, at_ms, Cause(cause), spans, due_ms)
