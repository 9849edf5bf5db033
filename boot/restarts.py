"""Whether a server process that ended is started again, and when; and when there should be more.

No process and no clock: times are seconds of the caller's.
"""

from collections import deque

__all__ = ["Demand", "Restarts"]

IDLE_S = 60.0
"""A process above MIN ends when for so long not all were busy."""


class Restarts:
    """The restarts of one process: at most restarts_max within period_s, -1 for any number."""

    def __init__(self, delay_s: float, restarts_max: int, period_s: float) -> None:
        self._delay_s = delay_s
        self._max = restarts_max
        self._period_s = period_s
        self._recent: deque[float] = deque()
        self.count = 0

    def ended(self, now: float) -> float | None:
        """When to start it again, None to give up."""
        while self._recent and self._recent[0] <= now - self._period_s:
            self._recent.popleft()
        if 0 <= self._max <= len(self._recent):
            return None
        if self._max >= 0:
            self._recent.append(now)
        self.count += 1
        return now + self._delay_s


class Demand:
    """How many processes a server should have, between least and most."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._idle_since: float | None = None

    def change(self, now: float, started: int, connected: int, busy: int, waiting: int) -> int:
        """1 to start one more, -1 to end one, 0 for neither.

        One at a time: while a process has yet to connect, nobody knows what it will take over.
        """
        if waiting and connected >= started and busy >= connected:
            self._idle_since = None
            return int(started < self._most)
        if waiting or busy >= connected or started <= self._least:
            self._idle_since = None
            return 0
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < IDLE_S:
            return 0
        self._idle_since = None
        return -1
