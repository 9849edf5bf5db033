"""Ports for the servers of a test."""

import os
import random
import socket
from collections import deque

FIRST, LAST = 10_000, 32_000
"""Below those that the kernel gives to outgoing connections (from 32,768 on Linux): one of these
stays free until its server listens, even while hundreds of clients come and go."""

RECENT = 1000

_dice = random.SystemRandom()
_given: deque[int] = deque(maxlen=RECENT)
"""Not given again at once: who asks for two has listened at neither."""


def _share() -> tuple[int, int]:
    """Each worker of pytest-xdist has its own: the port of a node that is booted again in a moment
    looks free to the others."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (LAST - FIRST) // workers
    return FIRST + number % workers * size, FIRST + (number % workers + 1) * size - 1


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    first, last = _share()
    while True:
        port = _dice.randint(first, last)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.append(port)
            return port
