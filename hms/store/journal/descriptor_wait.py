"""Waiting for a descriptor when a flood of connections has taken the last one.

libzmq accepts every connection, in a thread of its own, faster than the gateway cuts those that are
too many. So a file may find no descriptor for a moment, and that is no fault of the disk.
"""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["with_descriptor"]

WAIT_S = 10.0
PAUSE_S = 0.001

T = TypeVar("T")


def with_descriptor(
    open_: Callable[[], T],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """What open_ returns, tried again for WAIT_S while this process has no descriptor left."""
    until: float | None = None
    while True:
        try:
            return open_()
        except OSError as fault:
            if fault.errno != errno.EMFILE:
                raise
            until = clock() + WAIT_S if until is None else until
            if clock() >= until:
                raise
        pause(PAUSE_S)
