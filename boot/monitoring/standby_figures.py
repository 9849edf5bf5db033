"""Figures of a process that stands by: what this machine knows of its own copy and process.

A node's figures come from the process that leads, which may be on another machine. One that stands
by has none of them; what it is, what its disk has, and how far its copy is, is told from files:
the process that follows writes what only it knows into one of them, once a second.
"""

import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hms.boot.bench.machine import cpu_s, rss_bytes
from hms.boot.compose import hms_version
from hms.boot.entries import Node
from hms.boot.log_folder import log_folder
from hms.boot.monitoring.state_file import StateFile, read_state
from hms.boot.supervise import Process, find, identify

__all__ = ["CopyFile", "SharedFigures", "figures_of", "told_by_copy"]

EVERY_S = 1.0
SUFFIXES = {".log": "log", ".pinned": "pinned", ".history": "history"}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _file(node: Node) -> Path:
    return node.runtime / f"{node.name}.copy"


def _now_s() -> float:
    """Of the clock by which a copy hears its primary; all processes of the machine share it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class CopyFile:
    """What a copy knows of itself while it follows; one thread. A disk that takes nothing is no
    reason not to follow."""

    def __init__(self, node: Node) -> None:
        self._file, self._written_s = StateFile(_file(node)), float("-inf")
        self._process = identify(os.getpid())

    def tell(self, said: Mapping[str, Any]) -> None:
        """At most once a second."""
        now_s = _now_s()
        if self._process is None or now_s - self._written_s < EVERY_S:
            return
        self._written_s = now_s
        with suppress(OSError):
            self._file.write({**said, "process": dataclasses.asdict(self._process)})

    def close(self) -> None:
        """It leads from now on, or ends."""
        self._file.close()


class SharedFigures:
    """figures_of() a node, looked up once a second however many ask; from any thread."""

    def __init__(self, node: Node) -> None:
        self._node, self._lock = node, threading.Lock()
        self._at_s, self._said = float("-inf"), dict[str, Any]()

    def __call__(self) -> dict[str, Any]:
        """Those of this second."""
        with self._lock:
            if _now_s() - self._at_s >= EVERY_S:
                self._said, self._at_s = figures_of(self._node), _now_s()
            return self._said


def figures_of(node: Node) -> dict[str, Any]:
    """For metrics of a machine whose process stands by."""
    found: dict[str, Any] = {
        "node": node.name,
        "replica": node.replica or "",
        "version": hms_version(),
        "store": "journal" if node.database is None else "database",
    }
    process = find(node)
    if process is not None:
        found["process"] = _process(process.pid, process.started)
    if node.database is None:
        with suppress(OSError):  # it is not there yet
            found["disk"] = _disk(log_folder(node))
    if node.replica is not None:
        found["copy"] = _copy(node, process)
    return found


def told_by_copy(node: Node) -> dict[str, Any]:
    """What the process that follows, or followed last, tells of its copy; nothing where that is of
    a process that is gone."""
    said = read_state(_file(node)) or {}
    process = said.pop("process", {"pid": 0})
    known = identify(process["pid"])
    return said if known is not None and process == dataclasses.asdict(known) else {}


def _process(pid: int, started: int) -> dict[str, float]:
    """started: in clock ticks since the machine was booted."""
    said = {
        "start_s": time.time() - _now_s() + started / _TICKS_PER_S,
        "cpu_s": cpu_s(pid),
        "resident_bytes": rss_bytes(pid),
    }
    with suppress(OSError):  # another user's
        said["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only counted
    return said


def _disk(folder: Path) -> dict[str, int]:
    """What the copy takes, and what is left."""
    sizes = {kind: [0, 0] for kind in SUFFIXES.values()}
    for entry in os.scandir(folder):
        kind = SUFFIXES.get(Path(entry.name).suffix)
        if kind is not None and entry.name[:1].isdigit():
            with suppress(FileNotFoundError):  # it has another name by now, or none
                sizes[kind][1] += entry.stat().st_size
                sizes[kind][0] += 1
    usage = shutil.disk_usage(folder)
    return {
        "segments": sizes["log"][0],
        "log_bytes": sizes["log"][1],
        "pinned_bytes": sizes["pinned"][1],
        "history_bytes": sizes["history"][1],
        "free_bytes": usage.free,
        "total_bytes": usage.total,
    }


def _copy(node: Node, process: Process | None) -> dict[str, Any]:
    """What its file says, where it is of this process; and what is known to be damaged."""
    from hms.server.replicas.damage import read_damages  # noqa: PLC0415 - only of a copy
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415 - the same

    found: dict[str, Any] = {"damaged": len(read_damages(REAL_DISK, node.store))}
    said = read_state(_file(node))
    own = None if process is None else dataclasses.asdict(process)
    if said is not None and said.pop("process", None) == own:
        found |= said
        if (heard_s := said.get("heard_s")) is not None:
            found["silent_s"] = max(0.0, _now_s() - heard_s)
    return found
