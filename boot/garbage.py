"""The node's garbage collector: what stays is walked once, not again and again.

A full collection walks every object that can be part of a cycle, in whatever thread it happens,
perhaps under the engine's lock: with 60,000 consumers 0.6 s. Nearly everything of a node is freed
without it, by its last reference. So what survives a collection that took long is left out of all
later ones; each object that stays is walked a few times, a small part of them at a time.
"""

import gc
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

__all__ = ["FreezeSurvivors", "freeze_survivors"]

LONG_S: Final = 0.005
"""About 20,000 objects."""
_FULL: Final = 2


class FreezeSurvivors:
    """Called by the collector at the beginning and the end of each of its runs."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._begun_s = 0.0

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """phase: "start" or "stop"."""
        if phase == "start":
            self._begun_s = self._clock()
        elif info["generation"] == _FULL and self._clock() - self._begun_s > LONG_S:
            gc.freeze()


def freeze_survivors() -> None:
    """From now on, in this process."""
    gc.freeze()
    gc.callbacks.append(FreezeSurvivors())
