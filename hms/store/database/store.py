"""The database store: the Store interface over tables.

append() only numbers records; one leader at a time takes what waits, translates it to changes of
rows and writes them with one transaction, which also proves our epoch. While the database does not
answer the leader tries again, for a while: whether a transaction that was cut off took effect is
read back from meta, so it is written once. After that, and after anything else that fails, the
store is dead and the node stops (P7).
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from field_buffer.catalogue import DatabaseLost, StoreFailed
from field_buffer.errors import FieldValue, HmsError
from hms.store.database.backend import Backend, Claim, Transaction, Unreachable
from hms.store.database.backlog import Backlog
from hms.store.database.departed import Departed
from hms.store.database.outage import Outage
from hms.store.database.owner import this_process
from hms.store.database.remembered import Remembered
from hms.store.database.restated import bounds_of, dictionary_of, memory_of, messages_of
from hms.store.database.rows import Entry
from hms.store.database.translation import Translation
from hms.store.interface import (
    SEGMENT_SHIFT,
    DictionaryMaker,
    Parts,
    SegmentGoneError,
    StoredRecord,
)

log = logging.getLogger("hms.store.database")

PRUNE_EVERY_S: Final = 5.0
PRUNE_ROWS: Final = 5_000
RENEW_SHARE: Final = 3
"""The lease is renewed when a third of it is over."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Times are in seconds. batches_max and entries_max: of the engine's memory, how many batches
    of a producer and how many producers. history_bytes 0: no history; history_age_s 0: no limit of
    age."""

    lease_s: float = 15.0
    retry_s: float = 60.0
    batches_max: int = 64
    entries_max: int = 10_000
    history_bytes: int = 16 << 30
    history_age_s: float = 0.0


class DatabaseStore:
    """Tables that this process alone writes. Implements hms.store.interface.Store."""

    def __init__(self, backend: Backend, settings: DatabaseSettings, node_uid: int) -> None:
        self._backend, self._settings = backend, settings
        self._leader = threading.Lock()
        self._closing = threading.Event()
        self._outage = Outage(backend.shown, settings.retry_s)
        self._remembered = Remembered(settings.batches_max, settings.entries_max)
        self._departed = Departed()
        self._backlog: Backlog | None = None
        self._failure: HmsError | None = None
        self._shortage: str | None = None
        try:
            self._meta = backend.claim(
                Claim(node_uid, this_process(), round(settings.lease_s * 1000))
            )
        except BaseException:
            backend.close(is_released=False)
            raise
        self._renew_at = self._next_renewal()
        self._prune_at = 0.0

    @property
    def last_lsn(self) -> int:
        """The last sequence number given away, 0 before the first."""
        return self._backlog.last_lsn if self._backlog else self._meta.last_lsn

    @property
    def durable_lsn(self) -> int:
        """Everything up to this sequence number is safe."""
        return self._meta.last_lsn

    @property
    def backlog_bytes(self) -> int:
        """Appended and not yet committed."""
        return self._backlog.bytes if self._backlog else 0

    @property
    def is_waiting_for_space(self) -> bool:
        """Never: the database makes its own space."""
        return False

    @property
    def needs_maintenance(self) -> bool:
        """The lease is to be renewed, or the history to be cut."""
        if self._failure is not None:
            return False
        now_s = time.monotonic()
        return now_s >= min(self._renew_at, self._prune_at) or self._departed.is_due(now_s)

    # boot

    def recover(self) -> Iterator[StoredRecord]:
        """What the tables hold, as the fewest records that tell it."""
        backend, meta = self._backend, self._meta
        with self._available():
            yield dictionary_of(meta, backend.definitions())
            yield from bounds_of(meta, backend.ids_below())
            for record in messages_of(meta, backend, self._departed.nowhere):
                self._renew_if_due()
                yield record
            for content in self._remembered.load(backend.batches(), backend.commits()):
                yield memory_of(meta, content)

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
        """Commit all that waits; the durable sequence number."""
        is_leader = self._leader.acquire(blocking=False)
        if not is_leader:  # the lease is being renewed, or the history cut: soon done
            self._leader.acquire()
        try:
            with self._deadly():
                assert self._backlog is not None, "start() comes first"
                last_lsn = self._backlog.last_lsn
                while self._meta.last_lsn < last_lsn:
                    self._write(self._backlog.take())
        finally:
            self._leader.release()
        return self.durable_lsn

    def _write(self, entries: Sequence[Entry]) -> None:
        assert self._backlog is not None
        transaction = self._translated(entries)
        while True:
            try:
                self._backend.write(transaction)
                break
            except Unreachable as error:
                self._wait(error)
        self._outage.over()
        self._meta = transaction.after
        self._renew_at = self._next_renewal()
        self._departed.left([id_ for _, id_ in transaction.changes.gone()], time.monotonic())
        self._backlog.safe(entries)

    def _translated(self, entries: Sequence[Entry]) -> Transaction:
        translation = Translation(self._meta, self._remembered)
        now_s = time.monotonic()
        blob = b"".join([part for entry in entries for part in entry.parts])
        view, base = memoryview(blob), entries[0].position
        for entry in entries:
            start = entry.position - base
            payload = view[start : start + entry.length]
            translation.apply(entry.lsn, entry.kind, payload, entry.position)
        last = entries[-1]
        after = translation.meta_after(last.lsn + last.events - 1, last.position + last.length)
        return Transaction(
            self._meta,
            after,
            entries,
            blob,
            base,
            translation.changes,
            self._remembered.take_changes(),
            self._departed.take(now_s),
            time.time_ns() // 1_000_000,
            keeps_history=self._settings.history_bytes > 0,
        )

    def _wait(self, error: Unreachable) -> None:
        """Before the next try; raises DatabaseLost when there is none, StoreFailed at close."""
        pause_s = self._outage.failed(str(error))
        if self._closing.wait(pause_s):
            detail = f"{self._backend.shown}: closed while it did not answer: {error}"
            raise StoreFailed(path=self._backend.shown, detail=detail)

    def sends_refused(self) -> str | None:
        """Why new persistent messages must be refused: the database has not answered for a while,
        or has no space."""
        if self._failure is not None:
            return str(self._failure)
        return self._outage.refusal() or self._shortage

    def maintain(self) -> None:
        """Renew the lease, cut the history; while a commit is under way it does the former."""
        if not self._leader.acquire(blocking=False):
            return
        try:
            with self._deadly():
                self._maintain()
        finally:
            self._leader.release()

    def _maintain(self) -> None:
        try:
            self._shortage = self._backend.shortage()
            self._renew_if_due()
            self._sweep()
            if time.monotonic() >= self._prune_at:
                self._prune()
            self._outage.over()
        except Unreachable as error:
            pause_s = self._outage.failed(str(error))
            self._renew_at = self._prune_at = time.monotonic() + pause_s

    def _renew_if_due(self) -> None:
        if time.monotonic() >= self._renew_at:
            self._backend.renew()
            self._renew_at = self._next_renewal()

    def _sweep(self) -> None:
        """What a node that rests has left over; a busy one deletes it with its commits."""
        while unheld := self._departed.take(time.monotonic()):
            try:
                self._backend.sweep(unheld)
            except Unreachable:
                self._departed.nowhere(*unheld)
                raise

    def _prune(self) -> None:
        """Delete what the history need not keep, in steps that hold nobody up."""
        settings = self._settings
        oldest_ms = time.time_ns() // 1_000_000 - round(settings.history_age_s * 1000)
        before_ms = oldest_ms if settings.history_age_s else 0
        first_position = self._meta.next_position - settings.history_bytes
        gone = self._backend.prune(before_ms, first_position, PRUNE_ROWS)
        self._prune_at = time.monotonic() + (0 if gone == PRUNE_ROWS else PRUNE_EVERY_S)

    def _next_renewal(self) -> float:
        return time.monotonic() + self._settings.lease_s / RENEW_SHARE

    # reading

    def read(self, position: int, size: int) -> bytes:
        """Bytes of a message. Raises SegmentGoneError when it left, DatabaseLost, StoreFailed."""
        outage = Outage(self._backend.shown, self._settings.retry_s)
        if not size:
            return b""
        while True:
            try:
                found = self._backend.read(position, size)
                break
            except Unreachable as error:
                if self._closing.wait(outage.failed(str(error))):
                    raise self._failed() from error
        if found is None:
            raise SegmentGoneError(position)
        return found

    @property
    def newest_segment(self) -> int:
        """The upper bits of the next position; nothing is ever cleaned."""
        return self._meta.next_position >> SEGMENT_SHIFT

    def next_to_clean(self, live_bytes: int) -> int | None:  # noqa: ARG002 - the interface's
        """None: a row that goes leaves its space to others."""
        return None

    def cleaned(self, segment: int) -> None:
        """Nothing was asked to be cleaned."""

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""
        return {
            "store": self._backend.shown,
            "database_outage": self._outage.detail,
            "lease_s": self._settings.lease_s,
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
        """At boot an answer is waited for by whoever boots the node."""
        try:
            yield
        except Unreachable as error:
            shown = self._backend.shown
            raise DatabaseLost(path=shown, detail=str(error), limit_s=0) from error
