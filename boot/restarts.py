"""Whether a server process that ended is started again, and when; and when there should be more.

No process and no clock: times are seconds of the caller's.
"""

from collections import deque

__all__ = ["Demand", "Restarts"]

IDLE_S = 60.0
DOUBLINGS_MAX = 30


class Restarts:
    """The restarts of one process: at most restarts_max within period_s, -1 for any number. The
    pause begins with delay_s and doubles with each of them, up to delay_max_s."""

    def __init__(
        self, delay_s: float, restarts_max: int, period_s: float, delay_max_s: float = 0
    ) -> None:
        self._delay_s = delay_s
        self._delay_max_s = max(delay_s, delay_max_s)
        self._max = restarts_max
        self._period_s = period_s
        self._recent: deque[float] = deque(maxlen=max(DOUBLINGS_MAX, restarts_max))
        self.count = 0

    def ended(self, now: float) -> float | None:
        """When to start it again, None to give up."""
        while self._recent and self._recent[0] <= now - self._period_s:
            self._recent.popleft()
        if 0 <= self._max <= len(self._recent):
            return None
        pause_s = self._delay_s * float(1 << min(len(self._recent), DOUBLINGS_MAX))
        self._recent.append(now)
        self.count += 1
        return now + min(pause_s, self._delay_max_s)


class Demand:
    """How many processes a server should have, between least and most. One above least ends when
    for idle_s not all were busy."""

    def __init__(self, least: int, most: int, idle_s: float = IDLE_S) -> None:
        self.least = least
        self.most = most
        self._idle_s = idle_s
        self._idle_since: float | None = None

    def change(self, now: float, started: int, connected: int, busy: int, waiting: int) -> int:
        """1 to start one more, -1 to end one, 0 for neither.

        One at a time: while a process has yet to connect, nobody knows what it will take over.
        """
        if waiting and connected >= started and busy >= connected:
            self._idle_since = None
            return int(started < self.most)
        if waiting or busy >= connected or started <= self.least:
            self._idle_since = None
            return 0
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < self._idle_s:
            return 0
        self._idle_since = None
        return -1
