"""Blocked: sends and commits that wait for room at the node (F-C11, F-C14).

Theory of operation. What finds a destination full under FLOW_CONTROL, or paused, is kept here, as
it came, and is tried again whenever something has changed. Those for one destination stand in a
line in the order in which they came (P4): nobody overtakes, so what a session sends to one
destination stays in order. A commit stands in the line of each destination that it sends to, and
goes when it is first in all of them. Nobody waits for them: no worker, no lock; acknowledgements
and other destinations go on (P10). Each has a time at which it is refused; what is kept is bounded
in bytes (P8). Nothing of it is in the log: after a crash the client sends again, or is told.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from field_buffer.catalogue import FlowControlTimeout
from field_buffer.errors import FieldValue, HmsError
from hms.engine.effects import Effects, Refusal

if TYPE_CHECKING:
    from hms.engine.sessions import Producer, Session
    from hms.engine.state import State

Key = tuple[str, str]
"""A queue by its name, a topic by its topic string."""


class Obstacle(NamedTuple):
    """Why there is no room. late: the error of who waited; its other fields are filled in then."""

    refusal: HmsError
    may_wait: bool
    late: type[HmsError]
    fields: Mapping[str, FieldValue]

    def error_after(self, waited_ms: int, blocked: int) -> HmsError:
        """What a send is told that waited so long, and so many with it."""
        waited_s = round(waited_ms / 1000, 1)
        return self.late(**dict(self.fields) | {"waited_s": waited_s, "blocked": blocked})


class Waiting:
    """A send or a commit that waits; `session` and `producer` are those it belongs to."""

    __slots__ = (
        "correlation",
        "is_over",
        "keys",
        "producer",
        "session",
        "since_ms",
        "size",
        "until_ms",
    )

    def __init__(
        self,
        session: "Session",
        producer: "Producer | None",
        correlation: int,
        keys: tuple[Key, ...],
        size: int,
    ) -> None:
        self.session = session
        self.producer = producer
        self.correlation = correlation
        self.keys = keys
        self.size = size
        self.since_ms = 0
        self.until_ms = 0
        self.is_over = False

    def obstacle(self, state: "State") -> Obstacle | None:
        """What is still in its way; an error that no waiting can cure is raised."""
        raise NotImplementedError

    def take(self, state: "State", fx: Effects) -> None:
        """There is room: do it, and answer."""
        raise NotImplementedError

    def give_up(self) -> None:
        """It is refused, or nobody asks for it any more: nothing of it was done."""


class Blocked:
    """All that waits. lines: by destination, each in the order in which they came."""

    def __init__(self) -> None:
        self.lines: dict[Key, deque[Waiting]] = {}
        self.size_bytes = 0
        self._deadlines: list[tuple[int, int, Waiting]] = []
        self._added = 0

    @property
    def due_ms(self) -> int | None:
        """When the next one has waited long enough."""
        while self._deadlines and self._deadlines[0][2].is_over:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def must_wait(self, state: "State", waiting: Waiting) -> bool:
        """Whether it stands in line now; raises what it is refused with instead."""
        is_behind = bool(self.lines) and any(key in self.lines for key in waiting.keys)
        obstacle = waiting.obstacle(state)
        if obstacle is None and not is_behind:
            return False
        if obstacle is not None and not obstacle.may_wait:
            raise obstacle.refusal
        if self.size_bytes + waiting.size > state.settings.blocked_bytes_max:
            raise (obstacle or self._first_obstacle(state, waiting)).error_after(0, self._count)
        self._add(state, waiting)
        return True

    def _first_obstacle(self, state: "State", waiting: Waiting) -> Obstacle:
        """What is in the way of those that stand before it."""
        for key in waiting.keys:
            for ahead in self.lines.get(key, ()):
                found = ahead.obstacle(state)
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

    def _add(self, state: "State", waiting: Waiting) -> None:
        limit_ms = state.settings.blocked_ms_max
        own_ms = waiting.session.connection.request_timeout_ms
        waiting.since_ms = state.now_ms
        waiting.until_ms = state.now_ms + min(limit_ms, _before(own_ms) if own_ms else limit_ms)
        self.size_bytes += waiting.size
        self._added += 1
        for key in waiting.keys:
            self.lines.setdefault(key, deque()).append(waiting)
        heapq.heappush(self._deadlines, (waiting.until_ms, self._added, waiting))

    @property
    def _count(self) -> int:
        return sum(map(len, self.lines.values()))

    # ---- trying again

    def retry(self, state: "State", fx: Effects) -> None:
        """Let those go for which there is room now."""
        goes_on = True
        while goes_on:
            goes_on = False
            for key in list(self.lines):
                while (line := self.lines.get(key)) and self._is_first(line[0]):
                    if not self._tried(state, line[0], fx):
                        break
                    goes_on = True

    def _is_first(self, waiting: Waiting) -> bool:
        return all(self.lines[key][0] is waiting for key in waiting.keys)

    def _tried(self, state: "State", waiting: Waiting, fx: Effects) -> bool:
        """Whether it stands there no more."""
        try:
            obstacle = waiting.obstacle(state)
            if obstacle is not None and obstacle.may_wait:
                return False
            self._remove(waiting)
            if obstacle is not None:
                raise obstacle.refusal
            waiting.take(state, fx)
        except HmsError as error:
            self._give_up(waiting, error, fx)
        return True

    def expire(self, state: "State", fx: Effects) -> None:
        """Refuse those that have waited long enough."""
        self.retry(state, fx)
        while self._deadlines and self._deadlines[0][0] <= state.now_ms:
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.is_over:
                self._give_up(waiting, self._late(state, waiting), fx)

    def _late(self, state: "State", waiting: Waiting) -> HmsError:
        try:
            obstacle = waiting.obstacle(state) or self._first_obstacle(state, waiting)
        except HmsError as error:
            return error
        return obstacle.error_after(state.now_ms - waiting.since_ms, self._count)

    # ---- leaving

    def drop(
        self,
        error: HmsError | None,
        fx: Effects,
        session: "Session",
        producer: "Producer | None" = None,
    ) -> None:
        """A session or one of its producers ends. error: what those who wait are told; None when
        there is nobody to tell."""
        if not self.lines:
            return
        every = dict.fromkeys(waiting for line in self.lines.values() for waiting in line)
        for waiting in every:
            if waiting.session is session and producer in (None, waiting.producer):
                self._give_up(waiting, error, fx)

    def _give_up(self, waiting: Waiting, error: HmsError | None, fx: Effects) -> None:
        self._remove(waiting)
        waiting.give_up()
        if error is not None:
            number, correlation = waiting.session.connection.number, waiting.correlation
            fx.out.append(Refusal(number, correlation, error))

    def _remove(self, waiting: Waiting) -> None:
        if waiting.is_over:
            return
        waiting.is_over = True
        self.size_bytes -= waiting.size
        for key in waiting.keys:
            line = self.lines[key]
            line.remove(waiting)
            if not line:
                del self.lines[key]

    def count(self, key: Key) -> int:
        """How many wait for a destination."""
        return len(self.lines.get(key, ()))


def _before(timeout_ms: int) -> int:
    """The client hears of it before it gives up by itself."""
    return max(1, timeout_ms - max(50, min(2_000, timeout_ms // 5)))
