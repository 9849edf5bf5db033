"""What the kernel tells of processes, and how fast the machine is just now."""

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Usage", "cpu_s", "peak_rss_bytes", "probe", "process_tree", "switches", "usage"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SPIN = 200_000
_SYNCS = 50

Usage = tuple[float, int]
"""CPU seconds and peak resident bytes."""


def process_tree(pid: int) -> list[int]:
    """A process and all that it started."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        try:
            tasks = list(Path(f"/proc/{found[-1]}/task").iterdir())
            said = [(task / "children").read_text() for task in tasks]
        except OSError:
            continue
        waiting += [int(child) for text in said for child in text.split()]
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _status(pid: int, names: Iterable[str]) -> dict[str, int]:
    """Numbers of /proc/PID/status by name."""
    wanted = tuple(names)
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return dict.fromkeys(wanted, 0)
    values = dict(line.split(":", 1) for line in lines)
    return {name: int(values.get(name, "0").split()[0]) for name in wanted}


def peak_rss_bytes(pid: int) -> int:
    """The most that was resident of a process at one time."""
    return _status(pid, ["VmHWM"])["VmHWM"] * 1024


def rss_bytes(pid: int) -> int:
    """What is resident of a process now."""
    return _status(pid, ["VmRSS"])["VmRSS"] * 1024


def switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep: each time something woke them."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0
    name = "voluntary_ctxt_switches"
    return sum(_status(int(task.name), [name])[name] for task in tasks)


def usage(pids: Iterable[int]) -> Usage:
    """CPU and peak memory of processes and all that they started."""
    every = [pid for root in pids for pid in process_tree(root)]
    return sum(cpu_s(pid) for pid in every), sum(peak_rss_bytes(pid) for pid in every)


def probe(folder: Path) -> dict[str, float]:
    """Turns of an empty loop in a second, in thousands, and the median of a small sync, in ms.

    They tell runs apart in which the machine itself was slow.
    """
    begin = time.perf_counter()
    for _ in range(_SPIN):
        pass
    spin = _SPIN / (time.perf_counter() - begin) / 1000
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            begin = time.perf_counter()
            os.write(file.fileno(), bytes(1024))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    load = os.getloadavg()[0]
    return {
        "spin_k_per_s": round(spin),
        "sync_ms": round(sorted(times)[_SYNCS // 2] * 1000, 3),
        "load": round(load, 2),
    }
