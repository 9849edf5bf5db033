"""Aging: what is kept for a time goes when that is over by a clock that cannot jump.

A machine that boots with its clock years ahead, or whose clock is set so, would have everything
look old at once. So the moment before which things go begins, at each boot, before the oldest thing
that is there, and moves on as the node runs: what it is behind it makes up by at most a day an
hour. In a crash loop, whose runs last less than a quarter of an hour, nothing goes.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["HELD_S", "Aging"]

MADE_UP: Final = 24
"""Seconds that are made up in each second that the node runs."""
MADE_UP_S_MAX: Final = 86_400.0
"""So much at a time, however long ago the last look was."""
LEAD_S: Final = 21_600.0
"""So long before the oldest thing that moment begins: a quarter of an hour is to make it up."""
HELD_S: Final = 86_400.0
"""Who is so far behind tells an operator."""

_steady_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Aging:
    """Of one kind of thing. For one thread at a time, but for held_s."""

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = _steady_s,
    ) -> None:
        self.wall_s, self._steady_s = wall_s, steady_s
        self._until_s: float | None = None
        self._looked_s = 0.0
        self.held_s = 0.0
        """So much older than they may become things are kept."""

    def until_s(self, keep_s: float, oldest_s: Callable[[], float | None]) -> float:
        """What was written before that moment may go, in seconds since 1970. keep_s: how long
        things are kept; oldest_s: when the oldest one was written, None while there is none."""
        wanted_s, now_s = self.wall_s() - keep_s, self._steady_s()
        if self._until_s is not None:
            most_s = self._until_s + self._passed(now_s)
        elif (found_s := oldest_s()) is not None:
            most_s = found_s - LEAD_S
        else:
            return wanted_s
        self._until_s, self._looked_s = min(wanted_s, most_s), now_s
        self.held_s = max(0.0, wanted_s - self._until_s - LEAD_S)
        return self._until_s

    def _passed(self, now_s: float) -> float:
        passed_s = max(0.0, now_s - self._looked_s)
        return passed_s + min(MADE_UP * passed_s, MADE_UP_S_MAX)
