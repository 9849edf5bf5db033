"""The one interface of every store: a log of records in one order (P2), durable when said so (P1).

A record is (kind, count, parts). The store lays the parts behind one another, gives the record
`count` consecutive log sequence numbers, and knows nothing of what they mean.

    open -> recover (to its end) -> start -> append ... commit ... maintain -> close
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

Parts = Sequence[bytes | memoryview]
StoredRecord = tuple[int, int, int, memoryview]
"""First sequence number, kind, count, payload. A payload keeps megabytes of the log in memory as
long as it lives: copy what is to stay."""
DictionaryMaker = Callable[[], tuple[int, int, Parts]]
"""Gives the record that opens every segment, as it is to be at the moment of the call."""


class Store(Protocol):
    """What the node needs of a store; a method that raises StoreFailed leaves it dead."""

    @property
    def last_lsn(self) -> int:
        """The last sequence number given away, 0 before the first."""

    @property
    def durable_lsn(self) -> int:
        """Everything up to this sequence number is safe."""

    @property
    def backlog_bytes(self) -> int:
        """Appended and not yet synced."""

    @property
    def is_waiting_for_space(self) -> bool:
        """The next segment is not ready yet, the present one nearly full: slow the senders."""

    @property
    def needs_maintenance(self) -> bool:
        """A storage worker should call maintain()."""

    def recover(self) -> Iterator[StoredRecord]:
        """Every record in order; to be exhausted once before start().

        Raises StoreCorrupt, StoreFormatUnknown or StoreUnavailable, and has then changed nothing.
        """

    def start(self, dictionary: DictionaryMaker) -> None:
        """Begin to write, in a part of the log of this boot's own."""

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Put a record in line; its last sequence number.

        Never waits. Raises RecordTooLarge, and has then changed nothing.
        """

    def commit(self) -> int:
        """Write and sync all that waits; the durable sequence number. One caller at a time."""

    def sends_refused(self) -> str | None:
        """Why new persistent messages must be refused, or None (P10)."""

    def maintain(self) -> None:
        """Prepare space ahead of time; to be called by a storage worker."""

    def close(self) -> None:
        """Let go of the store; what was not committed is dropped."""
