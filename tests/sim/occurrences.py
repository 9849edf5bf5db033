"""What tells the occurrences of a schedule apart, which all have one body."""

from hms.wire.packed_messages import decode_head

WAITING = "scheduled:HMS.SCHEDULES"
"""Where a schedule waits; not in the books."""


def numbered(head: bytes, body: bytes) -> bytes:
    """The body, of an occurrence with its number."""
    if not body.startswith(b"tick"):
        return body
    number = decode_head(head).node.get("$ScheduleCount")
    return body if number is None else body + b"#%d " % number
