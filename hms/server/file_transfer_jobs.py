"""Jobs of file transfers: work for storage workers, of whom they have some only at once (F-F6).

To sync a large file takes long; the log's next segment must not wait for it behind ten of them.
"""

import threading
from collections import deque
from collections.abc import Callable

JOBS_AT_ONCE = 2

Job = Callable[[], None]
Submit = Callable[[Job], bool]


class TransferJobs:
    """Jobs in line; those of one line are done one after the other."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._running = 0

    def put(self, job: Job) -> None:
        """A job, done as soon as a worker is free."""
        with self._lock:
            self._jobs.append(job)
        self.go_on()

    def go_on(self) -> None:
        """What is in line is done, also when no worker was free when it came."""
        with self._lock:
            must_begin = bool(self._jobs) and self._running < JOBS_AT_ONCE
            self._running += must_begin
        if must_begin and not self._submit(self._run):
            with self._lock:  # the node stops, or has a thousand other things to do; a tick comes
                self._running -= 1

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            job()
