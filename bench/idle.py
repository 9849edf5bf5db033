"""A node that does nothing, and how long it takes to begin: `python -m bench.idle`."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hms
from hms.boot.bench.machine import cpu_s, rss_bytes, switches
from hms.boot.bench.systems import HMS, Needs

__all__ = ["main"]


def _boot_ms(folder: Path) -> tuple[float, float]:
    """From the start of the process to "ready", and what it then occupies, in MiB."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        begin = time.perf_counter()
        with HMS.run(Path(place), Needs(queues=("bench",))) as running:
            ready_ms = (time.perf_counter() - begin) * 1000
            return ready_ms, rss_bytes(running.pids[0]) / (1 << 20)


def _python_ms(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000


def _median(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def _rest(pid: int, seconds: float, what: str) -> None:
    """CPU and wake-ups of a process while nothing happens."""
    before = cpu_s(pid), switches(pid), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - before[2]
    cpu = (cpu_s(pid) - before[0]) / passed
    woken = (switches(pid) - before[1]) / passed
    print(f"{what:32} {cpu:8.2%} of a core  {woken:6.1f} wake-ups a second")


def _imports(runs: int) -> None:
    bare = _median(runs, lambda: _python_ms("pass"))
    for name, code in (
        ("import hms", "import hms"),
        ("... and its client", "import hms;hms.connect"),
    ):
        spent = _median(runs, lambda code=code: _python_ms(code)) - bare  # type: ignore[misc]
        print(f"{name:32} {spent:8.0f} ms over Python's own {bare:.0f} ms")


def main() -> None:
    """Boot, rest, import."""
    made = argparse.ArgumentParser(description="An idle node, and how long it takes to begin.")
    made.add_argument("--runs", type=int, default=5)
    made.add_argument("--seconds", type=float, default=15.0)
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    options = made.parse_args()
    boots = [_boot_ms(options.data) for _ in range(options.runs)]
    print(f"boot to ready, empty store       {statistics.median(ms for ms, _ in boots):8.0f} ms")
    print(f"resident, idle                   {statistics.median(mib for _, mib in boots):8.1f} MiB")
    _imports(options.runs)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.data) as place,
        HMS.run(Path(place), Needs(queues=("bench",))) as running,
    ):
        time.sleep(2)  # what follows a boot, such as the log's next segment
        _rest(running.pids[0], options.seconds, "node, nobody connected")
        with hms.connect(running.address) as connection, connection.session() as session:
            session.consumer("queue:bench")
            time.sleep(1)
            _rest(running.pids[0], options.seconds, "node, one idle consumer")


if __name__ == "__main__":
    main()
