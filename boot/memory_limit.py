"""What the kernel lets this process have: the memory limit of its container or systemd unit.

A node that takes more is killed, before it has refused a message.
"""

import os
from pathlib import Path

__all__ = ["OWN_BYTES", "memory_for_messages", "memory_limit", "resident_bytes"]

OWN_BYTES = 256 << 20
"""What a node takes beside the messages that wait."""
_UNIFIED, _VERSION_1 = "memory.max", "memory.limit_in_bytes"


def memory_limit(root: Path = Path("/")) -> int | None:
    """The lowest limit of the control groups that this process is in; None without one."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            limits += _limits(root / "sys/fs/cgroup", path, _UNIFIED)
        elif "memory" in controllers.split(","):
            limits += _limits(root / "sys/fs/cgroup/memory", path, _VERSION_1)
    return min(limits, default=None)


def resident_bytes(root: Path = Path("/")) -> int:
    """What this process has in memory; 0 where the system does not tell."""
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_for_messages(otherwise: int, least: int, limit: int | None) -> int:
    """max_memory_bytes where nobody said it: half of the limit, and OWN_BYTES below it, where that
    is less than otherwise."""
    if limit is None:
        return otherwise
    return max(least, min(otherwise, limit // 2, limit - OWN_BYTES))


def _limits(mount: Path, path: str, name: str) -> list[int]:
    """Of a group and those above it. A container sees its own group as the topmost one."""
    group = mount / path.lstrip("/")
    found = []
    for folder in (group, *group.parents):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = ""
        if text.isdigit():  # not "max"
            found.append(int(text))
        if folder == mount:
            break
    return found
