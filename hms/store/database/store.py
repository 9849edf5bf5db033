"""The database store: the Store interface over tables.

append() only numbers records; one leader at a time takes what waits, translates it to changes of
rows and writes them with one transaction, which also proves our epoch. While the database does not
answer the leader tries again, for a while: whether a transaction that was cut off took effect is
read back from meta, so it is written once. After that, and after anything else that fails, the
store is dead and the node stops (P7).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hms.errors.catalogue import DatabaseUnavailable, StoreFailed
from hms.errors.tree import FieldValue, HmsError
from hms.store.database.backend import Backend, Claim, Transaction, Unreachable
from hms.store.database.commit_backlog import Backlog
from hms.store.database.deduplication_rows import Remembered
from hms.store.database.outage import Outage
from hms.store.database.owner import this_process
from hms.store.database.pending import PendingRows, committed_of
from hms.store.database.rows import Entry
from hms.store.database.schema import VERSIONS
from hms.store.database.table_records import (
    audit_of,
    bounds_of,
    dictionary_of,
    event_of,
    memory_of,
    messages_of,
    pending_of,
)
from hms.store.database.translation import Translation
from hms.store.database.upkeep import DatabaseSettings, Upkeep
from hms.store.interface import (
    CleaningStep,
    DictionaryMaker,
    LiveData,
    LogGrowth,
    Parts,
    SegmentGoneError,
    StoredRecord,
)
from hms.wire.record_runs import NO_RUNS

T = TypeVar("T")


class DatabaseStore:
    """Tables that this process alone writes. Implements hms.store.interface.Store."""

    def __init__(self, backend: Backend, settings: DatabaseSettings, node_uid: int) -> None:
        self._backend, self._settings = backend, settings
        self._leader = threading.Lock()
        self._closing = threading.Event()
        self._outage = Outage(backend.shown, settings.retry_s)
        self._remembered = Remembered(settings.batches_max, settings.entries_max)
        self._committed: OrderedDict[bytes, None] = OrderedDict()
        self._backlog: Backlog | None = None
        self._failure: HmsError | None = None
        try:
            lease_ms = round(settings.lease_s * 1000)
            claim = Claim(node_uid, this_process(), lease_ms, settings.heard)
            self._meta = backend.claim(claim)
        except BaseException:
            backend.close(is_released=False)
            raise
        self._upkeep = Upkeep(backend, settings)

    @property
    def last_lsn(self) -> int:
        """The last sequence number given away, 0 before the first."""
        return self._backlog.last_lsn if self._backlog else self._meta.last_lsn

    @property
    def durable_lsn(self) -> int:
        """Everything up to this sequence number is safe."""
        return self._meta.last_lsn

    @property
    def appended_bytes(self) -> int:
        """What all records so far take."""
        return self._backlog.appended_bytes if self._backlog else 0

    @property
    def safe_bytes(self) -> int:
        """What those of them take that are committed."""
        return self._backlog.safe_bytes if self._backlog else 0

    @property
    def backlog_bytes(self) -> int:
        """Appended and not yet committed."""
        return self.appended_bytes - self.safe_bytes

    @property
    def sync_s(self) -> float:
        """0: the database does it."""
        return 0.0

    @property
    def is_waiting_for_space(self) -> bool:
        """Never: the database makes its own space."""
        return False

    @property
    def look_bytes(self) -> int:
        """0: the lease goes by time."""
        return 0

    @property
    def needs_maintenance(self) -> bool:
        """The lease is to be renewed, or the history to be cut."""
        return self._failure is None and self._upkeep.is_due

    # boot

    def recover(self, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:  # noqa: ARG002
        """What the tables hold, as the fewest records that tell it."""
        backend, meta = self._backend, self._meta
        with self._available():
            yield dictionary_of(meta, backend.definitions())
            yield from event_of(meta)
            yield from bounds_of(meta, backend.ids_below())
            for record in messages_of(meta, backend, self._upkeep.departed.nowhere):
                self._upkeep.renew_if_due()
                yield record
            for content in self._remembered.load(backend.batches(), backend.commits()):
                yield memory_of(meta, content)
            rows = backend.pending()
            self._committed = committed_of(rows)
            yield from pending_of(meta, rows)
            yield from audit_of(meta, backend.audit_head())

    @property
    def recovery_bytes(self) -> int:
        """0: to count them would take as long as to read them."""
        return 0

    def start(self, dictionary: DictionaryMaker) -> None:
        """Begin to write; the history of this boot begins with the dictionary."""
        assert self._backlog is None, "started twice"
        backlog = Backlog(self._meta)
        backlog.append(*dictionary())
        self._backlog = backlog

    # writing

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Put a record in line; the position of its payload. Raises RecordTooLarge."""
        if self._failure is not None:
            raise self._failed()
        assert self._backlog is not None, "start() comes first"
        return self._backlog.append(kind, count, parts)

    def commit(self) -> int:
        """Commit all that waits; the durable sequence number.

        One caller at a time; the lock is for the upkeep beside it, which is soon done.
        """
        with self._leader, self._deadly():
            assert self._backlog is not None, "start() comes first"
            last_lsn = self._backlog.last_lsn
            while self._meta.last_lsn < last_lsn:
                self._write(self._backlog.take())
        return self.durable_lsn

    def _write(self, entries: Sequence[Entry]) -> None:
        assert self._backlog is not None
        transaction = self._translated(entries)
        self._asked(self._outage, lambda: self._backend.write(transaction))
        self._outage.over()
        self._meta = transaction.after
        self._upkeep.renewed()
        self._upkeep.wrote(len(transaction.blob))
        self._upkeep.departed.left([id_ for _, id_ in transaction.changes.gone()], time.monotonic())
        self._backlog.safe(entries)

    def _translated(self, entries: Sequence[Entry]) -> Transaction:
        pending = PendingRows(self._committed, self._settings.entries_max)
        translation = Translation(self._meta, self._remembered, pending)
        blob = translation.apply_all(entries)
        return Transaction(
            self._meta,
            translation.meta_after(entries[-1]),
            entries,
            blob,
            entries[0].position,
            translation.changes,
            self._remembered.take_changes(),
            pending,
            self._upkeep.departed.take(time.monotonic()),
            time.time_ns() // 1_000_000,
            keeps_history=self._settings.history_bytes > 0,
            audit=translation.audit,
        )

    def _asked(self, outage: Outage, ask: Callable[[], T]) -> T:
        """Ask until there is an answer. Raises DatabaseLost, and StoreFailed when it is closed."""
        while True:
            try:
                return ask()
            except Unreachable as error:
                if self._closing.wait(outage.failed(str(error))):
                    detail = f"{self._backend.shown}: closed while it did not answer: {error}"
                    raise StoreFailed(path=self._backend.shown, detail=detail) from error

    def sends_refused(self) -> str | None:
        """A database that has not answered for a while, or one without space. What comes when the
        store has failed is not answered."""
        if self._failure is not None:
            return None
        return self._outage.refusal() or self._upkeep.shortage

    def maintain(self, read_lsn: int | None = None) -> None:  # noqa: ARG002 - rows stay a while
        """Renew the lease, cut the history; while a commit is under way it does the former."""
        if not self._leader.acquire(blocking=False):
            return
        try:
            with self._deadly():
                self._upkeep.run(self._meta.next_position)
                self._outage.over()
        except Unreachable as error:
            with self._deadly():
                self._upkeep.pause(self._outage.failed(str(error)))
        finally:
            self._leader.release()

    # reading

    def read(self, position: int, size: int) -> bytes:
        """Bytes of a message. Raises SegmentGoneError when it left, DatabaseLost, StoreFailed."""
        outage = Outage(self._backend.shown, self._settings.retry_s)
        found = self._asked(outage, lambda: self._backend.read(position, size)) if size else b""
        if found is None:
            raise SegmentGoneError(position)
        return found

    @property
    def newest_segment(self) -> int:
        """Tables have none."""
        return 0

    def pinned_records(self, segment: int, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:  # noqa: ARG002
        """Tables have no segments."""
        raise SegmentGoneError(segment)

    def pin(self, segments: Iterable[int]) -> None:
        """Tables have no segments."""

    def emptied(self, segments: Iterable[int]) -> None:
        """Tables have no segments."""

    def next_to_clean(self, live: LiveData) -> CleaningStep | None:  # noqa: ARG002 - the interface's
        """None: a row that goes leaves its space to others."""
        return None

    def may_stay(self, segment: int, live_bytes: int) -> bool:  # noqa: ARG002 - the interface's
        """Tables have no segments."""
        return True

    def expect(self, owed_bytes: int) -> None:
        """A database has its own space."""

    @property
    def is_turn_due(self) -> bool:
        """Tables have no segments."""
        return False

    def turn(self) -> bool:
        """Tables have no segments."""
        return False

    def leave(self, until: int) -> int:
        """There are no segments."""
        return until

    def adopt(self, segment: int) -> None:
        """There are no segments."""

    def seal(self) -> int | None:
        """Tables have no segments: the number of the next record."""
        return self.last_lsn + 1

    def growth(self) -> LogGrowth | None:
        """Tables have no segments."""
        return None

    def finalize(self) -> tuple[int, int] | None:
        """The tables became those of the newest version at the boot."""
        return len(VERSIONS), len(VERSIONS)

    def spent(self, lengths: Iterable[int]) -> None:
        """Nothing was asked to be cleaned."""

    def cleaned(self, segment: int) -> None:
        """Nothing was asked to be cleaned."""

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""
        return {
            "store": self._backend.shown,
            "store_format": len(VERSIONS),
            "newest_store_format": len(VERSIONS),
            "database_outage": self._outage.detail,
            "lease_s": self._settings.lease_s,
            "history_held_s": round(self._upkeep.held_s),
            **self._backend.describe(),
        }

    def close(self) -> None:
        """Let go of the tables; what was not committed is dropped."""
        self._closing.set()
        with self._leader:
            is_ours = self._failure is None and self._outage.detail is None
            detail = f"{self._backend.shown}: the store is closed"
            self._failure = self._failure or StoreFailed(path=self._backend.shown, detail=detail)
            self._backend.close(is_released=is_ours)

    # failing

    @contextmanager
    def _deadly(self) -> Iterator[None]:
        """Whatever fails in the block kills the store (P7)."""
        if self._failure is not None:
            raise self._failed()
        try:
            yield
        except HmsError as error:
            self._failure = error
            raise
        except Unreachable:
            raise
        except BaseException as error:
            # Records may be half taken: going on would leave a hole in the order.
            detail = f"{self._backend.shown}: {type(error).__name__} while writing: {error}"
            self._failure = StoreFailed(path=self._backend.shown, detail=detail)
            raise

    def _failed(self) -> HmsError:
        assert self._failure is not None
        return type(self._failure)(**self._failure.fields)

    @contextmanager
    def _available(self) -> Iterator[None]:
        """At boot nobody waits yet: who boots the node hears at once that there is no answer."""
        try:
            yield
        except Unreachable as error:
            raise DatabaseUnavailable(path=self._backend.shown, detail=str(error)) from error
