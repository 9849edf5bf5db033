"""The minutes of the mixed load: what was achieved since the one before, and what it took."""

import os
import time
from pathlib import Path
from typing import Any

from bench.mixed_figures import Minute
from bench.mixed_probe import busy_s
from bench.mixed_run import QUEUES, Run
from bench.mixed_words import KINDS
from hms.boot.bench.machine import cpu_s, rss_bytes, usage

__all__ = ["Meter"]

MIB = 1 << 20


class Meter:
    """Counts from its making, or from the minute before; connection: of an operator."""

    def __init__(self, run: Run, connection: Any) -> None:
        self._run, self._connection = run, connection
        self._number = 0
        run.times()
        self._before = self._read()

    def minute(self) -> Minute:
        """One row."""
        run, now = self._run, self._read()
        spent = {name: now[name] - self._before[name] for name in now}
        self._before, self._number = now, self._number + 1
        times, seconds = run.times(), spent["at"]
        return Minute(
            number=self._number,
            seconds=round(seconds, 3),
            rates={name: round(spent[name] / seconds, 1) for name in KINDS},
            times_ms={name: times[name].figures_ms() for name in KINDS},
            cores=_cores(spent),
            node_rss_mib=round(rss_bytes(run.node.pid) / MIB, 2),
            clients_rss_mib=round(sum(rss_bytes(one.pid) for one in run.clients) / MIB, 2),
            log_mib=round(folder_bytes(run.node.store) / MIB, 1),
            waiting=self._waiting(),
        )

    def _read(self) -> dict[str, float]:
        run = self._run
        ours = [os.getpid(), *(one.pid for one in (*run.clients, *run.probes))]
        node_s, _ = usage([run.node.pid])
        found = {name: float(one.received) for name, one in run.books().items()}
        found["at"], found["busy cores"] = time.monotonic(), busy_s()
        found["node cores"] = node_s
        found["client cores"] = sum(cpu_s(pid) for pid in ours)
        return found

    def _waiting(self) -> int:
        ask = self._connection.administer
        shown = [ask("queue.show", {"name": f"mixed.{name}"}) for name in QUEUES]
        return sum(int(one["remaining"]) for one in shown)


def _cores(spent: dict[str, float]) -> dict[str, float]:
    node, clients, busy = (
        spent[f"{name} cores"] / spent["at"] for name in ("node", "client", "busy")
    )
    others = max(0.0, busy - node - clients)
    return {"node": round(node, 3), "clients": round(clients, 3), "others": round(others, 3)}


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder; one may go while it is looked at."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
