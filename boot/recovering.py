"""Reading a store at boot: every record into the engine, and word of how far it is."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator

from hms.engine.engine import Engine
from hms.records import RecordType
from hms.store.interface import Store, StoredRecord
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


def recover(engine: Engine, store: Store, tell: Tell) -> int:
    """Feed the engine all that the store holds; the number of records."""
    progress = _Progress(store, tell)
    recovery = engine.recovery(
        lambda segment: progress.read(store.pinned_records(segment, RUNS_OF)), store.read
    )
    gc.disable()  # nothing of what is read is garbage, and looking for some takes longer each time
    try:
        for _, kind, _, payload, position in progress.read(store.recover(RUNS_OF)):
            recovery.apply(kind, payload, position)
        recovery.finish()
        store.pin(engine.pinned_segments())
    finally:
        gc.enable()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()
    return progress.records
