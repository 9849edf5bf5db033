"""The word that a node sends to the `hms boot` that started it: ready, or why not.

It goes over a pipe: one line "ready", or "failed" and a reason, which may have several lines.
A node that ends without a word closes the pipe, which tells as much.
"""

import os
import select
import time

__all__ = ["is_told_ready", "read_word", "tell_failed", "tell_ready"]

WORD_BYTES_MAX = 64 * 1024
_READY = "ready"
_FAILED = "failed "


def tell_ready(fd: int) -> None:
    """The node takes connections now; the pipe is closed."""
    _tell(fd, _READY)


def tell_failed(fd: int, reason: str) -> None:
    """The node cannot boot; the pipe is closed."""
    _tell(fd, _FAILED + reason)


def _tell(fd: int, word: str) -> None:
    try:
        os.write(fd, f"{word}\n".encode()[:WORD_BYTES_MAX])
    except BrokenPipeError:
        pass  # whoever started the node has stopped waiting
    finally:
        os.close(fd)


def is_told_ready(word: str) -> bool:
    """Whether the word that was read says that the node is ready."""
    return word == _READY


def read_word(fd: int, timeout_s: float) -> str | None:
    """What the node told: "ready", why it failed, or "" when it just ended; None: nothing yet."""
    until, said = time.monotonic() + timeout_s, b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(until - time.monotonic(), 0) * 1000):
        part = os.read(fd, WORD_BYTES_MAX)
        said += part
        if not part or said == f"{_READY}\n".encode():
            return said.decode(errors="replace").strip().removeprefix(_FAILED)
    return None
