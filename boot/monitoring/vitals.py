"""Vitals: a thread that tells, each second, how the node does: in its state file and to systemd.

It takes no lock of the node and asks none of its threads, so it goes on when they hang; what hangs
is seen by its counts (progress.py). When the whole process stands still the file becomes old, which
a probe sees too.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from hms.boot.monitoring.notify import Notifier
from hms.boot.monitoring.state_file import StateFile
from hms.boot.supervise import identify
from hms.server.progress import Progress

__all__ = ["Vitals"]

log = logging.getLogger("hms.node")

EVERY_S = 1.0
EXTEND_USEC = 60_000_000
"""While a boot comes on systemd gives it so much longer."""
STILL_S = 300.0
"""A boot that has read nothing for so long gets no more time. What takes long without a word of it
is the deletion of what waits, at a COLD boot, and a look at all files."""


class Vitals:
    """States: starting, recovering, standby, ready, draining, failed, stopped. is_watched: systemd
    has heard READY of this process already, as of one that stood by, and expects to hear of it."""

    def __init__(
        self,
        name: str,
        file: StateFile,
        watchdog_s: float,
        notifier: Notifier,
        *,
        is_watched: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._file = file
        self._watchdog_s = watchdog_s
        self._notifier = notifier
        self._is_watched, self._clock = is_watched, clock
        self._state = "starting"
        self._began_s = self._since_s = self._came_on_s = clock()
        process = identify(os.getpid())
        self._process = None if process is None else asdict(process)
        self._reason = ""
        self._done = self._total = 0
        self._recovery_s = 0.0
        self._progress: Progress | None = None
        self._alerts: Callable[[], list[dict[str, Any]]] = list
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_over = self._has_failed = False
        self._hung: list[str] = []
        self._thread = threading.Thread(target=self._run, name="hms-vitals", daemon=True)

    @property
    def state(self) -> str:
        """One of those."""
        return self._state

    @property
    def recovery_s(self) -> float:
        """How long the node took from its start until it was ready."""
        return self._recovery_s

    def start(self) -> None:
        """Tell for the first time, and go on."""
        self._tell()
        self._thread.start()

    def recovering(self, done: int, total: int) -> None:
        """So many bytes of the store are read."""
        self._done, self._total, self._came_on_s = done, total, self._clock()
        if self._state == "starting":
            self._enter("recovering")

    def stands_by(self, waits_for: str) -> None:
        """It has the store, and waits for other machines before it confirms anything."""
        self._reason, self._is_watched = waits_for, True
        self._notifier.say("READY=1", f"STATUS=stands by, waits for {waits_for}")
        self._enter("standby")

    def goes_on(self) -> None:
        """It waits no longer."""
        if self._state == "standby":
            self._reason = ""
            self._enter("starting")

    def ready(self, progress: Progress, alerts: Callable[[], list[dict[str, Any]]]) -> None:
        """The node works; what is to be looked at from now on."""
        self._progress, self._alerts = progress, alerts
        self._recovery_s = self._clock() - self._began_s
        self._notifier.say("READY=1", f"STATUS={self._name} is ready")
        self._enter("ready")

    def draining(self) -> None:
        """It takes no new work."""
        self._progress = None
        self._enter("draining")
        self._notifier.say("STOPPING=1", f"STATUS={self._name} drains")

    def failed(self, reason: str) -> None:
        """It stops, and does not know what is on the disk."""
        self._reason = reason[:500]
        self._enter("failed")
        self._notifier.say(f"STATUS=failed: {self._reason}".replace("\n", " "))

    def stop(self) -> None:
        """Say the last word."""
        if self._is_over:
            return
        self._is_over = True
        self._wake.set()
        if self._state != "failed":
            self._enter("stopped")
        self._file.close()

    def _enter(self, state: str) -> None:
        if self._state in ("failed", "stopped"):
            return
        self._state = state
        self._since_s = self._came_on_s = self._clock()
        self._tell()

    def _run(self) -> None:
        while not self._wake.wait(EVERY_S):
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            ages = {} if self._progress is None else self._progress.look()
            hung = sorted(name for name, age in ages.items() if age >= self._watchdog_s)
            if hung != self._hung:
                self._hung = hung
                if hung:
                    log.error("no progress for %g s: %s", self._watchdog_s, ", ".join(hung))
            self._write(ages, hung)
        if self._state in ("starting", "recovering"):
            words = [f"STATUS={self._status()}"]
            if self._clock() - self._came_on_s < STILL_S:
                words.append(f"EXTEND_TIMEOUT_USEC={EXTEND_USEC}")
                if self._is_watched:  # else systemd would begin to watch a boot by it
                    words.append("WATCHDOG=1")
            self._notifier.say(*words)
        elif not hung and self._state in ("ready", "standby"):
            self._notifier.say("WATCHDOG=1")

    def _status(self) -> str:
        if self._state != "recovering" or not self._total:
            return self._state
        return f"recovering {100 * self._done // self._total} %"

    def _write(self, ages: dict[str, float], hung: list[str]) -> None:
        now = time.monotonic()  # as health_of() has it
        said = {
            "node": self._name,
            "process": self._process,
            "state": self._state,
            "since_s": self._since_s,
            "began_s": self._began_s,
            "written_s": now,
            "watchdog_s": self._watchdog_s,
            "done_bytes": self._done,
            "total_bytes": self._total,
            "reason": self._reason,
            "hung": hung,
            "checks": {name: round(age, 3) for name, age in ages.items()},
            "alerts": self._alerts(),
        }
        try:
            self._file.write(said)
        except (OSError, ValueError) as fault:
            if not self._has_failed:
                self._has_failed = True
                log.warning("the state file cannot be written: %s", fault)
