"""Pace: not faster than asked for, and how long it will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Pace", "Progress", "Show"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a replay is. done and whole: offsets of the history passed, of those to pass."""

    sent: int
    done: int
    whole: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second since the beginning."""
        return self.sent / self.seconds if self.seconds else 0.0

    @property
    def left_s(self) -> float | None:
        """About how long it will still take; None before anything is known of it."""
        if not self.done:
            return None
        return self.seconds / self.done * (self.whole - self.done)


Show = Callable[[Progress], object]


class Pace:
    """Waits so that no more than rate messages a second go out; rate None: as fast as it goes."""

    def __init__(
        self,
        rate: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began_s = clock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._began_s

    def await_turn(self, sent: int) -> None:
        """Until more may be sent, so many having been sent so far."""
        if self._rate is not None:
            self._sleep(max(0.0, sent / self._rate - self.seconds))
