"""Lanes: work that stays in order within a lane and runs in parallel between lanes.

A lane is idle, ready or running. Putting into an idle lane makes it ready; a worker takes the lane
that is ready longest, with all that waits in it up to batch_max, and runs it; afterwards the lane
goes to the back of the ready ones if something waits, else it is gone. So one busy lane holds up
no other, and a lane is never with two workers.

A lane that becomes ready by put_late() stands among the *late* ones: one of them is taken after
EARLY_MAX of the others, or when no other is ready. So thousands of clients that are lost at once do
not stand before those that are there.

A batch that has to wait for something is given back, and its lane is *parked* until go_on(): a
worker that waited would hold up the other lanes. One of which a turn's worth is done is given back
too, and its lane goes to the back of the ready ones.

Where no lane has anything to do, who has items may handle them itself (run_here): no worker has
the lane meanwhile.

No wake-up is lost, though a put wakes one worker at most: while a worker sleeps that nobody has
woken, there are at least as many woken workers as ready lanes, because each put that made a lane
ready has woken one, and a worker lies down only when no lane is ready.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from hms.workers.load import PoolLoad
from hms.workers.sleepers import Sleepers
from hms.workers.threads import OnFault, join_threads, report_fault, start_threads

__all__ = ["AGAIN", "PARK", "Handle", "LanePool"]

PARK = object()
"""Returned by a handle that has to wait: what is left in its list comes again, before the rest."""
AGAIN = object()
"""Returned by a handle that leaves the rest of its list for its lane's next turn."""
Handle = Callable[[Hashable, list[Any]], object]


_NO_LANE = object()
EARLY_MAX = 8
"""Number of other lanes that have their turn before a late one."""


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
        self._lanes: dict[Hashable, deque[Any]] = {}
        """What waits in the lanes that are ready, running or parked."""
        self.busy: Mapping[Hashable, object] = self._lanes
        """Those lanes."""
        self._ready: deque[Hashable] = deque()
        self._late: deque[Hashable] = deque()
        self._is_late: set[Hashable] = set()
        """Lanes that are queued as late ones whenever they are ready."""
        self._early_count = 0
        """How many lanes had their turn since the last late one."""
        self._parked: list[Hashable] = []
        self._emptied: set[Hashable] = set()
        """Lanes that were emptied while they were running."""
        self._waiting_count = 0
        self._is_closing = False
        self._lock = threading.Lock()
        self._sleepers = Sleepers()
        self.hands = [0] * workers
        """For each worker: number of batches taken plus batches finished; odd while it has one."""
        self._numbers = iter(range(workers))
        self._threads = start_threads(name, workers, self._run)

    def put_late(self, key: Hashable, items: Sequence[Any]) -> bool:
        """As put_many(), of what is not urgent: a lane in which nothing else waits has its turn
        behind others."""
        return self.put_many(key, items, is_late=True)

    def put_many(self, key: Hashable, items: Sequence[Any], *, is_late: bool = False) -> bool:
        """Add items to the end of a lane.

        False, with nothing added, when it would hold more than lane_max or the pool is closing.
        """
        count = len(items)
        with self._lock:
            lane = self._lanes.get(key)
            waiting = 0 if lane is None else len(lane)
            if self._is_closing or waiting + count > self._lane_max:
                return False
            chosen = 0
            self._waiting_count += count
            if lane is not None:
                lane.extend(items)
            elif count:
                self._lanes[key] = deque(items)
                if is_late:
                    self._is_late.add(key)
                (self._late if is_late else self._ready).append(key)
                if self._sleepers.count:  # choose(), in place
                    self._sleepers.count -= 1
                    chosen = 1
        if chosen:
            self._sleepers.wake(chosen)
        return True

    def run_here(
        self, key: Hashable, items: list[Any], handle: Callable[[Hashable, list[Any]], object]
    ) -> bool:
        """Handle items in the thread that has them, as a worker would, if no lane has anything to
        do; False, with nothing done, when one has. It spares two hand-overs between threads.
        handle takes out of the list what is done; the rest is left for the lane's next turn."""
        with self._lock:
            if self._lanes or self._is_closing:
                return False
            self._lanes[key] = deque()
        try:
            handle(key, items)
        except BaseException as fault:  # noqa: BLE001 - as in _run()
            items.clear()
            report_fault(self._on_fault, fault, f"lane {key!r}")
        with self._lock:
            if items:
                self._put_back(key, items, must_wait=False)
            elif self._lanes[key]:  # it was put into meanwhile
                self._stand(key)
            else:
                del self._lanes[key]  # _end(), in place
                self._emptied.discard(key)
                self._is_late.discard(key)
            chosen = self._sleepers.choose() if self._ready or self._late else 0
        if chosen:
            self._sleepers.wake(chosen)
        return True

    def is_quiet(self) -> bool:
        """Whether no item waits: workers have taken all of them."""
        return not self._waiting_count

    def load(self) -> PoolLoad:
        """At this moment. From any thread; it counts nothing that is not kept anyway."""
        with self._lock:
            lanes = list(self._lanes.values())
            workers, asleep, waiting = len(self.hands), self._sleepers.count, self._waiting_count
        return PoolLoad(workers, workers - asleep, waiting, max(map(len, lanes), default=0))

    def go_on(self) -> None:
        """Make the parked lanes ready again: what they wait for may have come."""
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
                self._waiting_count -= len(lane)
                lane.clear()
                self._emptied.add(key)

    def close(self, drain: bool, timeout_s: float) -> bool:
        """Take no more, finish all that waits (drain) or only what is in hand, end the workers.

        False when they are not done in timeout_s.
        """
        with self._lock:
            self._is_closing = True
            self._ready += self._parked
            self._parked.clear()
            if not drain:
                self._waiting_count = 0
                for lane in self._lanes.values():
                    lane.clear()
            chosen = self._sleepers.choose_all()
        self._sleepers.wake(chosen)
        return join_threads(self._threads, timeout_s)

    def _run(self) -> None:
        hands, me = self.hands, next(self._numbers)
        key: Hashable = _NO_LANE
        rest: list[Any] = []
        must_wait = False
        while (taken := self._take_turn(key, rest, must_wait=must_wait)) is not None:
            key, batch = taken
            rest, must_wait = [], False
            hands[me] += 1
            try:
                outcome = self._handle(key, batch)
                must_wait = outcome is PARK
                if must_wait or outcome is AGAIN:
                    rest = batch
            except BaseException as fault:  # noqa: BLE001 - reported, and the pool lives
                report_fault(self._on_fault, fault, f"lane {key!r}")
            hands[me] += 1
            del batch, taken  # a sleeping worker keeps no message alive

    def _take_turn(
        self, done: Hashable, rest: list[Any], *, must_wait: bool
    ) -> tuple[Hashable, list[Any]] | None:
        """Give one lane back and take the next, under one hold of the lock; None at the end."""
        lanes, ready = self._lanes, self._ready
        while True:
            with self._lock:
                if done is not _NO_LANE:
                    if rest:
                        self._put_back(done, rest, must_wait=must_wait)
                    elif lanes[done]:
                        self._stand(done)
                    else:  # _end(), in place
                        del lanes[done]
                        self._emptied.discard(done)
                        self._is_late.discard(done)
                    done, rest = _NO_LANE, []
                while ready or self._late:
                    if self._late:
                        key = self._next()
                    else:
                        self._early_count += 1
                        key = ready.popleft()
                    self._emptied.discard(key)
                    if lane := lanes[key]:
                        if len(lane) <= self._batch_max:
                            batch = list(lane)
                            lane.clear()
                        else:
                            batch = [lane.popleft() for _ in range(self._batch_max)]
                        self._waiting_count -= len(batch)
                        return key, batch
                    self._end(key)  # it was discarded while it was ready
                if self._is_closing:
                    return None
                self._sleepers.count += 1
            self._sleepers.sleep()

    def _put_back(self, key: Hashable, rest: list[Any], *, must_wait: bool) -> None:
        """Put back what comes again, unless the lane was emptied meanwhile."""
        lane = self._lanes[key]
        if key not in self._emptied:
            lane.extendleft(reversed(rest))
            self._waiting_count += len(rest)
        if must_wait and not self._is_closing:
            self._parked.append(key)
        elif lane:
            self._stand(key)
        else:
            self._end(key)

    def _stand(self, key: Hashable) -> None:
        """A lane is ready."""
        (self._late if key in self._is_late else self._ready).append(key)

    def _next(self) -> Hashable:
        """The lane whose turn it is; there is one."""
        if self._late and (not self._ready or self._early_count >= EARLY_MAX):
            self._early_count = 0
            return self._late.popleft()
        self._early_count += 1
        return self._ready.popleft()

    def _end(self, key: Hashable) -> None:
        """Forget a lane that is empty."""
        del self._lanes[key]
        self._emptied.discard(key)
        self._is_late.discard(key)
