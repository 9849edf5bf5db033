"""What takes too long for a page: commands of hms in processes of their own, one at a time.

A page that has one begun is answered at once; it, or another, shows what became of it later.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Run", "Runs"]

KEPT_MAX = 100
FAULT_CHARACTERS = 1000
STOP_S = 10.0


@dataclass(slots=True)
class Run:
    """code: the exit code, None while it goes on; said: its answer in JSON; fault: or why it has
    none."""

    began_s: float
    code: int | None = None
    ended_s: float = 0.0
    said: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


class Runs:
    """From any thread. clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._runs: dict[str, Run] = {}

    def begin(self, key: str, words: Sequence[str]) -> bool:
        """Whether it was begun: not while another one goes on."""
        with self._lock:
            if self._process is not None:
                return False
            run = Run(self._clock())
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            except OSError as fault:
                run.code, run.ended_s, run.fault = -1, self._clock(), str(fault)
            self._runs.pop(key, None)
            self._runs[key] = run
            while len(self._runs) > KEPT_MAX:
                del self._runs[next(iter(self._runs))]
            if self._process is not None:
                target = threading.Thread(target=self._wait, args=(self._process, run))
                target.daemon = True
                self._thread = target
                target.start()
            return True

    def of(self, key: str) -> Run | None:
        """The last one of that name."""
        with self._lock:
            return self._runs.get(key)

    def close(self) -> None:
        """What goes on is ended."""
        with self._lock:
            process, thread = self._process, self._thread
        if process is not None and thread is not None:
            process.kill()
            thread.join(STOP_S)

    def _wait(self, process: "subprocess.Popen[str]", run: Run) -> None:
        said, fault = process.communicate()
        with self._lock:
            try:
                run.said = json.loads(said)
            except ValueError:
                run.fault = fault.strip()[-FAULT_CHARACTERS:] or "it was ended"
            run.ended_s, run.code = self._clock(), process.returncode
            self._process = None
