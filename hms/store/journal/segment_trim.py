"""Trimming: a segment that leaves the log gives back the space behind its end.

A segment has its full size from the start. One that was sealed early, by a backup, an archive or
an operator, would keep the rest of it for as long as it lies in the history. One without a seal
stays as it is: zeros at its end may belong to its last record.
"""

from contextlib import suppress
from pathlib import Path

from hms.store.journal.disk import UPDATE, Disk
from hms.store.journal.format import (
    KIND_SEAL,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    unpack_record_header,
    unpack_segment_header,
)
from hms.store.journal.segment_walk import WINDOW_BYTES, opened

__all__ = ["sealed_end", "trim"]


def trim(disk: Disk, file: Path) -> int:
    """Cut a segment that nobody writes any more behind its seal, safe when this returns; the bytes
    that it has then. Its age stays."""
    with opened(disk, file, UPDATE) as fd:
        size = end = disk.size(fd)
        with suppress(OSError):  # what cannot be read is not cut
            end = sealed_end(disk, fd)
        if end < size:
            disk.ftruncate(fd, end)
            disk.fsync(fd)
        return end


def sealed_end(disk: Disk, fd: int) -> int:
    """The offset behind the seal; the file's size without one, or with other bytes behind it."""
    size = disk.size(fd)
    header = unpack_segment_header(disk.pread(fd, SEGMENT_HEADER_BYTES, 0))
    end = _written_end(disk, fd, size)
    seal_at = end - RECORD_HEADER_BYTES
    if header is None or seal_at < SEGMENT_HEADER_BYTES:
        return size
    view = memoryview(disk.pread(fd, RECORD_HEADER_BYTES, seal_at))
    seal = unpack_record_header(view, 0, header.salt)
    return end if seal is not None and seal.kind == KIND_SEAL else size


def _written_end(disk: Disk, fd: int, size: int) -> int:
    """Where the last record ends if it does not end in zeros, looked for from the file's end on: a
    full segment is not read."""
    while size:
        start = max(0, size - WINDOW_BYTES)
        data = disk.pread(fd, size - start, start)
        if data != bytes(len(data)):  # compared first: rstrip takes 20 times as long
            end = start + len(data.rstrip(b"\0"))
            return end + -end % 8
        size = start
    return 0
