"""The node's clock: milliseconds since 1970 that run evenly.

The machine's wall clock is set now and then, by hand or by a time service, sometimes by hours. A
node that followed it at once would expire in a moment what should live for an hour, or keep what
should be gone. So time goes on as it has since the boot, and follows the wall clock only slowly.
It begins no earlier than the log has come: a machine whose clock is behind at boot must not have
the node's time stand still until then. Time that the machine slept has passed.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["EvenClock"]

FOLLOWS: Final = 0.01
"""Of each second at most so much is used to come nearer to the wall clock."""
_NS_PER_MS: Final = 1_000_000


def awake_and_asleep_ns() -> int:
    """A clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class EvenClock:
    """Called, it gives the time; never less than before."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = awake_and_asleep_ns,
    ) -> None:
        self._wall_ns, self._steady_ns = wall_ns, steady_ns
        self._lock = threading.Lock()
        self._now_ns, self._looked_ns = wall_ns(), steady_ns()

    def begin_at(self, at_ms: int) -> None:
        """The log has come so far: go on from there if that is later."""
        with self._lock:
            self._now_ns = max(self._now_ns, at_ms * _NS_PER_MS)

    def __call__(self) -> int:
        """Milliseconds since 1970 UTC."""
        with self._lock:
            steady_ns = self._steady_ns()
            passed = max(steady_ns - self._looked_ns, 0)
            most = int(passed * FOLLOWS)
            away = self._wall_ns() - (self._now_ns + passed)
            self._now_ns += passed + max(-most, min(away, most))
            self._looked_ns = steady_ns
            return self._now_ns // _NS_PER_MS
