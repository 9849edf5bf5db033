"""Sizes of a node that must fit into one another, so that nothing it accepts can stop it.

A record of the log lies in one segment. A frame is one record, and so is a transaction.
"""

from hms.boot.check import Found, Report
from hms.boot.entries import Node
from hms.boot.kinds import spell_size

FRAME_ROOM_BYTES_MAX = 1 << 20
"""A frame may be so much larger than the largest message: other messages packed with it."""
FRAME_ROOM_BYTES_MIN = 640 << 10
"""Clients pack 256 KiB of messages into a frame, and settle every second one of 65,535 in one of
512 KiB, however small the largest message may be."""
RECORD_ROOM_BYTES = 64 << 10
"""What a frame's record takes besides, and what else its segment begins with."""

SENDER_ROOM_BYTES = 512 << 10
"""What sender_identity may add to a frame: 1,024 messages say their user and client."""

DATABASE_RECORD_BYTES_MAX = 512 << 20
"""The largest record that a database store takes."""
SEGMENTS_MIN = 8
"""A log with a limit has at least so many segments."""
SEGMENT_BYTES = 16 << 10
"""What a segment's and a record's headers take."""


def frame_bytes_max(message_bytes_max: int, segment_bytes: int) -> int:
    """The largest frame that a node takes."""
    room = min(FRAME_ROOM_BYTES_MAX, max(FRAME_ROOM_BYTES_MIN, segment_bytes // 4))
    return message_bytes_max + room


def definitions_bytes_max(node: Node) -> int:
    """What a segment's dictionary may take, so that the largest record fits beside it."""
    frame = frame_bytes_max(node.max_message_bytes, node.segment_bytes)
    room = node.segment_bytes - max(frame, node.max_transaction_bytes) - SEGMENT_BYTES
    room -= SENDER_ROOM_BYTES if node.sender_identity else 0
    return min(room, node.segment_bytes // 4)


def check_sizes(node: Found, report: Report) -> None:
    """A message fits into a transaction, that into half a segment, a message into memory and
    beside a second one before a slow subscriber; and a frame into a segment."""
    bad = [
        _is_above(node, small, large, share, report)
        for small, large, share in (
            ("max_message_bytes", "max_transaction_bytes", 1),
            ("max_transaction_bytes", "segment_bytes", 2),
            ("max_message_bytes", "max_memory_bytes", 1),
            ("max_message_bytes", "max_pending_bytes", 2),
        )
    ]
    if not any(bad) and node.is_good("max_message_bytes", "segment_bytes"):
        _check_frame(node, report)
    if node.is_good("max_log_bytes", "segment_bytes"):
        _check_log(node, report)
    if node.values["database"] is not None:
        _check_database(node, report)
        _check_archive(node, report)


def _check_archive(node: Found, report: Report) -> None:
    if node.is_good("archive") and node.values["archive"] == "REQUIRED":
        text = "archive: only a log is archived, and this node has a database; set NONE"
        report.add((*node.path, "archive"), f"{node.title} {text}")


def _is_above(node: Found, small: str, large: str, share: int, report: Report) -> bool:
    if not node.is_good(small, large) or node.values[small] * share <= node.values[large]:
        return False
    part = "half of " if share > 1 else ""
    at = large if large in node.given and small not in node.given else small
    text = (
        f"{node.title} {small} {spell_size(node.values[small])} is above {part}"
        f"{large} {spell_size(node.values[large])}"
    )
    report.add((*node.path, at), text)
    return True


def _check_database(node: Found, report: Report) -> None:
    """What only a log can do is refused, and so is a record that no database takes."""
    segment, most = node.values["segment_bytes"], DATABASE_RECORD_BYTES_MAX
    if node.is_good("segment_bytes") and segment > most:
        text = f"{node.title} segment_bytes {spell_size(segment)} is above {spell_size(most)}, "
        report.add((*node.path, "segment_bytes"), f"{text}the largest record of a database store")
    if node.is_good("max_log_bytes") and node.values["max_log_bytes"]:
        text = f"{node.title} max_log_bytes: a database has no log to be limited"
        report.add((*node.path, "max_log_bytes"), text)


def _check_log(node: Found, report: Report) -> None:
    """A limit of the log leaves room for what is moved while it is cleaned."""
    limit, segment = node.values["max_log_bytes"], node.values["segment_bytes"]
    if 0 < limit < SEGMENTS_MIN * segment:
        at = "max_log_bytes" if "max_log_bytes" in node.given else "segment_bytes"
        text = (
            f"{node.title} max_log_bytes {spell_size(limit)} is below {SEGMENTS_MIN} times "
            f"segment_bytes {spell_size(segment)}: a log needs so many files to be cleaned"
        )
        report.add((*node.path, at), text)


def _check_frame(node: Found, report: Report) -> None:
    message, segment = node.values["max_message_bytes"], node.values["segment_bytes"]
    frame = frame_bytes_max(message, segment)
    room = RECORD_ROOM_BYTES + (SENDER_ROOM_BYTES if node.values["sender_identity"] else 0)
    if frame + room > segment:
        at = "segment_bytes" if "segment_bytes" in node.given else "max_message_bytes"
        text = (
            f"{node.title} segment_bytes {spell_size(segment)} is too small for max_message_bytes "
            f"{spell_size(message)}: a frame of {spell_size(frame)} needs "
            f"{spell_size(room)} beside it"
        )
        report.add((*node.path, at), text)
