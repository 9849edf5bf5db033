"""Catching up: what a copy has too much, and where it goes on (sans-IO).

A segment's header has its epoch and number, and an epoch one writer: two segments with equal
headers are beginnings of the same bytes. So a copy keeps every segment whose header is that of the
primary's, in its log or its history, and drops the others, which the primary let go after all was
confirmed that replaces them; or nobody adopted them, and nothing in them was confirmed: those are
set aside. After an operator had a copy go on with a loss (--lossy) what is missing here may have
been confirmed: where nothing shows that it is of this log, it is set aside too. In the last ones
that stay it may have bytes that no later primary adopted, or lack some: it goes on at the smaller
end, and is cut where the primary's ends.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hms.store.journal.format import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    unpack_segment_header,
)

__all__ = ["Plan", "plan", "resumes_at"]


class Plan(NamedTuple):
    """drop: segments that go; diverged: those that are set aside; then it joins again. lacking:
    segments that it gets, in order."""

    drop: list[int]
    lacking: list[int]
    diverged: list[int]


def plan(
    theirs: Mapping[int, bytes],
    ends: Mapping[int, int],
    ours: Mapping[int, bytes],
    left: Mapping[int, bytes] = MappingProxyType({}),
    lost_epoch: int = 0,
) -> Plan:
    """Theirs and ours: headers by number. ends: of those of theirs that may not be whole. left: of
    those that only our history keeps. They stay there too, for its history, but for the newest,
    which may end too early. lost_epoch: the last one behind which an operator accepted a loss."""
    last = max(theirs, default=0)
    keeps = {**{n: header for n, header in left.items() if n != last}, **ours}
    others = sorted(number for number, header in theirs.items() if keeps.get(number) != header)
    newest = max(ours, default=0)
    here = {**left, **ours}
    known = max((n for n, header in theirs.items() if here.get(n) == header), default=0)
    # Who wrote behind the loss had this log, and a copy that got it all before it.
    known = max([known, *(n for n, header in theirs.items() if _epoch(header) > lost_epoch)])
    wrote = {_epoch(header): number for number, header in sorted(ours.items())}
    diverged = []
    for number in others:
        # Nothing behind it is of this log, or here by the same writer: it may be what was lost.
        may_be_lost = number > known and wrote.get(_epoch(theirs[number]), 0) < number
        if number in ours or number > newest or may_be_lost:
            diverged.append(number)
    drop = [number for number in others if number not in diverged]
    lacking = sorted(number for number in ours if number not in theirs or number in ends)
    return Plan(drop, [] if others else lacking, diverged)


def _epoch(header: bytes) -> int:
    """0 where the header cannot be read."""
    found = unpack_segment_header(header)
    return 0 if found is None else found.epoch


def resumes_at(theirs: int, ours: int) -> int:
    """Where a copy goes on in a segment with our header that ends there for it and here for us.
    What we have behind its last record may be a seal that it lacks, and it may have a record in
    that place: so not behind the place where that would begin."""
    return max(SEGMENT_HEADER_BYTES, min(theirs, ours - RECORD_HEADER_BYTES)) // 8 * 8
