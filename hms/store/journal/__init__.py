"""The journal: a log in segment files that are written with zeros beforehand.

format    bytes of segment and record headers        backlog   append: numbers and boundaries
disk      the system calls, replaceable              segment   the file being written
lock      one process per directory                  spare     the file to be written next
reserve   files for what must be written on a full disk
walk      records of a file, one after the other     recovery  what is found at boot
journal   all of it together                         reader    for others, without the lock
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
