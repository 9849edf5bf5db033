"""A hot standby: a copy that follows has applied what is confirmed, so that a take-over reads only
the rest of its log (decision 0058).

It applies in slices, in the thread that follows: what the primary says is written and answered
first, and while there is much of that at most a fifth of the time is spent here. Whatever goes
wrong costs only time: what was applied is given up, and the log is read from its beginning, here
or at the take-over.
"""

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hms.boot.recovering import RUNS_OF, Applied
from hms.engine.engine import Engine
from hms.errors.catalogue import StoreCorrupt
from hms.errors.tree import HmsError
from hms.store.interface import StoredRecord
from hms.store.journal.confirmed_place import NOTHING, Place
from hms.store.journal.disk import READ, Disk
from hms.store.journal.growing_log import GrowingLog, is_in_log
from hms.store.journal.record_fetch import Fetch
from hms.store.journal.recovery import alone_records
from hms.store.journal.segment_walk import (
    PINNED_SUFFIX,
    ReadUpTo,
    Walk,
    opened,
    read_info,
    segment_file,
)

__all__ = ["HotStandby"]

log = logging.getLogger("hms.replicas")

SLICE_S: Final = 0.005
REST_SLICES: Final = 4
"""So many times a slice is left to the primary's frames, while there are any."""
HURRY_S: Final = 1.0
"""So long after a move has asked for it nothing is left to them but what they need between two
slices: each frame waits for one at most."""
AGAIN_S: Final = 10.0
"""So long after a fault it begins anew."""


class HotStandby:
    """See the module. make_engine: a new one, as the node has it."""

    def __init__(self, disk: Disk, folder: Path, make_engine: Callable[[], Engine]) -> None:
        self._disk, self._folder, self._make_engine = disk, folder, make_engine
        self._log: GrowingLog | None = None
        self._applied: Applied | None = None
        self._fetch: Fetch | None = None
        self._records: Iterator[StoredRecord] = iter(())
        self._pinned: Iterator[None] | None = None
        self._until, self._is_there = NOTHING, True
        """The place up to which it applies now, and whether it is there."""
        self._free_at = self._hurries_until = 0.0

    def turn(self, confirmed: Place, *, is_idle: bool) -> bool:
        """Apply some of what lies before that place; whether there is more to apply at once.
        is_idle: the primary has said nothing just now."""
        began = time.monotonic()
        if confirmed < self._until:  # an operator has given up what was behind it
            self._give_up("the log was cut")
            self._free_at = began
        if began < self._free_at and not (is_idle and self._applied is not None):
            return False
        has_all = confirmed == self._until and self._is_there
        if has_all and not self._lacks_pinned:
            return False
        has_more = False
        try:
            if has_all:
                has_more = self._read_pinned(began + SLICE_S)
            else:
                self._slice(confirmed, began + SLICE_S)
        except Exception as fault:  # noqa: BLE001 - the log is read at the take-over
            why = f"{type(fault).__name__}: {fault}"
        else:
            rest = 0 if began < self._hurries_until else REST_SLICES
            self._free_at = began + (1 + rest) * (time.monotonic() - began)
            return has_more or not self._is_there
        self._give_up(why)  # out of the handler: the fault's frames hold what was applied
        self._free_at = began + AGAIN_S
        return False

    def hurry(self) -> None:
        """A move waits for what is left."""
        self._hurries_until = time.monotonic() + HURRY_S

    @property
    def verified(self) -> ReadUpTo | None:
        """Up to where the log was read, and found to be whole."""
        return None if self._log is None else self._log.read_up_to

    @property
    def place(self) -> Place:
        """What lies before it is applied."""
        at = self.verified
        return NOTHING if at is None else Place(at.number, at.offset)

    def take(self, written: Mapping[int, int] = MappingProxyType({})) -> Applied | None:
        """What was applied, for the node that leads now; None where nothing was. written: as of
        Applied."""
        applied, growing = self._applied, self._log
        if growing is None or applied is None:
            return None
        applied.read_up_to, applied.written = growing.read_up_to, written
        if applied.read_up_to is None or not self._has(applied.read_up_to):
            applied = None
            self._give_up("the log begins behind it")
            return None
        log.info("%d records of the log are applied already", applied.records)
        growing.close()
        self._applied = self._log = self._fetch = None
        return applied

    def _has(self, place: ReadUpTo) -> bool:
        with suppress(HmsError, OSError):
            return is_in_log(self._disk, self._folder, place)
        return False

    def _slice(self, confirmed: Place, until_s: float) -> None:
        if self._applied is None:
            self._begin()
        assert self._applied is not None
        gc.disable()  # nothing of what is read is garbage
        try:
            self._is_there = self._apply_some(self._applied, until_s)
            if self._is_there and self._until != confirmed and self._log is not None:
                self._until, self._records = confirmed, self._log.records(confirmed, RUNS_OF)
                self._is_there = self._apply_some(self._applied, until_s)
        finally:
            gc.freeze()
            gc.enable()

    def _apply_some(self, to: Applied, until_s: float) -> bool:
        """Whether there are no more of these."""
        for _, kind, events, payload, position in self._records:
            to.apply(kind, events, payload, position)
            if time.monotonic() >= until_s:
                return False
        return True

    @property
    def _lacks_pinned(self) -> bool:
        is_begun = self._pinned is not None
        return is_begun or (self._applied is not None and self._applied.has_unread)

    def _read_pinned(self, until_s: float) -> bool:
        """What lies behind the log, which a take-over would have to read; whether there is more."""
        assert self._applied is not None
        if self._pinned is None:
            self._pinned = self._applied.read_pinned(self._pinned_records)
        gc.disable()  # as in _slice()
        try:
            for _ in self._pinned:
                if time.monotonic() >= until_s:
                    return True
            self._pinned = None
        finally:
            gc.freeze()
            gc.enable()
        return False

    def _pinned_records(self, number: int) -> Iterator[StoredRecord]:
        """Of a segment that has left the log; LookupError for one that cannot be read here."""
        file = segment_file(self._folder, number, PINNED_SUFFIX)
        try:
            info = read_info(self._disk, file, number, is_last=False)
            with opened(self._disk, file, READ) as fd:
                yield from alone_records(Walk(self._disk, fd, info), info, RUNS_OF)
        except (OSError, StoreCorrupt) as fault:
            raise LookupError(number) from fault

    def _begin(self) -> None:
        self._fetch = Fetch(self._disk, self._folder)
        self._applied = Applied(self._make_engine(), self._fetch)
        self._log = GrowingLog(self._disk, self._folder)

    def _give_up(self, why: str) -> None:
        had = self._applied is not None
        if had:
            log.warning("what this copy had applied of the log is given up: %s", why)
        if self._log is not None:
            self._log.close()
        if self._fetch is not None:
            self._fetch.close()
        self._applied = self._log = self._fetch = None
        self._records, self._pinned, self._until = iter(()), None, NOTHING
        self._is_there = True
        if had:  # its engine is in cycles, and _slice() has frozen it: it would stay for ever
            gc.unfreeze()
            gc.collect()
