"""The backlog: records that wait for the disk, each with its sequence number and its segment.

Segment boundaries are arithmetic over the records' sizes alone (P3). Only bookkeeping happens
here, under a lock that is never held across I/O (P5).
"""

import threading

from hms.errors.catalogue import RecordTooLarge
from hms.store.interface import SEGMENT_SHIFT, DictionaryMaker, Parts
from hms.store.journal.format import (
    KIND_END,
    KIND_SEAL,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Entry,
    record_bytes,
)


class Backlog:
    """The position of the next record, and the records that are not synced yet."""

    def __init__(
        self, segment_bytes: int, segment: int, next_lsn: int, dictionary: DictionaryMaker
    ) -> None:
        self._lock = threading.Lock()
        self._end = segment_bytes - RECORD_HEADER_BYTES  # room for the seal
        self._dictionary = dictionary
        self._waiting: list[Entry] = []
        self._at = self._end
        self.segment = segment - 1
        self.last_lsn = next_lsn - 1
        self.appended_bytes = 0
        """Bytes of all records so far, with those that begin segments."""
        self.taken_bytes = 0
        """Bytes of the records that were taken to be written."""
        self._begin_segment(0)

    @property
    def room_bytes(self) -> int:
        """Bytes left in the segment that the next record goes to."""
        return self._end - self._at

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Append a record; the position of its payload. Raises RecordTooLarge."""
        assert KIND_END < kind < KIND_SEAL
        assert count >= 1
        length = sum(map(len, parts))
        size = RECORD_HEADER_BYTES + length + -length % 8  # record_bytes(), a call for each record
        with self._lock:
            if self._at + size > self._end:
                self._begin_segment(size)
            position = (self.segment << SEGMENT_SHIFT) + self._at + RECORD_HEADER_BYTES
            lsn = self.last_lsn + 1
            self._waiting.append(Entry(self.segment, lsn, kind, count, parts, length))
            self._at += size
            self.appended_bytes += size
            self.last_lsn += count
            return position

    def seal(self) -> int:
        """The next record begins a new segment; its sequence number."""
        with self._lock:
            self._at = self._end
            return self.last_lsn + 1

    def take(self) -> list[Entry]:
        """All records that wait, in order; those taken before are synced."""
        with self._lock:
            taken, self._waiting = self._waiting, []
            self.taken_bytes = self.appended_bytes
            return taken

    def _begin_segment(self, size: int) -> None:
        """Continue in a new segment, unless its dictionary would leave no room for the record."""
        kind, count, parts = self._dictionary()
        length = sum(map(len, parts))
        own = record_bytes(length)
        needed, limit = own + size, self._end - SEGMENT_HEADER_BYTES
        if needed > limit:
            raise RecordTooLarge(what="a record with the dictionary", size=needed, limit=limit)
        self.segment += 1
        self._waiting.append(Entry(self.segment, self.last_lsn + 1, kind, count, parts, length))
        self._at = SEGMENT_HEADER_BYTES + own
        self.appended_bytes += own
        self.last_lsn += count
