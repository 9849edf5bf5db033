"""The pace of log cleaning: it gives way to clients, but never falls behind what they append."""

from collections.abc import Callable
from time import perf_counter

from hms.store.interface import Store

__all__ = ["CleaningPace"]

REST_SHARE = 4
"""While clients work, cleaning rests four times as long as a piece took: a fifth is its own."""
REST_MAX_S = 0.05
"""A piece that took longer waited for something else."""


class CleaningPace:
    """holds: how often the engine's lock was taken, by anybody; wait: rests for so many seconds."""

    def __init__(
        self, store: Store, holds: Callable[[], int], wait: Callable[[float], object]
    ) -> None:
        self._store, self._holds, self._wait = store, holds, wait
        self._newest = self._own = self._seen = 0
        self._begun_s = 0.0

    def begin(self) -> None:
        """A segment's turn has come."""
        self._newest = self._store.newest_segment
        self._own, self._seen = 0, self._holds()
        self._begun_s = perf_counter()

    def took_lock(self) -> None:
        """Cleaning itself has taken the engine's lock."""
        self._own += 1

    def rest(self) -> None:
        """A piece is done: give way when others took the lock since the piece before was."""
        others = self._holds() - self._seen - self._own
        took_s = perf_counter() - self._begun_s
        self._own, self._seen = 0, self._holds()
        if others > 0 and not self._is_late:
            self._wait(min(REST_SHARE * took_s, REST_MAX_S))
        self._begun_s = perf_counter()

    @property
    def _is_late(self) -> bool:
        """A whole segment was written since this one was due, or space is wanted: rest no more."""
        store = self._store
        if store.newest_segment > self._newest:
            return True
        return store.is_waiting_for_space or store.sends_refused() is not None
