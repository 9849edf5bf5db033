"""What takes too long for a page: commands of hms in processes of their own, one at a time.

A page that has one begun is answered at once; it, or another, shows what became of it later.
A command may ask for what it has no right to do itself, and say how far it is: each in a line of
JSON. The rest of what it says is its answer.
"""

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = ["Run", "Runs"]

KEPT_MAX = 100
FAULT_CHARACTERS = 1000
STOP_S = 10.0
Answers = Callable[[], Mapping[str, Any]]


@dataclass(slots=True)
class Run:
    """code: the exit code, None while it goes on; progress: what it said last of how far it is;
    said: its answer in JSON; fault: or why it has none."""

    began_s: float
    code: int | None = None
    ended_s: float = 0.0
    progress: dict[str, Any] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


def _nothing(_pid: int) -> None:
    """Nothing is left to do."""


class Runs:
    """From any thread. clock: seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._runs: dict[str, Run] = {}

    @property
    def is_busy(self) -> bool:
        """Whether one goes on."""
        with self._lock:
            return self._process is not None

    def begin(
        self,
        key: str,
        words: Sequence[str],
        answers: Answers | None = None,
        ended: Callable[[int], None] = _nothing,
    ) -> bool:
        """Whether it was begun: not while another one goes on. answers: what it is told when it
        asks; ended: is called with the number of its process when that is over."""
        with self._lock:
            if self._process is not None:
                return False
            run = Run(self._clock())
            self._runs.pop(key, None)
            self._runs[key] = run
            while len(self._runs) > KEPT_MAX:
                del self._runs[next(iter(self._runs))]
            try:
                process, faults = _started(words, is_answered=answers is not None)
            except OSError as fault:
                run.code, run.ended_s, run.fault = -1, self._clock(), str(fault)
                return True
            about = process, run, faults, answers, ended
            self._process = process
            self._thread = threading.Thread(target=self._wait, args=about, daemon=True)
            self._thread.start()
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

    def _wait(
        self,
        process: "subprocess.Popen[str]",
        run: Run,
        faults: IO[str],
        answers: Answers | None,
        ended: Callable[[int], None],
    ) -> None:
        with process, faults:
            said = "".join(_rest(process, run, answers))
            process.wait()
            faults.seek(0)
            fault = faults.read()
        ended(process.pid)
        with self._lock:
            try:
                run.said = json.loads(said)
            except ValueError:
                run.fault = fault.strip()[-FAULT_CHARACTERS:] or "it was ended"
            run.ended_s, run.code = self._clock(), process.returncode
            self._process = None


def _started(words: Sequence[str], *, is_answered: bool) -> "tuple[subprocess.Popen[str], IO[str]]":
    """The process, and the file with what it says of faults."""
    faults = tempfile.TemporaryFile("w+", prefix="hms-web-")  # noqa: SIM115 - the thread closes it
    try:
        process = subprocess.Popen(  # noqa: S603
            words,
            stdin=subprocess.PIPE if is_answered else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=faults,
            text=True,
        )
    except OSError:
        faults.close()
        raise
    return process, faults


def _rest(process: "subprocess.Popen[str]", run: Run, answers: Answers | None) -> list[str]:
    """What it says that is neither a question nor how far it is."""
    assert process.stdout is not None
    rest = []
    for line in process.stdout:
        said = None if answers is None else _object(line)
        if answers is not None and said is not None and "ask" in said:
            assert process.stdin is not None
            with suppress(OSError):  # it did not wait for the answer
                process.stdin.write(f"{json.dumps(answers())}\n")
                process.stdin.flush()
        elif said is not None and "total" in said:
            run.progress = said
        else:
            rest.append(line)
    return rest


def _object(line: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        said = json.loads(line)
        return said if isinstance(said, dict) else None
    return None
