"""Waiting for a condition, with a time after which the test fails."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import hms

__all__ = ["drained", "wait_until"]

_T = TypeVar("_T")
DRAIN_S = 60.0
"""So long nothing may come while something is left."""


def wait_until(is_so: Callable[[], _T], timeout_s: float = 60, pause_s: float = 0.02) -> _T:
    """What it gives as soon as it is true; AssertionError when it is not in time."""
    pause, until = threading.Event(), time.monotonic() + timeout_s
    while not (found := is_so()):
        assert time.monotonic() < until, "it did not come to be in time"
        pause.wait(pause_s)
    return found


def drained(
    connection: hms.Connection, consumer: hms.Consumer, *, is_held: bool = False
) -> Iterator[hms.Message]:
    """All messages of a queue, until the node says that it has no more: a receive whose time is
    over may only mean that the node is slow. is_held: they stay in flight until a commit."""
    count, until = 0, time.monotonic() + DRAIN_S
    while True:
        message = consumer.receive(timeout_s=0.2)
        if message is not None:
            count, until = count + 1, time.monotonic() + DRAIN_S
            yield message
            continue
        shown = connection.administer("queue.show", {"name": consumer.destination.name})
        if shown["waiting"] + shown["in_flight"] == (count if is_held else 0):
            return
        assert time.monotonic() < until, shown
