"""The journal: a log in segment files that are written with zeros beforehand.

format           bytes of segment and record headers    disk       the system calls, replaceable
append_backlog   numbers and boundaries of an append    lock       one process per directory
segment          the file being written                 reader     for others, without the lock
segment_manager  all other files of the log             recovery   what is found at boot
segment_walk     records of a file, in order            journal    all of it together
preallocated_segment, space_reserve  the file to be written next; files for a full disk
"""

from hms.store.journal.disk import REAL_DISK, Disk, RealDisk
from hms.store.journal.journal import SEGMENT_BYTES, Journal
from hms.store.journal.reader import Finding, last_lsn, list_segments, read_segment, verify
from hms.store.journal.segment_walk import SegmentInfo

__all__ = [
    "REAL_DISK",
    "SEGMENT_BYTES",
    "Disk",
    "Finding",
    "Journal",
    "RealDisk",
    "SegmentInfo",
    "last_lsn",
    "list_segments",
    "read_segment",
    "verify",
]
