"""A batch as it comes in: its rows, decoded once, and which optional features any of them uses.

A feature looks at its bit and at nothing else, so it costs nothing where no row uses it.
"""

from collections.abc import Sequence

import msgspec

from hms.engine.queue.delays import check_delay
from hms.errors.catalogue import InvalidArgument, MessageTooLarge
from hms.wire.packed_messages import (
    FLAG_ORDER,
    HEAD_BYTES_MAX,
    KIND_COMPRESSED,
    KIND_FILE,
    KIND_NONE,
    Row,
)

__all__ = [
    "DELAYED",
    "EXPIRING",
    "FILES",
    "HEADS",
    "ORDERED",
    "Incoming",
    "accepted",
    "check_values",
]

HEADS, EXPIRING, DELAYED, ORDERED, FILES = 1, 2, 4, 8, 16
"""Some message has a head, a time to live, a delay, a place in a global order, or names a file."""
PRIORITY_MAX = 9
TTL_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years; more would not fit where the time of expiry is kept."""


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A batch with what its rows say. uses: of the features above; head_bytes, payload_bytes: of
    all heads, and of all heads and bodies."""

    pack: memoryview
    rows: Sequence[Row]
    uses: int
    head_bytes: int
    payload_bytes: int


def check_values(pack: memoryview, rows: Sequence[Row], message_bytes_max: int) -> Incoming:
    """A batch of a client: bad values are refused before anything is changed."""
    head_bytes = body_bytes = uses = 0
    for row in rows:
        head, body, ttl_ms, delay_ms, priority, kind, flags, _ = row
        head_bytes += head
        body_bytes += body
        if ttl_ms:
            uses |= EXPIRING
        if (
            delay_ms
            or flags
            or kind >= KIND_FILE
            or priority > PRIORITY_MAX
            or head + body > message_bytes_max
            or head > HEAD_BYTES_MAX
            or ttl_ms > TTL_MS_MAX
        ):
            uses |= _checked(row, message_bytes_max)
    if head_bytes:
        uses |= HEADS
    return Incoming(pack, rows, uses, head_bytes, head_bytes + body_bytes)


def accepted(pack: memoryview, rows: Sequence[Row]) -> Incoming:
    """A batch that was checked when it came."""
    head_bytes = sum([row.head_bytes for row in rows])
    uses = HEADS if head_bytes else 0
    for row in rows:
        uses |= _used(row)
    body_bytes = sum([row.body_bytes for row in rows])
    return Incoming(pack, rows, uses, head_bytes, head_bytes + body_bytes)


def _used(row: Row) -> int:
    uses = EXPIRING if row.ttl_ms else 0
    if row.delay_ms:
        uses |= DELAYED
    if row.flags & FLAG_ORDER:
        uses |= ORDERED
    return uses | FILES if row.kind == KIND_FILE else uses


def _checked(row: Row, message_bytes_max: int) -> int:
    """What a row uses that is not like most; a value that is not allowed is refused."""
    size = row.head_bytes + row.body_bytes
    if size > message_bytes_max:
        raise MessageTooLarge(size=size, limit=message_bytes_max)
    if row.head_bytes > HEAD_BYTES_MAX:
        raise MessageTooLarge(size=row.head_bytes, limit=HEAD_BYTES_MAX)
    if row.delay_ms:
        check_delay(row)
    if row.priority > PRIORITY_MAX:
        raise InvalidArgument(what="priority", detail=f"{row.priority} is not between 0 and 9")
    if row.ttl_ms > TTL_MS_MAX:
        detail = f"{row.ttl_ms} ms are more than a hundred years"
        raise InvalidArgument(what="ttl", detail=detail)
    kind = row.kind
    if kind & ~KIND_COMPRESSED > KIND_NONE or kind == KIND_FILE | KIND_COMPRESSED:
        raise InvalidArgument(what="kind of body", detail=f"{kind} is not known")
    return _used(row)
