"""Anchors of the audit: number and hash of its last record, sent once an hour to where who changes
the store cannot reach them: to the system log, or by a command.

What is sent is durable: an anchor that a power cut took from the log would tell an older store.
What cannot be sent is an alert, and is tried again every minute.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["SYSLOG", "AuditAnchors", "Head"]

SYSLOG = "syslog"
SYSLOG_SOCKET = "/dev/log"
EVERY_S, AGAIN_S, COMMAND_S = 3600.0, 60.0, 30.0
_PRIORITY = 10 * 8 + 6
"""Of facility authpriv, for information."""


class Head(NamedTuple):
    """Of the audit: number, 0 for none, and hash of its last record; the log's last number then."""

    number: int
    hash: str
    lsn: int


class AuditAnchors:
    """way: the words of a command, to which the node's name and NUMBER:HASH are added, or SYSLOG
    alone; environment: of that command. look() is called every second by one thread."""

    def __init__(
        self,
        node: str,
        way: Sequence[str],
        head: Callable[[], Head],
        durable_lsn: Callable[[], int],
        environment: Callable[[], Mapping[str, str]],
        monotonic: Callable[[], float] = time.monotonic,
        syslog_socket: str = SYSLOG_SOCKET,
    ) -> None:
        self._node, self._way, self._syslog_socket = node, tuple(way), syslog_socket
        self._head, self._durable_lsn, self._environment = head, durable_lsn, environment
        self._monotonic = monotonic
        self._due_s = float("-inf")
        self._held: Head | None = None
        """What is sent when it is durable."""
        self._process: subprocess.Popen[bytes] | None = None
        self._until_s = 0.0
        self.fault = ""
        """Why the last one was not sent; "" when it was."""

    def look(self) -> None:
        """Send one when it is time; see what became of the one before."""
        now_s = self._monotonic()
        if self._process is not None:
            self._look_at(self._process, now_s)
            return
        if self._held is None and now_s >= self._due_s:
            head = self._head()
            self._held = head if head.number else None
        held = self._held
        if held is None or self._durable_lsn() < held.lsn:
            return
        self._held = None
        anchor = f"{held.number}:{held.hash}"
        try:
            if self._way == (SYSLOG,):
                self._tell_syslog(anchor)
                self._ended("", now_s)
            else:
                self._until_s = now_s + COMMAND_S
                self._process = self._started(anchor)
        except OSError as fault:
            self._ended(f"{self._way[0]}: {fault.strerror or fault}", now_s)

    def close(self) -> None:
        """Nothing more is sent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _tell_syslog(self, anchor: str) -> None:
        said = f"<{_PRIORITY}>hms[{os.getpid()}]: audit anchor {self._node} {anchor}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(0)  # a full system log must not keep the node's other looks
            out.connect(self._syslog_socket)
            out.send(said.encode())

    def _started(self, anchor: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - the configuration names it
            [*self._way, self._node, anchor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(self._environment()),
        )

    def _look_at(self, process: "subprocess.Popen[bytes]", now_s: float) -> None:
        if (code := process.poll()) is not None:
            self._process = None
            self._ended(f"{self._way[0]} ended with {code}" if code else "", now_s)
        elif now_s >= self._until_s:
            self.close()
            self._process = None
            self._ended(f"{self._way[0]} took more than {COMMAND_S:g} s", now_s)

    def _ended(self, fault: str, now_s: float) -> None:
        self.fault = fault
        self._due_s = now_s + (AGAIN_S if fault else EVERY_S)
