"""Login workers: threads that check passwords, and send refusals when their time has come.

They are outside the lanes, so a flood of logins delays logins only. At most queue_max wait, and as
many of users who have logged in from where they come before: those go first, or a flood of wrong
passwords at the default cost would have them wait for up to 20 s.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["LoginWorkers"]

log = logging.getLogger("hms.security")


class LoginWorkers:
    """count threads, started by the first job; delay_ms: the grid on which refusals are sent."""

    def __init__(
        self,
        count: int,
        queue_max: int,
        delay_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._jobs: deque[tuple[float, Callable[[], None]]] = deque()
        self._known: deque[tuple[float, Callable[[], None]]] = deque()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._threads: dict[int, threading.Thread] = {}
        self._began_at = threading.local()
        self._is_closed = False
        self.change(count, queue_max, delay_ms)

    def change(self, count: int, queue_max: int, delay_ms: int) -> None:
        """So many, and so on, from now on; what runs and what waits is done."""
        with self._condition:
            self._count, self._queue_max, self._delay_s = count, queue_max, delay_ms / 1000
            if self._threads:
                self._start()
            self._condition.notify_all()

    def submit(self, job: Callable[[], None], *, is_known: bool = False) -> bool:
        """Run a job; False when too many wait. is_known: before those that are not."""
        with self._condition:
            jobs = self._known if is_known else self._jobs
            if len(jobs) >= self._queue_max or self._is_closed:
                return False
            jobs.append((self._clock(), job))
            self._start()
            self._condition.notify()
            return True

    def submit_spare(self, job: Callable[[], None]) -> bool:
        """The same of a job that no login waits for; False when another one waits."""
        with self._condition:
            is_busy = bool(self._jobs or self._known)
        return not is_busy and self.submit(job)

    def at_next_multiple(self, call: Callable[[], None]) -> None:
        """Call at the next multiple of the delay, counted from when the job that asks came, or from
        now."""
        now = self._clock()
        began = getattr(self._began_at, "value", None) or now
        steps = int((now - began) / self._delay_s) + 1 if self._delay_s else 0
        with self._condition:
            if self._is_closed:
                return
            heapq.heappush(self._due, (began + steps * self._delay_s, next(self._order), call))
            self._start()
            self._condition.notify()

    def close(self) -> None:
        """No more; what waits is dropped."""
        with self._condition:
            self._is_closed = True
            self._jobs.clear()
            self._known.clear()
            self._due.clear()
            self._condition.notify_all()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(1.0)

    def _start(self) -> None:
        for number in range(self._count):
            if number not in self._threads:
                name = f"hms-login-{number}"
                made = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
                self._threads[number] = made
                made.start()

    def _run(self, number: int) -> None:
        while (work := self._next(number)) is not None:
            self._began_at.value, job = work
            try:
                job()
            except Exception:
                log.exception("a login could not be checked")
            finally:
                self._began_at.value = None

    def _next(self, number: int) -> tuple[float | None, Callable[[], None]] | None:
        """What is to be done next; None when it is over, or for a thread too many."""
        with self._condition:
            while not self._is_closed and number < self._count:
                wait_s = self._due[0][0] - self._clock() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    return None, heapq.heappop(self._due)[2]
                if self._known:
                    return self._known.popleft()
                if self._jobs:
                    return self._jobs.popleft()
                self._condition.wait(wait_s)
            del self._threads[number]
            return None
