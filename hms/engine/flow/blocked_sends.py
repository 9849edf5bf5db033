"""Blocked sends: sends and commits that wait for room at the node (F-C11, F-C14).

Theory of operation. What finds a destination full under FLOW_CONTROL, or paused, is kept here, as
it came, and is tried again whenever something has changed. Those for one destination stand in a
line in the order in which they came (P4): nobody overtakes, so what a session sends to one
destination stays in order. A commit stands in the line of each destination that it sends to and in
that of its session's commits, and goes when it is first in all of them. Nobody waits for them: no
worker, no lock; acknowledgements and other destinations go on (P10). Each has a time at which it is
refused; what is kept is bounded in bytes (P8). Nothing of it is in the log: after a crash the
client sends again, or is told.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import islice

from hms.engine.effects import Effects, Refusal
from hms.engine.flow.room_wait import Key, Obstacle, Waiting
from hms.engine.flow.user_rate import UserRate
from hms.engine.session.session_objects import Producer, Session
from hms.errors.catalogue import FlowControlTimeout, UserLimit
from hms.errors.tree import HmsError

TRIED_AT_ONCE = 256
"""So many destinations are looked at after each change."""
TAKEN_AT_ONCE = 2048
"""So many messages go at once, of which each send counts SEND_WEIGHT more: 10 ms."""
SEND_WEIGHT = 4


class BlockedSends:
    """All that waits. lines: by destination, each in the order in which they came.

    bytes_max: what may be kept; ms_max: how long, if the client does not give up sooner.
    """

    def __init__(self, bytes_max: int, ms_max: int) -> None:
        self._bytes_max = bytes_max
        self._ms_max = ms_max
        self.lines: dict[Key, deque[Waiting]] = {}
        self.size_bytes = 0
        self.slowed: dict[Key, UserRate] = {}
        """Rates that a send waits for, by its line."""
        self._deadlines: list[tuple[int, int, Waiting]] = []
        self._added = 0
        self.has_more = False
        """There may be room for more than the last retry() was allowed."""
        self._left = 0
        self._touched: Callable[[], int] = lambda: 0
        self._over = 0
        """About how many of the deadlines are of those who wait no more."""

    @property
    def due_ms(self) -> int | None:
        """When the next one has waited long enough."""
        while self._deadlines and self._deadlines[0][2].is_over:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def slowed_by(self, rate: UserRate, now_ms: int) -> Obstacle | None:
        """Whether a user's rate is in the way; if so, when it is not any more is remembered."""
        found = rate.refusal(now_ms)
        if found is None:
            self.slowed.pop(rate.key, None)
            return None
        self.slowed[rate.key] = rate
        return Obstacle(found, may_wait=True, late=UserLimit, fields=found.fields)

    def must_wait(self, waiting: Waiting, now_ms: int) -> bool:
        """Whether it stands in line now; raises what it is refused with instead."""
        is_behind = bool(self.lines) and any(key in self.lines for key in waiting.keys)
        obstacle = waiting.obstacle()
        if obstacle is None and not is_behind:
            return False
        if obstacle is not None and not obstacle.may_wait:
            raise obstacle.refusal
        if self.size_bytes + waiting.size > self._bytes_max:
            raise (obstacle or self._first_obstacle(waiting)).error_after(0, self._count)
        self._add(waiting, now_ms)
        return True

    def _first_obstacle(self, waiting: Waiting) -> Obstacle:
        """What is in the way of those that stand before it."""
        for key in waiting.keys:
            for ahead in self.lines.get(key, ()):
                found = ahead.obstacle()
                if found is not None:
                    return found
        kind, name = waiting.keys[0]
        count = self.count(waiting.keys[0])
        full = FlowControlTimeout(
            kind=kind,
            destination=name,
            key="limit_behavior",
            count=count,
            limit="FLOW_CONTROL",
            oldest_s=0,
        )
        return Obstacle(full, may_wait=True, late=FlowControlTimeout, fields=full.fields)

    def _add(self, waiting: Waiting, now_ms: int) -> None:
        limit_ms = self._ms_max
        own_ms = waiting.session.connection.request_timeout_ms
        waiting.since_ms = now_ms
        waiting.until_ms = now_ms + min(limit_ms, _before(own_ms) if own_ms else limit_ms)
        self.size_bytes += waiting.size
        self._added += 1
        for key in waiting.keys:
            self.lines.setdefault(key, deque()).append(waiting)
        heapq.heappush(self._deadlines, (waiting.until_ms, self._added, waiting))

    @property
    def _count(self) -> int:
        return sum(map(len, self.lines.values()))

    # ---- trying again

    def retry(self, fx: Effects, touched: Callable[[], int]) -> None:
        """Let those go for which there is room now; of many destinations some at a time, and so
        many messages: a queue that is resumed had 400,000 sends taken under one hold of the lock.
        touched: how many messages the command at hand has touched, or consumers it has asked."""
        goes_on, self._left, self.has_more = True, TAKEN_AT_ONCE, False
        self._touched = touched
        while goes_on and not self.has_more:
            goes_on = False
            for key in list(islice(self.lines, TRIED_AT_ONCE)):
                goes_on = self._retried(key, fx) or goes_on
            goes_on = goes_on and len(self.lines) <= TRIED_AT_ONCE

    def _retried(self, key: Key, fx: Effects) -> bool:
        """Whether somebody went from a line; if others are left there, it is tried last now."""
        goes = False
        while (line := self.lines.get(key)) and self._is_first(line[0]):
            if self._left <= 0 or self._touched() >= TAKEN_AT_ONCE:
                self.has_more = True
                break
            first = line[0]
            if not self._tried(first, fx):
                break
            self._left -= sum([SEND_WEIGHT + count for _, count in first.packs()])
            goes = True
        if len(self.lines) > TRIED_AT_ONCE and key in self.lines:
            self.lines[key] = self.lines.pop(key)
        return goes

    def _is_first(self, waiting: Waiting) -> bool:
        return all(self.lines[key][0] is waiting for key in waiting.keys)

    def _tried(self, waiting: Waiting, fx: Effects) -> bool:
        """Whether it stands there no more."""
        try:
            obstacle = waiting.obstacle()
            if obstacle is not None and obstacle.may_wait:
                waiting.unready()
                return False
            if obstacle is None and waiting.ready_some(fx):
                self.has_more = True
                return False
            self._remove(waiting)
            if obstacle is not None:
                raise obstacle.refusal
            waiting.take(fx)
        except HmsError as error:
            self._give_up(waiting, error, fx)
        return True

    def expire(self, now_ms: int, fx: Effects) -> None:
        """Refuse those that have waited long enough."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.is_over:
                self._give_up(waiting, self._late(waiting, now_ms), fx)

    def _late(self, waiting: Waiting, now_ms: int) -> HmsError:
        try:
            obstacle = waiting.obstacle() or self._first_obstacle(waiting)
        except HmsError as error:
            return error
        return obstacle.error_after(now_ms - waiting.since_ms, self._count)

    # ---- leaving

    def drop(
        self,
        error: HmsError | None,
        fx: Effects,
        session: Session,
        producer: Producer | None = None,
    ) -> None:
        """A session or one of its producers ends. error: what those who wait are told; None when
        there is nobody to tell."""
        if not self.lines:
            return
        every = dict.fromkeys(waiting for line in self.lines.values() for waiting in line)
        for waiting in every:
            if waiting.session is session and producer in (None, waiting.producer):
                self._give_up(waiting, error, fx)

    def refuse(self, waiting: Waiting, error: HmsError, fx: Effects) -> None:
        """It ends with that, and nothing of it is left to its session."""
        self._remove(waiting)
        self._tell(waiting, error, fx)

    def _give_up(self, waiting: Waiting, error: HmsError | None, fx: Effects) -> None:
        self._remove(waiting)
        waiting.give_up()
        if error is not None:
            self._tell(waiting, error, fx)

    @staticmethod
    def _tell(waiting: Waiting, error: HmsError, fx: Effects) -> None:
        number, correlation = waiting.session.connection.number, waiting.correlation
        fx.out.append(Refusal(number, correlation, error.with_traceback(None)))

    def _remove(self, waiting: Waiting) -> None:
        if waiting.is_over:
            return
        waiting.is_over = True
        self.size_bytes -= waiting.size
        self._over += 1
        if self._over > len(self._deadlines) // 2 + 64:  # they would keep their messages
            self._deadlines = [one for one in self._deadlines if not one[2].is_over]
            heapq.heapify(self._deadlines)
            self._over = 0
        for key in waiting.keys:
            line = self.lines[key]
            line.remove(waiting)
            if not line:
                del self.lines[key]
                self.slowed.pop(key, None)

    def count(self, key: Key) -> int:
        """How many wait for a destination."""
        return len(self.lines.get(key, ()))


def _before(timeout_ms: int) -> int:
    """The client hears of it before it gives up by itself."""
    return max(1, timeout_ms - max(50, min(2_000, timeout_ms // 5)))
