"""Descriptors: how many the node may have, and so how many connections it takes.

A node that has no descriptor left cannot open the next segment of its log, and stops. So a part of
them is kept from connections: it is for the log, files, links and server processes.
"""

import resource
from pathlib import Path

__all__ = ["connections_max", "open_share", "raise_limit"]

OWN_DESCRIPTORS = 128
"""What a node without a connection has open, with room to spare."""
SHARE_OF_CONNECTIONS = 0.8
BURST_DESCRIPTORS = 4096
"""What a flood of connections takes before those that are too many are cut, where the system allows
it: libzmq accepts in a thread of its own."""


def connections_max(wanted: int, descriptors: int) -> int:
    """How many connections are taken when so many are wanted and so many descriptors allowed."""
    return max(1, min(wanted, int((descriptors - OWN_DESCRIPTORS) * SHARE_OF_CONNECTIONS)))


def raise_limit(connections: int) -> int:
    """Raise this process's limit of descriptors as far as so many connections need and the system
    allows; the limit that holds then."""
    needed = int(connections / SHARE_OF_CONNECTIONS) + OWN_DESCRIPTORS + BURST_DESCRIPTORS + 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return needed
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def open_share() -> float:
    """Which part of the descriptors that this process may have is open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 0.0
    return sum(1 for _ in Path("/proc/self/fd").iterdir()) / soft
