"""What operators cost: `python -m bench.operations` measures W4, in turn, on a node that an
operator works on and on a quiet one.

scrapes     hms web beside the node: /metrics, and the series of all destinations, none left out and
            compressed, as Prometheus asks for them; bar 0.95. With --queues 10000 the first is to
            take 20 ms, the second 0.5 s and 8 MB; that one is asked on a quiet node too
messages    list, alter, copy, move and delete 1,000 each by selector, in other queues; bar 0.9
backup      hms backup create; bar 0.8

Each at once, and again --every so many seconds.

The ratio stands in the row of the quiet node. Behind each pair: what the operator did, and the
longest hold of the engine's lock on the node that was worked on, by what.
"""

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import hms
from hms.boot.bench.machine import cpu_s
from hms.boot.bench.pairs import compare, rows_text
from hms.boot.bench.systems import HmsSystem, Needs, Running
from hms.boot.bench.workloads import WORKLOADS
from hms.testing import TestNode, node

__all__ = ["BARS", "main"]

BARS = {"scrapes": 0.95, "messages": 0.9, "backup": 0.8}
BACKLOG = 20_000
END_S = 60
QUIET_S = 15
SERIES_MAX = 10_000_000
PATHS = ("/metrics", "/metrics/destinations")
LINE = [sys.executable, "-m", "hms.boot"]
Work = Callable[[TestNode, threading.Event, Counter[str], float], None]


class _Worked(HmsSystem):
    """A node that an operator works on; None: on which nobody does."""

    def __init__(self, name: str, work: Work | None, given: argparse.Namespace) -> None:
        self.name = name
        self._work, self._every_s = work, given.every
        self._waiting, self._queues = given.waiting, given.queues
        self.done: Counter[str] = Counter()
        self.holds: list[str] = []

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Boot a node, which is killed at the end; both have the same backlog."""
        config = self.config(needs)
        config["hms"]["queue"] |= _queues(self._queues)
        with node(store=folder / "store", config=config) as running:
            _fill(running, self._waiting)
            stopped = threading.Event()
            faults: list[BaseException] = []
            thread = threading.Thread(target=self._run, args=(running, stopped, faults))
            thread.start()
            try:
                yield Running(running.address, (running.pid,))
            finally:
                stopped.set()
                thread.join(END_S)
            if faults:
                raise faults[0]
            with hms.connect(running.address) as connection:
                said = connection.administer("status")
            wall, cpu = said["lock_held_max_ms"], said["lock_held_max_cpu_ms"]
            self.holds.append(f"{wall} ms, {cpu} on the processor ({said['lock_held_max_by']})")

    def _run(
        self, running: TestNode, stopped: threading.Event, faults: list[BaseException]
    ) -> None:
        try:
            if self._work is not None:
                self._work(running, stopped, self.done, self._every_s)
        except BaseException as fault:  # noqa: BLE001 - told by the thread that waits
            faults.append(fault)


def _queues(count: int) -> dict[str, dict[str, Any]]:
    """Those that operators work with, and so many others."""
    names = ("aside", "back", "copies", *(f"other{number}" for number in range(count)))
    return {name: {} for name in names}


def _fill(running: TestNode, count: int) -> None:
    with hms.connect(running.address) as connection, connection.session() as session:
        messages = (hms.Message(b"x" * 128, {"N": n % 10}) for n in range(count))
        for _ in session.producer("aside").send_many(messages):
            pass


def _scrapes(
    running: TestNode, stopped: threading.Event, done: Counter[str], every_s: float
) -> None:
    took_ms: dict[str, list[float]] = {path: [] for path in PATHS}
    with _web(running) as (address, pid):
        begun_s = cpu_s(pid)
        while True:
            for path in PATHS:
                ms, done[f"bytes of {path}"], is_cut = _scraped(address, path)
                if is_cut:
                    raise RuntimeError(f"{path} left series out")
                took_ms[path].append(ms)
            done["scrapes"] += 1
            if stopped.wait(every_s):
                break
        done["processor ms of hms web, a round"] = round(
            1000 * (cpu_s(pid) - begun_s) / done["scrapes"]
        )
    for path, every in took_ms.items():
        done[f"ms of {path}, median"] = round(median(every))
        done[f"ms of {path}, longest"] = round(max(every))


@contextmanager
def _web(running: TestNode) -> Iterator[tuple[str, int]]:
    """Its address, and its process."""
    command = [*LINE, "web", "--config", str(running.config_file), "--listen", "127.0.0.1:0"]
    command += ["--series-max", str(SERIES_MAX), "--json"]
    web = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert web.stdout is not None
        yield json.loads(web.stdout.readline())["address"], web.pid
    finally:
        web.terminate()
        web.wait(END_S)


def _scraped(address: str, path: str) -> tuple[float, int, bool]:
    """Milliseconds, bytes on the wire, and whether series were left out."""
    asked = urllib.request.Request(address + path, headers={"Accept-Encoding": "gzip"})
    began = time.monotonic()
    with urllib.request.urlopen(asked, timeout=END_S) as answer:
        data, is_packed = answer.read(), answer.headers["Content-Encoding"] == "gzip"
    ms = (time.monotonic() - began) * 1000
    text = gzip.decompress(data) if is_packed else data
    return ms, len(data), re.search(rb"^hms_metrics_truncated{.*} 0$", text, re.MULTILINE) is None


def _quiet_scrapes(given: argparse.Namespace) -> str:
    """What the scrapes take of a node that does nothing else."""
    worked, done = _Worked("quiet", None, given), Counter[str]()
    stopped = threading.Event()
    with tempfile.TemporaryDirectory(prefix="hms-bench-") as folder:
        config = worked.config(Needs())
        config["hms"]["queue"] |= _queues(given.queues)
        with node(store=Path(folder) / "store", config=config) as running:
            threading.Timer(QUIET_S, stopped.set).start()
            begun_s = cpu_s(running.pid)
            _scrapes(running, stopped, done, 1.1)  # an answer holds for a second
            spent_ms = 1000 * (cpu_s(running.pid) - begun_s)
            done["processor ms of the node, a round"] = round(spent_ms / done["scrapes"])
    return ", ".join(f"{what} {count:,}" for what, count in done.items())


def _messages(
    running: TestNode, stopped: threading.Event, done: Counter[str], every_s: float
) -> None:
    with hms.connect(running.address, client_name="operator") as connection:
        of = connection.admin.messages
        source, target = "aside", "back"
        while True:
            some = of(f"queue:{source}").where("N < 5", limit=1000)
            for verb, outcome in (
                ("listed", some.count().count),
                ("altered", some.alter(priority=5).count),
                ("copied", some.copy(to="copies").count),
                ("moved", of(f"queue:{source}").where("N >= 0", limit=1000).move(to=target).count),
                ("deleted", of("queue:copies").where("N < 5").delete().count),
            ):
                done[verb] += outcome
            source, target = target, source
            if stopped.wait(every_s):
                return


def _backup(
    running: TestNode, stopped: threading.Event, done: Counter[str], every_s: float
) -> None:
    to = running.folder / "backups"
    command = [*LINE, "backup", "create", "--config", str(running.config_file), "--to", str(to)]
    while not stopped.is_set():
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as made:
            while made.poll() is None:
                if stopped.wait(0.1):
                    made.kill()
            said = made.stdout.read().decode() if made.stdout is not None else ""
        if made.returncode and not stopped.is_set():
            raise RuntimeError(said)
        if not made.returncode:
            done["backups"] += 1
            took = round((time.monotonic() - began) * 1000)
            done["ms of a backup, longest"] = max(took, done["ms of a backup, longest"])
        shutil.rmtree(to, ignore_errors=True)
        stopped.wait(every_s)


WORK: dict[str, Work] = {"scrapes": _scrapes, "messages": _messages, "backup": _backup}


def main(words: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.operations", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="pairs, in turn")
    parser.add_argument("--count", type=int, default=500_000, help="messages of W4")
    parser.add_argument("--every", type=float, default=1, help="seconds between two rounds")
    parser.add_argument("--waiting", type=int, default=BACKLOG, help="messages to work on")
    parser.add_argument("--queues", type=int, default=1000, help="others, which metrics show")
    parser.add_argument("--only", default=",".join(BARS), help="such as scrapes,backup")
    given = parser.parse_args(words)
    for name in given.only.split(","):
        if name == "scrapes":
            print(f"of a quiet node: {_quiet_scrapes(given)}", flush=True)
        both: list[Any] = [
            _Worked(name, WORK[name], given),
            _Worked("quiet", None, given),
        ]
        with tempfile.TemporaryDirectory(prefix="hms-bench-") as folder:
            rows = compare(both, WORKLOADS["W4"].with_count(given.count), Path(folder), given.runs)
        did = ", ".join(f"{what} {count:,}" for what, count in both[0].done.items())
        print(
            f"{rows_text(rows)}\n{name}: {did}\nbar {BARS[name]}; longest hold of the lock: ",
            end="",
        )
        print(f"{', '.join(both[0].holds)}; quiet: {', '.join(both[1].holds)}\n", flush=True)


if __name__ == "__main__":
    main()
