"""Storage workers: one of them leads the log, the others do what else the disk has to do.

Leading is a role, not a thread: a free worker takes it when the log has work, writes until
nothing is left, and steps down. Who put the only work into the log may take it for one turn
(lead_here), which saves waking another. `_has_work` is cleared *before* the log is looked at, so a
notify that comes during the last look is seen before stepping down. Jobs never take the last
worker, since a confirmation must not wait behind a page-in; only a pool of one does both in turn.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from hms.workers.lingering import Linger
from hms.workers.load import PoolLoad
from hms.workers.sleepers import Sleepers
from hms.workers.threads import OnFault, join_threads, report_fault, start_threads

__all__ = ["StoragePool"]

LINGER_S = 0.01
"""Longest time between notify_later() and the next look at the log."""
Task = Callable[[], None]


class StoragePool:
    """lead() writes and syncs what waits in the log; it tells whether there may be more.

    A fault in lead() goes to on_fault, and nobody leads again: what a failed sync left on the disk
    is not known, and a repeated one would report success (P7). A fault in a job only goes to
    on_fault.
    """

    def __init__(
        self,
        workers: int,
        lead: Callable[[], bool],
        *,
        on_fault: OnFault,
        name: str = "hms-storage",
        jobs_max: int = 1024,
    ) -> None:
        self._lead = lead
        self._on_fault = on_fault
        self._jobs: deque[Task] = deque()
        self._jobs_max = jobs_max
        self._jobs_running = 0
        self._jobs_running_max = max(1, workers - 1)
        self._has_work = False
        self.is_led = False
        """Whether a worker leads the log; stays true after a failure."""
        self._is_closing = False
        self._is_draining = True
        self._lock = threading.Lock()
        self._sleepers = Sleepers()
        self._threads = start_threads(name, workers, self._run)
        self._linger = Linger(LINGER_S, self.lead_here, f"{name}-linger")

    def notify(self) -> None:
        """Report that the log has work. Cheap when that is known; never missed."""
        if self._has_work:  # the next leader has not looked at the log yet
            return
        with self._lock:
            self._has_work = True
            chosen = 0 if self.is_led else self._sleepers.choose()
        self._sleepers.wake(chosen)

    def lead_here(self) -> None:
        """As notify(), but when nobody leads the caller does, for one turn, and wakes nobody.

        A hand-over to a sleeping thread and back takes about as long as half a sync.
        """
        with self._lock:
            if self.is_led or self._is_closing:
                self._has_work = True
                return
            self.is_led, self._has_work = True, False
        try:
            self._lead()
        except BaseException as fault:  # noqa: BLE001 - reported; is_led stays, so nobody retries
            report_fault(self._on_fault, fault, "leading the log")
            return
        with self._lock:
            self.is_led = False
            chosen = self._sleepers.choose() if self._has_work else 0
        if chosen:
            self._sleepers.wake(chosen)

    def notify_later(self) -> None:
        """As notify(), for work that no caller waits for: it may take up to LINGER_S."""
        self._linger.want()

    def submit(self, job: Task) -> bool:
        """Run a job on a worker that does not lead; False when jobs_max wait or the pool closes."""
        with self._lock:
            if self._is_closing or len(self._jobs) >= self._jobs_max:
                return False
            self._jobs.append(job)
            chosen = self._sleepers.choose()
        self._sleepers.wake(chosen)
        return True

    def load(self) -> PoolLoad:
        """At this moment, from any thread. Who leads the log without being a worker is not in it,
        nor is the log: only jobs wait in a queue."""
        with self._lock:
            workers, asleep, jobs = len(self._threads), self._sleepers.count, len(self._jobs)
        return PoolLoad(workers, workers - asleep, jobs, jobs)

    def close(self, drain: bool, timeout_s: float) -> bool:
        """Finish log and jobs that wait (drain) or only what is in hand, and end the workers.

        False when they are not done in timeout_s.
        """
        is_over = self._linger.close(timeout_s)
        with self._lock:
            self._has_work = True  # what lingered
            self._is_closing = True
            self._is_draining = drain
            if not drain:
                self._jobs.clear()
            chosen = self._sleepers.choose_all()
        self._sleepers.wake(chosen)
        return join_threads(self._threads, timeout_s) and is_over

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            task()

    def _next_task(self) -> Task | None:
        """What to do next; None when the pool closes and nothing is left to take."""
        while True:
            with self._lock:
                task = self._take_task()
                if task is not None or self._is_closing:
                    return task
                self._sleepers.count += 1
            self._sleepers.sleep()

    def _take_task(self) -> Task | None:
        """The next task: leading comes before jobs."""
        if self._has_work and not self.is_led and self._is_draining:
            self.is_led = True
            return self._lead_log
        if self._jobs and self._jobs_running < self._jobs_running_max:
            self._jobs_running += 1
            return partial(self._run_job, self._jobs.popleft())
        return None

    def _lead_log(self) -> None:
        try:
            is_leading = True
            while is_leading:
                self._has_work = False
                while self._lead() and self._is_draining:
                    pass
                is_leading = self._keep_leading()
        except BaseException as fault:  # noqa: BLE001 - reported; is_led stays, so nobody retries
            report_fault(self._on_fault, fault, "leading the log")

    def _keep_leading(self) -> bool:
        with self._lock:
            self.is_led = self._has_work and self._is_draining
            return self.is_led

    def _run_job(self, job: Task) -> None:
        try:
            job()
        except BaseException as fault:  # noqa: BLE001 - reported, and the pool lives
            report_fault(self._on_fault, fault, f"job {job!r}")
        finally:
            with self._lock:
                self._jobs_running -= 1
