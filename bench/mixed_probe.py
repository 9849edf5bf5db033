"""What looks at the machine beside the load, a process each: `python -m bench.mixed_probe WHAT`.

disk DIR     writes and syncs 4 KiB there every 20 ms, and tells of each that took above 30 ms
machine      sleeps 2 ms, and tells when it woke above 30 ms too late: the whole machine stood
waits PIDS   reads how long each thread of these processes was ready to run and had no processor
             (the kernel's schedstat), ten times a second, and tells of those above 10 ms: as
             "processor" when others had some of the processors in that second, else as "own load"

A line of JSON is a Glance. It ends with its standard input.
"""

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

__all__ = ["OWN_LOAD", "Glance", "busy_s", "main", "thread_times"]

OWN_LOAD = "own load"
"""The processors were taken by what is measured itself; that excuses nothing."""

_BLOCK = bytes(4096)
_SLOW_NS = 30_000_000
_WAITED_NS = 10_000_000
_SAMPLES = 10
_OTHERS_CORES = 0.25
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Glance(msgspec.Struct, frozen=True):
    """Something that took long; who: the thread that waited for a processor, "pid/tid", or, once
    it has a name, "KIND ROLE tid" and "node tid"."""

    cause: str
    begin_ns: int
    end_ns: int
    who: str = ""


Probe = Callable[[int], Iterator[Glance]]
"""Looks once, until now; given when it last did."""


def disk(folder: str) -> Probe:
    """The same block of a file again and again, as the node's log is written into space it has."""
    path = Path(folder) / "mixed.probe"
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(number, _BLOCK, 0)
    os.fsync(number)

    def look(_: int) -> Iterator[Glance]:
        begin_ns = time.monotonic_ns()
        os.pwrite(number, _BLOCK, 0)
        os.fdatasync(number)
        end_ns = time.monotonic_ns()
        if end_ns - begin_ns > _SLOW_NS:
            yield Glance("disk", begin_ns, end_ns)

    return look


def machine() -> Probe:
    """Every sleep that was too long."""

    def look(before_ns: int) -> Iterator[Glance]:
        now_ns = time.monotonic_ns()
        if now_ns - before_ns > _SLOW_NS + 2_000_000:
            yield Glance("machine", before_ns, now_ns)

    return look


def thread_times(pid: int) -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread of a process has run, and has waited to, by "pid/tid"."""
    found = {}
    for name in _threads(pid):
        try:
            text = Path(f"/proc/{pid}/task/{name}/schedstat").read_text(encoding="ascii")
        except OSError:
            continue  # it has ended
        ran_ns, waited_ns, _ = text.split()
        found[f"{pid}/{name}"] = int(ran_ns), int(waited_ns)
    return found


def _threads(pid: int) -> list[str]:
    try:
        return [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def busy_s() -> float:
    """Seconds that all processors together were busy, or taken away from this machine."""
    first, _, _ = Path("/proc/stat").read_text(encoding="ascii").partition("\n")
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + soft_irq + steal) / _TICKS_PER_S


class Others:
    """How many processors others had in the last second: all that was busy, without ours."""

    def __init__(self) -> None:
        self._ours_s = 0.0
        self._seen: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def cores(self, now_ns: int, busy_s: float, ran_ns: int) -> float:
        """Given what all have run so far, and our threads since the last time."""
        self._ours_s += ran_ns / 1e9
        self._seen.append((now_ns / 1e9, busy_s - self._ours_s))
        (begin, least), (end, most) = self._seen[0], self._seen[-1]
        return (most - least) / (end - begin) if end > begin else 0.0


def waits(pids: Sequence[int]) -> Probe:
    """A wait is told when it is over; it lay just before that, as far as is known."""
    before: dict[str, tuple[int, int]] = {}
    others, ours = Others(), [*pids, os.getpid(), os.getppid()]

    def look(_: int) -> Iterator[Glance]:
        now_ns, ran_ns, waited = time.monotonic_ns(), 0, {}
        for pid in ours:
            for who, times in thread_times(pid).items():
                last = before.get(who, times)
                before[who] = times
                ran_ns += times[0] - last[0]
                waited[who] = times[1] - last[1]
        others_cores = others.cores(now_ns, busy_s(), ran_ns)
        cause = "processor" if others_cores > _OTHERS_CORES else OWN_LOAD
        for who, wait_ns in waited.items():
            if wait_ns > _WAITED_NS and int(who.partition("/")[0]) in pids:
                yield Glance(cause, now_ns - wait_ns, now_ns, who)

    return look


def watch(probe: Probe, every_s: float) -> None:
    """Look again and again, until the standard input ends."""
    print("ready", flush=True)
    before_ns = time.monotonic_ns()
    while True:
        for glance in probe(before_ns):
            print(msgspec.json.encode(glance).decode(), flush=True)
        if select.select([0], [], [], 0)[0]:
            return
        before_ns = time.monotonic_ns()
        time.sleep(every_s)


def main(arguments: Sequence[str]) -> None:
    """One probe."""
    what, *more = arguments
    if what == "disk":
        watch(disk(more[0]), 0.02)
    elif what == "machine":
        watch(machine(), 0.002)
    else:
        watch(waits([int(pid) for pid in more]), 0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
