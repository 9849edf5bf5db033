"""Ports for the servers of a test."""

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


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    while True:
        port = _dice.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.append(port)
            return port
