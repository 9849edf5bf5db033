"""Where a process of ours writes its log: a descriptor, whole lines, no error for who logs.

A line is one write, so that lines of several processes in one file do not mix. What cannot be
written, as on a full disk, is counted, and the count is told as soon as there is room.
"""

import contextlib
import io
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING

from hms.client.core.equal_events import EqualEvents

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "ERRORS_FD",
    "LOG_FLAGS",
    "LOG_MODE",
    "PAYLOADS_VARIABLE",
    "LogOutput",
    "await_end_of_node",
    "begin_file",
    "keep_printing",
]

LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
LOG_MODE = 0o640
ERRORS_FD = 2
PAYLOADS_VARIABLE = "HMS_LOG_PAYLOADS"
"""1: a process may log bodies and values of properties."""
LOOK_S = 1.0
STOP_S = 1.0

_EVENT = "hms.log"


class LogOutput(logging.Handler):
    """Writes to a descriptor, which another thread may have replaced by another file at any time.

    dropped: lines that were not written, since the process began.
    """

    def __init__(self, fd: int = ERRORS_FD, equal: EqualEvents | None = None) -> None:
        super().__init__()
        self._fd = fd
        self._equal = EqualEvents() if equal is None else equal
        self.dropped = self._untold = 0
        self._why = ""
        self._rest = b""
        """Of a line of which only the begin was written."""
        self._is_awaited = False
        self.written = 0
        """Bytes."""

    @property
    def has_rest(self) -> bool:
        """The last line is not whole yet."""
        return bool(self._rest)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, count it, or leave it to a summary."""
        for summary in self._equal.over():
            self._write(summary)
        if self._equal.admits(record):
            self._write(record)
        if self._equal.left_out or self._untold or self._rest:
            self._look_later()

    def look(self) -> None:
        """Tell what is to be told by now."""
        with self.lock or contextlib.nullcontext():
            for summary in self._equal.over():
                self._write(summary)
            self._is_caught_up()

    def flush(self) -> None:
        """Tell all of it: the process ends. Waits for nobody who stands in a write."""
        if self.lock is None or not self.lock.acquire(timeout=STOP_S):
            return
        try:
            for summary in self._equal.over(at_once=True):
                self._write(summary)
            self._is_caught_up()
        finally:
            self.lock.release()

    def give_up_rest(self) -> None:
        """The file is another one from now on: there the end of a line would stand alone."""
        with self.lock or contextlib.nullcontext():
            if self._rest:
                self._rest = b""
                self._drop()

    def _look_later(self) -> None:
        if self._is_awaited:
            return
        timer = threading.Timer(LOOK_S, self._look)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread can be started: at the next line then
            timer.start()
            self._is_awaited = True

    def _look(self) -> None:
        self.look()
        with self.lock or contextlib.nullcontext():
            self._is_awaited = False
            if self._equal.left_out or self._untold or self._rest:
                self._look_later()

    def _write(self, record: logging.LogRecord) -> None:
        try:
            line = self.line(record)
        except Exception:  # noqa: BLE001 - a wrong argument of a line, which Python tells of
            self.handleError(record)
            return
        if not self._is_caught_up() or not self._put(line):
            self._drop()

    def line(self, record: logging.LogRecord) -> bytes:
        """As it is written."""
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def write(self, data: bytes) -> int:
        """How much of it was written; OSError: nothing."""
        return os.write(self._fd, data)

    def _drop(self) -> None:
        self.dropped += 1
        self._untold += 1

    def _is_caught_up(self) -> bool:
        """Whether the line before is whole, and it was said how many were dropped."""
        if self._rest:
            rest, self._rest = self._rest, b""
            if not self._put(rest):
                self._rest = rest
                return False
        if self._untold and not self._rest:
            text, about = "%d lines were not written: %s", (self._untold, self._why)
            said = logging.LogRecord(_EVENT, logging.WARNING, "", 0, text, about, None)
            if not self._put(self.line(said)):
                return False
            self._untold = 0
        return not self._rest

    def _put(self, data: bytes) -> bool:
        """Whether it is written, or begun: then what is left comes before anything else."""
        is_begun = False
        while data:
            try:
                done = self.write(data)
            except OSError as fault:
                self._why = fault.strerror or str(fault)
                self._rest = data if is_begun else b""
                return is_begun
            self.written += done
            data, is_begun = data[done:], True
        return True


class _Printed(io.FileIO):
    """What is printed, and dropped where it cannot be written: it is no fault of who prints."""

    _is_short = _is_cut = False

    def write(self, data: "ReadableBuffer") -> int:
        """As many bytes as there are."""
        size = memoryview(data).nbytes
        try:
            if self._is_cut:
                super().write(b"\n")
                self._is_cut = False
            done = super().write(data) or 0
        except OSError:
            self._is_cut, self._is_short = self._is_cut or self._is_short, False
            return size
        self._is_short = done < size  # the rest comes next
        return done


def keep_printing() -> None:
    """Have what a process prints go to its log line by line, and a full disk be no error of it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        buffer = io.BufferedWriter(_Printed(stream.fileno(), "wb", closefd=False))
        text = io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=True)
        setattr(sys, name, text)


def await_end_of_node(fd: int) -> None:
    """Returns when the node is gone. Until then it says when its log goes on in another file, and
    then so does this process, with what it prints; and whether payloads may be logged."""
    rest, word = b"", f"{PAYLOADS_VARIABLE}=".encode()
    while data := os.read(fd, 1 << 16):
        *whole, rest = (rest + data).split(b"\n")
        files = [line for line in whole if not line.startswith(word)]
        for line in whole:
            if line.startswith(word):
                os.environ[PAYLOADS_VARIABLE] = line.removeprefix(word).decode()
        if files:
            with contextlib.suppress(OSError):
                begin_file(os.fsdecode(files[-1]))


def begin_file(path: str) -> None:
    """Standard output and standard error go there from now on; OSError changes nothing."""
    fd = os.open(path, LOG_FLAGS, LOG_MODE)
    try:
        for standard in (1, ERRORS_FD):
            os.dup2(fd, standard)
    finally:
        os.close(fd)
