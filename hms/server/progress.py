"""Progress: whether the threads that do a node's work come on, seen without any lock.

Each part counts: the main loop its turns, a worker one when it takes a batch and one when it is
done, so that an odd number says that it is busy. Who looks keeps the last count and when it
changed; what is busy, and has not counted for long, hangs.
"""

import time
from collections.abc import Callable, Mapping

__all__ = ["Progress"]

Count = Callable[[], int]


class Progress:
    """parts: by name, what each has counted; those in `always` are never idle."""

    def __init__(
        self,
        parts: Mapping[str, Count],
        always: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = dict(parts)
        self._always = always
        self._clock = clock
        now = clock()
        self._seen = {name: (count(), now) for name, count in self._parts.items()}

    def look(self) -> dict[str, float]:
        """By part, for how many seconds it has been busy without progress; 0 when it is not."""
        now = self._clock()
        ages = {}
        for name, count in self._parts.items():
            value = count()
            last, since = self._seen[name]
            if value != last:
                since = now
                self._seen[name] = value, now
            is_busy = name in self._always or value % 2 == 1
            ages[name] = now - since if is_busy else 0.0
        return ages
