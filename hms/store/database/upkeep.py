"""Upkeep: what a store does beside its commits: the lease, rows that nothing holds, the history."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hms.store.aging import Aging
from hms.store.database.backend import Backend, Unreachable
from hms.store.database.departed_messages import Departed

PRUNE_EVERY_S: Final = 5.0
PRUNE_ROWS: Final = 5_000
PRUNE_AUDIT_EVERY_S: Final = 3600.0
LOOK_BYTES: Final = 4 << 20
"""After so much it is looked how much is free."""
RENEW_SHARE: Final = 3
"""The lease is renewed when a third of it is over."""


def wall_ms() -> int:
    """Milliseconds since 1970 UTC by the machine's clock."""
    return time.time_ns() // 1_000_000


def hear_nothing(_at_ms: int) -> None:
    """Who opens a store once does not watch its owner."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Times are in seconds. batches_max and entries_max: of the engine's memory, how many batches
    of a producer and how many producers. history_bytes 0: no history; history_age_s and
    audit_keep_s 0: no limit of age. clock_ms: the node's, which is told with each renewal of the
    lease, as an idle node has no record that would; heard: told it while another one has the
    store."""

    lease_s: float = 15.0
    retry_s: float = 60.0
    batches_max: int = 64
    entries_max: int = 10_000
    history_bytes: int = 16 << 30
    history_age_s: float = 0.0
    audit_keep_s: float = 0.0
    clock_ms: Callable[[], int] = wall_ms
    heard: Callable[[int], None] = hear_nothing


class Upkeep:
    """Knows when it is time; for one thread at a time but for is_due."""

    def __init__(self, backend: Backend, settings: DatabaseSettings) -> None:
        self._backend, self._settings = backend, settings
        self._aging, self._audit_aging = (Aging(lambda: settings.clock_ms() / 1000) for _ in "12")
        self.departed = Departed()
        self.shortage: str | None = None
        """Why nothing new should be stored."""
        self._unseen_bytes = 0
        self._prune_at = self._prune_audit_at = 0.0
        self.renewed()

    @property
    def is_due(self) -> bool:
        """There is something to do."""
        now_s = time.monotonic()
        return now_s >= min(self._renew_at, self._prune_at) or self.departed.is_due(now_s)

    def renewed(self) -> None:
        """A commit has renewed the lease too."""
        self._renew_at = time.monotonic() + self._settings.lease_s / RENEW_SHARE

    def wrote(self, size: int) -> None:
        """So many bytes more: what was free may be gone, long before anything is due."""
        self._unseen_bytes += size
        if self._unseen_bytes >= LOOK_BYTES:
            self._look()

    def _look(self) -> None:
        self._unseen_bytes = 0
        self.shortage = self._backend.shortage()

    def renew_if_due(self) -> None:
        """Raises Unreachable and StoreFenced."""
        if time.monotonic() >= self._renew_at:
            self._backend.renew(self._settings.clock_ms())
            self.renewed()

    def run(self, next_position: int) -> None:
        """Do what is due. Raises Unreachable and StoreFenced."""
        self._look()
        self.renew_if_due()
        self._sweep()
        if time.monotonic() >= self._prune_at:
            self._prune(next_position)

    @property
    def held_s(self) -> float:
        """So much older than they may become records are kept."""
        return max(self._aging.held_s, self._audit_aging.held_s)

    def _before_ms(self, aging: Aging, keep_s: float, which: int) -> int:
        def oldest_s() -> float | None:
            oldest_ms = self._backend.oldest_ms()[which]
            return None if oldest_ms is None else oldest_ms / 1000

        return round(aging.until_s(keep_s, oldest_s) * 1000)

    def pause(self, pause_s: float) -> None:
        """The database did not answer: not again before that time."""
        self._renew_at = self._prune_at = time.monotonic() + pause_s

    def _sweep(self) -> None:
        """What a node that rests has left over; a busy one deletes it with its commits."""
        while unheld := self.departed.take(time.monotonic()):
            try:
                self._backend.sweep(unheld)
            except Unreachable:
                self.departed.nowhere(*unheld)
                raise

    def _prune(self, next_position: int) -> None:
        """Delete what the history need not keep, in steps that hold nobody up."""
        settings = self._settings
        if settings.audit_keep_s and time.monotonic() >= self._prune_audit_at:
            self._backend.prune_audit(self._before_ms(self._audit_aging, settings.audit_keep_s, 1))
            self._prune_audit_at = time.monotonic() + PRUNE_AUDIT_EVERY_S
        keep_s = settings.history_age_s
        before_ms = self._before_ms(self._aging, keep_s, 0) if keep_s else 0
        first_position = next_position - settings.history_bytes
        gone = self._backend.prune(before_ms, first_position, PRUNE_ROWS)
        self._prune_at = time.monotonic() + (0 if gone == PRUNE_ROWS else PRUNE_EVERY_S)
