"""Record fetch: bytes of records by position, for messages whose bodies are not in memory."""

import errno
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreFailed
from hms.store.interface import SEGMENT_SHIFT, SegmentGoneError
from hms.store.journal.disk import READ, Disk
from hms.store.journal.segment_walk import SUFFIXES, segment_file

FILES_MAX: Final = 16
_OFFSET_MASK: Final = (1 << SEGMENT_SHIFT) - 1


class Fetch:
    """Open files of segments, the least recently used closed first."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk, self._directory = disk, directory
        self._lock = threading.Lock()
        self._files: OrderedDict[int, int] = OrderedDict()
        self._gone: set[int] = set()
        """Segments that are not opened any more."""
        self._is_closed = False

    def read(self, position: int, size: int) -> bytes:
        """Bytes of a durable record. Raises SegmentGoneError and StoreFailed."""
        number, offset = position >> SEGMENT_SHIFT, position & _OFFSET_MASK
        with self._lock:
            if self._is_closed:
                raise self._failed(number, "the store is closed")
            try:
                data = self._disk.pread(self._file(number), size, offset)
            except OSError as error:
                raise self._failed(number, error.strerror or str(error)) from error
        if len(data) < size:
            raise self._failed(number, f"it ends before offset {offset + size}")
        return data

    def forget(self, number: int) -> None:
        """A segment's file is about to be removed, or to be written anew.

        From here on nobody opens it, and nobody is in the middle of reading it: its bytes may be
        other ones as soon as this returns.
        """
        with self._lock:
            self._gone.add(number)
            self._close(number)

    def open_anew(self, number: int) -> None:
        """Another file has taken the place of a segment's, with what is live in it."""
        with self._lock:
            self._close(number)

    def _close(self, number: int) -> None:
        if number in self._files:
            self._disk.close(self._files.pop(number))

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for fd in self._files.values():
                self._disk.close(fd)
            self._files.clear()
            self._is_closed = True

    def _file(self, number: int) -> int:
        fd = self._files.get(number)
        if fd is None:
            fd = self._files[number] = self._open_somehow(number)
            if len(self._files) > FILES_MAX:
                self._disk.close(self._files.popitem(last=False)[1])
        else:
            self._files.move_to_end(number)
        return fd

    def _open_somehow(self, number: int) -> int:
        """The others are open for speed only: without a descriptor left they are closed."""
        try:
            return self._open(number)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._files:
                raise
        while self._files:
            self._disk.close(self._files.popitem(last=False)[1])
        return self._open(number)

    def _open(self, number: int) -> int:
        """A segment that is let go meanwhile is still the history's, or gone."""
        if number in self._gone:
            raise SegmentGoneError(number)
        for suffix in SUFFIXES:
            try:
                return self._disk.open(segment_file(self._directory, number, suffix), READ)
            except FileNotFoundError:
                continue
        raise SegmentGoneError(number)

    def _failed(self, number: int, detail: str) -> StoreFailed:
        file = segment_file(self._directory, number)
        return StoreFailed(detail=f"{file}: {detail}", path=str(self._directory))
