"""The node's scheduler: APScheduler, whose times move along when the machine's clock is set.

APScheduler keeps times of the wall clock. After the clock was set back by an hour nothing would be
due for an hour: no expiry, no delayed message, no heartbeat.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_STOPPED

__all__ = ["EvenScheduler", "after_ms"]

LOOKS_EVERY_S: Final = 1.0
STEP_S: Final = 0.2
"""A smaller change is left to the wall clock: time services correct so little all the time."""


TIMER_MS_MAX: Final = 3_600_000
"""A later one is not needed, for the node looks every second."""


def after_ms(left_ms: int) -> datetime:
    """The time for a timer: so much from now, but no later than any calendar knows."""
    return datetime.now(UTC) + timedelta(milliseconds=min(left_ms, TIMER_MS_MAX))


def _ahead_s() -> float:
    """How far the wall clock is ahead of the one that is never set."""
    return time.time() - time.monotonic()


class EvenScheduler(BackgroundScheduler):  # type: ignore[misc]
    """Runs jobs after the time that really passed. on_fault: told why it can do so no more."""

    def __init__(self, on_fault: Callable[[BaseException], None]) -> None:
        super().__init__(timezone="UTC")
        self._on_fault = on_fault

    def _main_loop(self) -> None:
        try:
            self._run_jobs()
        except Exception as fault:  # noqa: BLE001 - told
            self._on_fault(fault)

    def _run_jobs(self) -> None:
        ahead_s, wait_s = _ahead_s(), None
        while self.state != STATE_STOPPED:
            self._event.wait(LOOKS_EVERY_S if wait_s is None else min(wait_s, LOOKS_EVERY_S))
            self._event.clear()
            step_s = _ahead_s() - ahead_s
            if abs(step_s) > STEP_S:
                ahead_s += step_s
                self._move(timedelta(seconds=step_s))
            wait_s = self._process()

    def _process(self) -> float | None:
        """Run what is due; a shutdown that takes a job away meanwhile is no fault."""
        try:
            wait_s: float | None = self._process_jobs()
        except JobLookupError:
            if self.state != STATE_STOPPED:
                raise
            return None
        return wait_s

    def _move(self, step: timedelta) -> None:
        """Every job is due as much later on the clock as the clock was set."""
        with self._jobstores_lock:
            jobs: list[Any] = self.get_jobs()
            for job in jobs:
                if job.next_run_time is not None:
                    job.modify(next_run_time=job.next_run_time + step)
