"""Frames that a scripted node says."""

import struct

from hms.wire.frames import DELIVER_HEAD, Kind
from hms.wire.packed_messages import DELIVERED_ROW

TIMESTAMP_MS = 1_700_000_000_000


def rows(
    *messages: tuple[int, bytes], count: int = 1, expires_at_ms: int = 0, kind: int = 0
) -> bytes:
    """Delivered rows and payloads of (id, body)."""
    table = [
        DELIVERED_ROW.pack(one, TIMESTAMP_MS, expires_at_ms, count, 0, len(body), 4, kind, 1, 0)
        for one, body in messages
    ]
    return b"".join(table) + b"".join(body for _, body in messages)


def browsed(*messages: tuple[int, bytes], follows: bool, position: int) -> tuple[Kind, bytes]:
    """A page for a Browse."""
    head = DELIVER_HEAD.pack(int(follows), 0, len(messages), 0)
    return Kind.BROWSED, head + struct.pack("<Q", position) + rows(*messages)
