"""Backend: what the store needs of a database; postgresql.py and sqlite.py have it.

A backend knows tables and transactions, and nothing of records. What it cannot reach for the moment
raises Unreachable, and the store decides how long to try again; what is taken by another node
raises StoreFenced.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hms.errors.tree import FieldValue
from hms.store.database.owner import Owner
from hms.store.database.pending import PendingRow, PendingRows
from hms.store.database.row_changes import Changes
from hms.store.database.rows import (
    AuditRow,
    BatchRow,
    CommitRow,
    Entry,
    MemoryChanges,
    MessageRow,
    Meta,
    StayRow,
)


class Unreachable(Exception):  # noqa: N818 - it says what the database is
    """The database does not answer, or cannot do it now; it may be asked again."""


class Claim(NamedTuple):
    """Who asks for the store, and for how long at a time; heard: told the node's time of a store
    that another one has."""

    node_uid: int
    owner: Owner
    lease_ms: int
    heard: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is written at once, if epoch and sequence number are still ours.

    blob: the payloads of all records, one behind the other; the first one begins at `base`, so a
    position minus base is a place in it. unheld: ids of messages whose rows go if nothing holds
    them any more.
    """

    before: Meta
    after: Meta
    entries: Sequence[Entry]
    blob: bytes
    base: int
    changes: Changes
    memory: MemoryChanges
    pending: PendingRows
    unheld: Sequence[int]
    at_ms: int
    keeps_history: bool
    audit: Sequence[AuditRow] = ()


class Backend(Protocol):
    """One node's tables. One thread at a time, but for read()."""

    shown: str
    """The database as operators see it, without secrets."""

    def claim(self, claim: Claim) -> Meta:
        """Connect, make or upgrade the tables, and take the next epoch. Raises StoreLocked,
        StoreFormatUnknown, DatabaseUnavailable."""

    def definitions(self) -> list[bytes]:
        """Encoded definitions, topics before their subscriptions."""

    def ids_below(self) -> list[int]:
        """Bounds of the ids given away, one for each node index."""

    def batches(self) -> Iterable[BatchRow]:
        """All batches that are remembered."""

    def commits(self) -> Iterable[CommitRow]:
        """All commits that are remembered."""

    def pending(self) -> Sequence[PendingRow]:
        """Records that hold, in their order."""

    def audit_head(self) -> bytes | None:
        """The last record of the audit."""

    def messages(self) -> Generator[tuple[MessageRow, bytes], None, None]:
        """Every message with its head and body, by position; beside stays()."""

    def stays(self) -> Generator[StayRow, None, None]:
        """Every message at each of its places, by position; beside messages()."""

    def write(self, transaction: Transaction) -> None:
        """All of it, or nothing; also when it is asked twice. Raises Unreachable when the outcome
        is not known, StoreFenced when another node has the store."""

    def renew(self, now_ms: int) -> None:
        """Hold the lease a further time; now_ms: by the node's clock. Raises Unreachable and
        StoreFenced."""

    def sweep(self, unheld: Sequence[int]) -> None:
        """Delete the rows of messages that nothing holds any more. Raises Unreachable."""

    def prune(self, before_ms: int, before_position: int, rows_max: int) -> int:
        """Delete the oldest rows of the history that are older than this or lie before that
        position, not more than so many; how many they were."""

    def oldest_ms(self) -> tuple[int | None, int | None]:
        """When the first record of the history was written, and the first one of the audit; None
        where there is none."""

    def prune_audit(self, before_ms: int) -> None:
        """Delete the records of the audit that are older than this."""

    def shortage(self) -> str | None:
        """Why nothing new should be stored, if the database knows it beforehand."""

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of messages that lie one behind the other, from any thread; None when some of them
        are gone. Raises Unreachable."""

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""

    def close(self, *, is_released: bool) -> None:
        """Let go of the connections, and of the lease if it is ours to give back."""
