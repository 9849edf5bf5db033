"""Reading a store at boot: every record into the engine, and word of how far it is."""

import gc
import time
from collections.abc import Callable

from hms.engine.engine import Engine
from hms.store.interface import Store

GARBAGE_THRESHOLDS = (50_000, 50, 1000)
"""Waiting messages are no garbage: looking through all of them every 700 new ones would cost more
than delivering them. What the engine drops holds no cycles."""
TELL_EVERY_S = 0.5
LOOK_EVERY = 1024
"""Records between two looks at the clock."""
Tell = Callable[[int, int], None]
"""Told the bytes that are read, and how many there are; 0 when nobody knows."""


def recover(engine: Engine, store: Store, tell: Tell) -> int:
    """Feed the engine all that the store holds; the number of records."""
    recovery = engine.recovery(store.pinned_records)
    records = done = 0
    told_at = time.monotonic()
    gc.disable()  # nothing of what is read is garbage, and looking for some takes longer each time
    try:
        for _, kind, _, payload, position in store.recover():
            recovery.apply(kind, payload, position)
            records += 1
            done += len(payload)
            if records % LOOK_EVERY == 0 and time.monotonic() - told_at >= TELL_EVERY_S:
                tell(done, store.recovery_bytes)
                told_at = time.monotonic()
        recovery.finish()
        store.pin(engine.pinned_segments())
    finally:
        gc.enable()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()
    return records
