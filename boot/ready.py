"""The word that a node sends to the `hms boot` that started it: ready, or why not.

It goes over a pipe: one line "ready", or "failed" and a reason, which may have several lines.
Before that, lines "progress" with the bytes that are read of the store and how many there are.
A node that ends without a word closes the pipe, which tells as much.
"""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = [
    "is_told_ready",
    "read_word",
    "tell_failed",
    "tell_progress",
    "tell_ready",
    "tell_standby",
]

WORD_BYTES_MAX = 64 * 1024
_READY = "ready"
_STANDBY = "standby"
_FAILED = "failed "
_PROGRESS = "progress "
_LAST = (f"{_READY}\n".encode(), f"{_STANDBY}\n".encode())
Progress = Callable[[int, int], None]


def tell_ready(fd: int) -> None:
    """The node takes connections now; the pipe is closed."""
    _tell(fd, _READY)


def tell_standby(fd: int) -> None:
    """The node waits to take a store over; the pipe is closed."""
    _tell(fd, _STANDBY)


def tell_failed(fd: int, reason: str) -> None:
    """The node cannot boot; the pipe is closed."""
    _tell(fd, _FAILED + reason)


def tell_progress(fd: int, done: int, total: int) -> None:
    """So many bytes of the store are read; the pipe stays open."""
    with suppress(BrokenPipeError):
        os.write(fd, f"{_PROGRESS}{done} {total}\n".encode())


def _tell(fd: int, word: str) -> None:
    try:
        with suppress(BrokenPipeError):  # the process that started the node has stopped waiting
            os.write(fd, f"{word}\n".encode()[:WORD_BYTES_MAX])
    finally:
        os.close(fd)


def is_told_ready(word: str) -> bool:
    """Whether the word that was read says that the node is ready, or stands by."""
    return word in (_READY, _STANDBY)


def read_word(
    fd: int, timeout_s: float, on_progress: Progress = lambda _done, _total: None
) -> str | None:
    """What the node told: "ready", why it failed, or "" when it just ended; None: nothing for so
    long. Each word of progress begins the time anew."""
    until, said = time.monotonic() + timeout_s, b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(until - time.monotonic(), 0) * 1000):
        part = os.read(fd, WORD_BYTES_MAX)
        said, steps = _without_progress(said + part)
        for done, total in steps:
            on_progress(done, total)
            until = time.monotonic() + timeout_s
        if not part or said in _LAST:
            return said.decode(errors="replace").strip().removeprefix(_FAILED)
    return None


def _without_progress(said: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Whole lines of progress at the beginning, taken off."""
    steps = []
    while said.startswith(_PROGRESS.encode()) and b"\n" in said:
        line, _, said = said.partition(b"\n")
        done, total = line.split()[1:]
        steps.append((int(done), int(total)))
    return said, steps
