"""Reading a store at boot: every record into the engine, and word of how far it is."""

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from hms.boot import compose
from hms.boot.entries import Config, Node
from hms.engine.engine import Engine
from hms.engine.log.packed_block import BodyReader
from hms.engine.log.pinned_recovery import PinnedReader, no_pinned
from hms.engine.log.recovery import Recovery
from hms.records import RecordType
from hms.records.transitions import Payload
from hms.store.interface import Store, StoredRecord
from hms.store.journal.journal import Journal
from hms.store.journal.record_fetch import Fetch
from hms.store.journal.segment_walk import ReadUpTo
from hms.wire.record_runs import RUN

GARBAGE_THRESHOLDS = (10_000, 5, 2)
"""Waiting messages are no garbage: looking through them every 700 new ones would cost more than
delivering them. Yet each generation has a bound: 10,000 new objects are 0.7 ms, 60,000 of the next
5 ms, 180,000 of the last 20 ms, and freeze_survivors leaves these out from then on. With 50 of
50,000 the middle one alone could walk 2.5 million: 250 ms."""
TELL_EVERY_S = 0.5
LOOK_EVERY = 1024
"""Records between two looks at the clock."""
RUNS_OF = RecordType.SENT
"""What may come as runs: messages that were sent one by one."""
Tell = Callable[[int, int], None]
"""Told the bytes that are read, and how many there are; 0 when nobody knows."""


def make_engine(config: Config, node: Node) -> Engine:
    """That of a node, empty."""
    return Engine(compose.engine_settings(config, node), os.urandom)


class _Progress:
    """Tells how far the reading is, now and then."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store, self._tell = store, tell
        self.records = self._bytes = 0
        self._look_at = LOOK_EVERY
        self._told_at = time.monotonic()

    def read(self, records: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
        """The records as they come."""
        for record in records:
            yield record
            self.records += record[2] if record[1] & RUN else 1
            self._bytes += len(record[3])
            if self.records < self._look_at:
                continue
            self._look_at = self.records + LOOK_EVERY
            if time.monotonic() - self._told_at >= TELL_EVERY_S:
                self._tell(self._bytes, self._store.recovery_bytes)
                self._told_at = time.monotonic()


class Applied:
    """A recovery that has followed a copy's log. read_up_to: where the rest of the log begins;
    written: where the last byte ends of a segment that the copy began in this process."""

    def __init__(self, engine: Engine, fetch: Fetch) -> None:
        self.engine = engine
        self.records = 0
        self.read_up_to: ReadUpTo | None = None
        self.written: Mapping[int, int] = {}
        self._fetch = fetch
        self._read: BodyReader = fetch.read
        self._read_pinned: PinnedReader = no_pinned
        self._recovery = engine.recovery(self._pinned_of, self._read_at)

    def _read_at(self, position: int, size: int) -> bytes:
        return self._read(position, size)

    def _pinned_of(self, segment: int) -> Iterable[StoredRecord]:
        return self._read_pinned(segment)

    def apply(self, kind: int, events: int, payload: Payload, position: int) -> None:
        """A record, or a run of them."""
        self._recovery.apply(kind, payload, position)
        self.records += events if kind & RUN else 1

    @property
    def has_unread(self) -> bool:
        """Whether there is something for read_pinned()."""
        return self._recovery.has_unread

    def read_pinned(self, pinned: PinnedReader) -> Iterator[None]:
        """As of Recovery."""
        return self._recovery.read_pinned(pinned)

    def goes_on(self, pinned: PinnedReader, read: BodyReader) -> Recovery:
        """With the records of the rest; what it reads again comes from the store from now on."""
        self._read_pinned, self._read = pinned, read
        self._fetch.close()
        return self._recovery


def recover(engine: Engine, store: Store, tell: Tell, applied: Applied | None = None) -> int:
    """Feed the engine all that the store holds, or what is not applied yet; the number of
    records."""
    progress = _Progress(store, tell)

    def pinned(segment: int) -> Iterator[StoredRecord]:
        return progress.read(store.pinned_records(segment, RUNS_OF))

    behind, oldest = frozenset[int](), 0
    if applied is None:
        recovery, records = engine.recovery(pinned, store.read), store.recover(RUNS_OF)
    else:
        assert isinstance(store, Journal), "only a log is followed"
        recovery = applied.goes_on(pinned, store.read)
        records = store.recover(RUNS_OF, applied.read_up_to, applied.written)
        progress.records = applied.records
    gc.disable()  # nothing of what is read is garbage, and looking for some takes longer each time
    try:
        for _, kind, _, payload, position in progress.read(records):
            recovery.apply(kind, payload, position)
        if isinstance(store, Journal) and applied is not None:
            behind, oldest = store.pinned_at_boot, store.growth().oldest
        recovery.finish(behind, oldest)
        store.pin(engine.pinned_segments())
    finally:
        gc.enable()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()
    return progress.records
