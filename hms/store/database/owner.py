"""Owner: which process holds a store, so that others can name it, and see whether it is dead.

A lease runs out by itself; the mark only spares a restarted node the waiting. It names the boot of
the machine, the namespace of process ids, the process and when it started: where all of it can be
looked up, a process that is not there is dead, whatever its lease says. Being wrong would cost
nothing but the old node's place: the epoch alone decides who may write.
"""

import os
import socket
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_STARTED_FIELD = 19
"""Of /proc/PID/stat, counted behind the name."""


class Owner(NamedTuple):
    """host and pid are for people, the mark is for is_dead."""

    host: str
    pid: int
    mark: str


def this_process() -> Owner:
    """The process that asks."""
    pid = os.getpid()
    return Owner(socket.gethostname(), pid, _mark(pid))


def is_dead(mark: str) -> bool:
    """Whether the process is gone for certain; False when it cannot be known from here."""
    here, there = _world(), mark.rpartition("/")[0].rpartition("/")[0]
    if not here or here != there:
        return False
    return _mark(int(mark.split("/")[-2])) != mark


def _mark(pid: int) -> str:
    """boot/namespace/pid/started; empty where the system does not tell."""
    world = _world()
    return f"{world}/{pid}/{_started(pid)}" if world else ""


def _world() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat(_PROC / "self/ns/pid").st_ino  # noqa: PTH116 - the namespace, not the link
    except OSError:
        return ""
    return f"{boot}/{namespace}"


def _started(pid: int) -> str:
    """When the process began, in the system's ticks; a process that ended and waits for its parent
    counts as gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "gone"
    fields = stat.rpartition(")")[2].split()
    return "gone" if fields[0] in "ZX" else fields[_STARTED_FIELD]
