"""A command that is run when an alert begins and when it ends: it pages somebody.

One runs at a time, in the order of what happened. One that fails is tried again; an alert that has
ended before its begin was told is not told at all. That the command fails is an alert too, which
is not told by it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from hms.client.core.log_lines import escaped

__all__ = ["NOT_TOLD", "AlertCommand", "Change"]

NOT_TOLD = "alert_not_told"
"""The alert of a command that fails."""
COMMAND_S = 30.0
AGAIN_S = 60.0
WAITING_MAX = 100
TEXT_MAX = 1000


class Change(NamedTuple):
    """An alert begins or ends; destination: "" for one of the node."""

    begins: bool
    name: str
    destination: str
    text: str


class AlertCommand:
    """words: a program and what it gets first; behind it begins or ends, the node's name, that of
    the alert, the destination, "" for none, and the text. put() from any thread; look() is called
    every second by one."""

    def __init__(
        self,
        node: str,
        words: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._words, self._environment = node, tuple(words), environment
        self._monotonic = monotonic
        self._lock = Lock()
        self._waiting: deque[Change] = deque()
        self._left_out = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._until_s, self._due_s = 0.0, float("-inf")
        self._failed = ""

    @property
    def fault(self) -> str:
        """Why the last one was not told; "" when it was."""
        left_out = self._left_out
        more = f"; {left_out} others were left out" if left_out else ""
        return f"{self._failed}{more}" if self._failed else ""

    def put(self, change: Change) -> None:
        """It is told soon, behind those before it."""
        if not self._words or change.name == NOT_TOLD:
            return
        with self._lock:
            if not change.begins and self._is_begin_withdrawn(change):
                return
            if len(self._waiting) >= WAITING_MAX:
                self._left_out += 1
                return
            self._waiting.append(change)

    def look(self) -> None:
        """See what became of the one that runs, and start the next."""
        now_s = self._monotonic()
        if self._process is not None:
            self._look_at(self._process, now_s)
        if self._process is None and self._waiting and now_s >= self._due_s:
            self._until_s = now_s + COMMAND_S
            try:
                self._process = self._started(self._waiting[0])
            except (OSError, ValueError) as fault:
                self._ended(f"{self._words[0]}: {getattr(fault, 'strerror', None) or fault}", now_s)

    def close(self) -> None:
        """Nothing more is told."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # and what it began
            self._process.wait()

    def _is_begin_withdrawn(self, end: Change) -> bool:
        """Whether the begin was still to be told; not of the one that is being told."""
        for at in range(self._process is not None, len(self._waiting)):
            one = self._waiting[at]
            if one.begins and (one.name, one.destination) == (end.name, end.destination):
                del self._waiting[at]
                return True
        return False

    def _started(self, change: Change) -> "subprocess.Popen[bytes]":
        what = "begins" if change.begins else "ends"
        text = escaped(change.text.replace("\n", " "))[:TEXT_MAX]
        about = [what, self._node, change.name, escaped(change.destination), text]
        return subprocess.Popen(  # noqa: S603 - the configuration names it
            [*self._words, *about],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(self._environment()),
            start_new_session=True,
        )

    def _look_at(self, process: "subprocess.Popen[bytes]", now_s: float) -> None:
        if (code := process.poll()) is not None:
            self._process = None
            self._ended(f"{self._words[0]} ended with {code}" if code else "", now_s)
        elif now_s >= self._until_s:
            self.close()
            self._process = None
            self._ended(f"{self._words[0]} took more than {COMMAND_S:g} s", now_s)

    def _ended(self, fault: str, now_s: float) -> None:
        self._failed = fault
        if fault:
            self._due_s = now_s + AGAIN_S
            return
        with self._lock:
            self._waiting.popleft()
            self._left_out = 0
