"""Records that wait for the database, each with its numbers.

Positions count all bytes ever appended, so each byte has its own and none comes twice. Only
bookkeeping happens here, under a lock that is never held across I/O (P5).
"""

import threading
from collections.abc import Sequence
from typing import Final

from hms.errors.catalogue import RecordTooLarge
from hms.store.database.rows import Entry, Meta
from hms.store.interface import Parts

RECORD_BYTES_MAX: Final = 512 << 20
"""PostgreSQL and SQLite take values of up to about 1 GiB."""
TRANSACTION_BYTES: Final = 32 << 20
"""Records are committed together up to about so many bytes."""
OVERHEAD_BYTES: Final = 32
"""What a record counts beside its payload, so that many empty ones count too."""


class Backlog:
    """Records that are not safe yet."""

    def __init__(self, meta: Meta) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Entry] = []
        self._next_position = meta.next_position
        self.last_lsn = meta.last_lsn
        self.appended_bytes = self.safe_bytes = 0

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Put a record in line; the position of its payload. Raises RecordTooLarge."""
        assert count >= 1
        length = sum(map(len, parts))
        if length > RECORD_BYTES_MAX:
            raise RecordTooLarge(what="a record", size=length, limit=RECORD_BYTES_MAX)
        with self._lock:
            position = self._next_position
            self._waiting.append(Entry(self.last_lsn + 1, kind, count, parts, length, position))
            self._next_position += length
            self.last_lsn += count
            self.appended_bytes += length + OVERHEAD_BYTES
        return position

    def take(self) -> list[Entry]:
        """The oldest of what waits, as much as one transaction should carry."""
        with self._lock:
            room, until = TRANSACTION_BYTES, 0
            for entry in self._waiting:
                room -= entry.length
                if until and room < 0:
                    break
                until += 1
            taken, self._waiting = self._waiting[:until], self._waiting[until:]
            return taken

    def safe(self, entries: Sequence[Entry]) -> None:
        """These are safe now."""
        self.safe_bytes += sum([entry.length + OVERHEAD_BYTES for entry in entries])
