"""Waiting for a condition, with a time after which the test fails."""

import threading
import time
from collections.abc import Callable

__all__ = ["wait_until"]

PAUSE_S = 0.02


def wait_until(is_so: Callable[[], object], timeout_s: float = 20) -> None:
    """Return as soon as it is so; AssertionError when it is not in time."""
    pause, until = threading.Event(), time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it did not come to be in time"
        pause.wait(PAUSE_S)
