"""The node's clock: milliseconds since 1970 that run evenly.

The machine's wall clock is set now and then, by hand or by a time service, sometimes by hours. A
node that followed it at once would expire in a moment what should live for an hour, or keep what
should be gone. So time goes on as it has since the boot, and follows the wall clock only slowly.
It begins no earlier than the log has come: a machine whose clock is behind at boot must not have
the node's time stand still until then. Where another machine takes over, it goes on as it has run
there. Time that the machine slept has passed.

Past the year 2262 a time in nanoseconds does not fit into 64 bits: Python cannot even write a line
of a log then. A node does not boot with such a clock, and stops when it is set so far.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from hms.errors.catalogue import ClockUnusable

__all__ = ["LATEST", "EvenClock", "require_clock"]

LATEST: Final = "2262-01-01"
LATEST_NS: Final = 9_214_646_400 * 1_000_000_000
"""The same."""

FOLLOWS: Final = 0.01
"""Of each second at most so much is used to come nearer to the wall clock."""
_NS_PER_MS: Final = 1_000_000


awake_and_asleep_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""A clock that is never set, and goes on while the machine sleeps."""


def require_clock() -> None:
    """End the process, with the reason as its last word, when Python cannot read the clock."""
    try:
        time.time_ns()
    except OverflowError:
        raise SystemExit(str(ClockUnusable(latest=LATEST))) from None


class EvenClock:
    """Called, it gives the time; never less than before."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = awake_and_asleep_ns,
    ) -> None:
        self._wall_ns, self._steady_ns = wall_ns, steady_ns
        self._lock = threading.Lock()
        self._now_ns, self._looked_ns = self._wall() or 0, steady_ns()

    def check(self) -> None:
        """ClockUnusable when the machine's clock cannot be read or is past LATEST."""
        if self._wall() is None:
            raise ClockUnusable(latest=LATEST)

    def _wall(self) -> int | None:
        try:
            found = self._wall_ns()
        except OverflowError:
            return None
        return found if found < LATEST_NS else None

    def machine_ms(self) -> int | None:
        """What the machine's own clock says; None when it cannot be read or is past LATEST."""
        found = self._wall()
        return None if found is None else found // _NS_PER_MS

    def begin_at(self, at_ms: int) -> None:
        """The log has come so far: go on from there if that is later."""
        self()  # a standby's process may have begun days ago: that has passed already
        with self._lock:
            self._now_ns = max(self._now_ns, at_ms * _NS_PER_MS)

    def go_on_from(self, at_ms: int) -> None:
        """This machine takes over where the time is that: its own clock may be ahead by hours, and
        all that lives or waits for an hour would be over at once."""
        with self._lock:
            self._now_ns, self._looked_ns = at_ms * _NS_PER_MS, self._steady_ns()

    def __call__(self) -> int:
        """Milliseconds since 1970 UTC."""
        with self._lock:
            steady_ns = self._steady_ns()
            passed = max(steady_ns - self._looked_ns, 0)
            most = int(passed * FOLLOWS)
            try:
                wall_ns = self._wall_ns()
            except OverflowError:
                wall_ns = LATEST_NS
            away = wall_ns - (self._now_ns + passed) if wall_ns < LATEST_NS else 0
            self._now_ns += passed + max(-most, min(away, most))
            self._looked_ns = steady_ns
            return self._now_ns // _NS_PER_MS
