"""The journal: a log in segment files that are given to the disk beforehand.

format           bytes of segment and record headers    disk       the system calls, replaceable
append_backlog   numbers and boundaries of an append    lock       one process per directory
segment          the file being written                 reader     for others, without the lock
segment_manager  all other files of the log             recovery   what is found at boot
segment_walk     records of a file, in order            journal    all of it together
segment_trim     cuts a segment that leaves the log behind its end
preallocated_segment, space_reserve  the file to be written next; files for a full disk
"""

from hms.store.journal.journal import Journal

__all__ = ["Journal"]
