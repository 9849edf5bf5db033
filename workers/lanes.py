"""Lanes: work that stays in order within a lane and runs in parallel between lanes.

A lane is idle, ready or running. Putting into an idle lane makes it ready; a worker takes the lane
that is ready longest, with all that waits in it up to batch_max, and runs it; afterwards the lane
goes to the back of the ready ones if something waits, else it is gone. So one busy lane holds up
no other, and a lane is never with two workers.

A batch that has to wait for something is given back, and its lane is *parked* until go_on(): a
worker that waited would hold up the other lanes. One of which a turn's worth is done is given back
too, and its lane goes to the back of the ready ones.

No wake-up is lost, though a put wakes one worker at most: while a worker sleeps that nobody has
woken, there are at least as many woken workers as ready lanes, because each put that made a lane
ready has woken one, and a worker lies down only when no lane is ready.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from hms.workers.sleepers import Sleepers
from hms.workers.threads import OnFault, join_threads, report_fault, start_threads

__all__ = ["AGAIN", "PARK", "Handle", "LanePool"]

PARK = object()
"""Returned by a handle that has to wait: what is left in its list comes again, before the rest."""
AGAIN = object()
"""Returned by a handle that leaves the rest of its list for its lane's next turn."""
Handle = Callable[[Hashable, list[Any]], object]


class _Lane:
    """What waits under one key. is_scheduled: the lane is ready, running or parked. is_emptied: it
    was emptied while it ran."""

    __slots__ = ("is_emptied", "is_scheduled", "key", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.waiting: deque[Any] = deque()
        self.is_scheduled = self.is_emptied = False

    def take(self, batch_max: int) -> list[Any]:
        """The next batch."""
        self.is_emptied = False
        waiting = self.waiting
        if len(waiting) <= batch_max:
            batch = list(waiting)
            waiting.clear()
            return batch
        return [waiting.popleft() for _ in range(batch_max)]


class LanePool:
    """General workers, who handle a lane's items in order, one worker at a time.

    handle(key, items) has to catch what one item causes. What escapes from it goes to on_fault,
    the rest of that batch stays unhandled, and the worker goes on with the next lane.
    """

    def __init__(
        self,
        workers: int,
        handle: Handle,
        *,
        on_fault: OnFault,
        name: str = "hms-general",
        batch_max: int = 256,
        lane_max: int = 4096,
    ) -> None:
        if min(batch_max, lane_max) < 1:
            raise ValueError("batch_max and lane_max are at least 1")
        self._handle = handle
        self._on_fault = on_fault
        self._batch_max = batch_max
        self._lane_max = lane_max
        self._lanes: dict[Hashable, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._parked: list[_Lane] = []
        self._is_closing = False
        self._lock = threading.Lock()
        self._sleepers = Sleepers()
        self._threads = start_threads(name, workers, self._run)

    def put_many(self, key: Hashable, items: Sequence[Any]) -> bool:
        """Add items to the end of a lane.

        False, with nothing added, when it would hold more than lane_max or the pool is closing.
        """
        with self._lock:
            lane = self._lanes.get(key)
            waiting = 0 if lane is None else len(lane.waiting)
            if self._is_closing or waiting + len(items) > self._lane_max:
                return False
            chosen = self._add(lane or self._new_lane(key), items) if items else 0
        self._sleepers.wake(chosen)
        return True

    @property
    def is_quiet(self) -> bool:
        """Nothing waits: all that was put is in the workers' hands."""
        with self._lock:
            return not any(lane.waiting for lane in self._lanes.values())

    def go_on(self) -> None:
        """What parked lanes wait for may be there."""
        if not self._parked:
            return
        with self._lock:
            self._ready += self._parked
            self._parked.clear()
            chosen = self._sleepers.choose_all()
        self._sleepers.wake(chosen)

    def discard(self, key: Hashable) -> None:
        """Drop what waits in a lane; a batch that a worker has in hand is still finished, or does
        not come again."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is not None:
                lane.waiting.clear()
                lane.is_emptied = True

    def close(self, drain: bool, timeout_s: float) -> bool:
        """Take no more, finish all that waits (drain) or only what is in hand, end the workers.

        False when they are not done in timeout_s.
        """
        with self._lock:
            self._is_closing = True
            self._ready += self._parked
            self._parked.clear()
            if not drain:
                for lane in self._lanes.values():
                    lane.waiting.clear()
            chosen = self._sleepers.choose_all()
        self._sleepers.wake(chosen)
        return join_threads(self._threads, timeout_s)

    def _new_lane(self, key: Hashable) -> _Lane:
        lane = self._lanes[key] = _Lane(key)
        return lane

    def _add(self, lane: _Lane, items: Sequence[Any]) -> int:
        lane.waiting.extend(items)
        if lane.is_scheduled:
            return 0
        lane.is_scheduled = True
        self._ready.append(lane)
        return self._sleepers.choose()

    def _run(self) -> None:
        lane: _Lane | None = None
        rest: list[Any] = []
        must_wait = False
        while (taken := self._take_turn(lane, rest, must_wait=must_wait)) is not None:
            lane, batch = taken
            rest, must_wait = [], False
            try:
                outcome = self._handle(lane.key, batch)
                must_wait = outcome is PARK
                if must_wait or outcome is AGAIN:
                    rest = batch
            except BaseException as fault:  # noqa: BLE001 - reported, and the pool lives
                report_fault(self._on_fault, fault, f"lane {lane.key!r}")
            del batch, taken  # a sleeping worker keeps no message alive

    def _take_turn(
        self, done: _Lane | None, rest: list[Any], *, must_wait: bool
    ) -> tuple[_Lane, list[Any]] | None:
        """Give one lane back and take the next, under one hold of the lock; None at the end."""
        while True:
            with self._lock:
                if done is not None:
                    self._give_back(done, rest, must_wait=must_wait)
                    done, rest = None, []
                if (lane := self._next_lane()) is not None:
                    return lane, lane.take(self._batch_max)
                if self._is_closing:
                    return None
                self._sleepers.lie_down()
            self._sleepers.sleep()

    def _next_lane(self) -> _Lane | None:
        while self._ready:
            lane = self._ready.popleft()
            if lane.waiting:
                return lane
            del self._lanes[lane.key]  # it was discarded while it was ready
        return None

    def _give_back(self, lane: _Lane, rest: list[Any], *, must_wait: bool) -> None:
        if not lane.is_emptied:
            lane.waiting.extendleft(reversed(rest))
        if must_wait and not self._is_closing:
            self._parked.append(lane)
        elif lane.waiting:
            self._ready.append(lane)
        else:
            del self._lanes[lane.key]
