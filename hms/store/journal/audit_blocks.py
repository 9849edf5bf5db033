"""Blocks: where in a file every so many records of the audit begin, so that some of them are read
without the others.

A file is walked once, from header to header, and what was found is kept; of the segment that is
being written the walk goes on where it ended.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from hms.store.journal.audit_files import audit_headers
from hms.store.journal.disk import Disk
from hms.store.journal.format import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES
from hms.store.journal.reader import segment_info
from hms.store.journal.segment_walk import AUDIT_SUFFIX, SegmentInfo, is_whole, opened

__all__ = ["AuditBlocks"]

BLOCK_RECORDS: Final = 500
FILES_MAX: Final = 1000
"""Of so many files it is kept where their blocks begin."""
_WINDOW_BYTES: Final = 256 * 1024
_LENGTH_BYTES: Final = 4


class AuditBlocks:
    """In one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: OrderedDict[tuple[int, int], list[int]] = OrderedDict()

    def of(self, file: Path) -> list[int]:
        """Where the blocks of a file begin. StoreCorrupt, OSError."""
        info = self._info(file)
        key = int(file.stem), 0 if info is None else info.salt
        known = self._known.pop(key, [])
        found = self._walked(file, info, known[-1]) if known else []
        # A crash may have left other records where the last block was.
        starts = [*known[:-1], *found] if found else self._walked(file, info, 0)
        self._known[key] = starts
        if len(self._known) > FILES_MAX:
            self._known.popitem(last=False)
        return starts

    def read(self, file: Path, start: int, end: int | None) -> Iterator[bytes]:
        """The records from one place to another, None: to the last one. StoreCorrupt, OSError."""
        info = self._info(file)
        with opened(self._disk, file if info is None else info.file) as fd:
            if info is None:
                for at, length in self._lengths(fd, start):
                    if at == end:
                        return
                    yield self._disk.pread(fd, length, at + _LENGTH_BYTES)
                return
            headers = audit_headers(self._disk, fd, info.salt, start, _WINDOW_BYTES)
            for at, header in headers:
                if at == end:
                    return
                payload = self._disk.pread(fd, header.length, at + RECORD_HEADER_BYTES)
                if is_whole(header, memoryview(payload)):
                    yield payload

    def _info(self, file: Path) -> SegmentInfo | None:
        """None of one that has nothing but records of the audit."""
        return None if file.suffix == AUDIT_SUFFIX else segment_info(self._disk, file)

    def _walked(self, file: Path, info: SegmentInfo | None, start: int) -> list[int]:
        with opened(self._disk, file if info is None else info.file) as fd:
            found: Iterator[tuple[int, object]] = (
                self._lengths(fd, start)
                if info is None
                else audit_headers(self._disk, fd, info.salt, start or SEGMENT_HEADER_BYTES)
            )
            return [at for at, _ in islice(found, 0, None, BLOCK_RECORDS)]

    def _lengths(self, fd: int, at: int) -> Iterator[tuple[int, int]]:
        """Where each record begins, and its length; one that was cut is none."""
        size, window, start = self._disk.size(fd), b"", 0
        while at + _LENGTH_BYTES <= size:
            if not start <= at <= start + len(window) - _LENGTH_BYTES:
                window, start = self._disk.pread(fd, _WINDOW_BYTES, at), at
            length = int.from_bytes(window[at - start : at - start + _LENGTH_BYTES], "big")
            if at + _LENGTH_BYTES + length > size:
                return
            yield at, length
            at += _LENGTH_BYTES + length
