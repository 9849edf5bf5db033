"""Copies of the log, measured: what they cost, what a slow one costs, how fast a new one comes.

    python -m bench.ha [W1 W2 W3 W4] [--runs 5] [--data FOLDER]  three copies beside the local log
    python -m bench.ha --failover 50 [--waiting 1000000]      what a client waits for
    python -m bench.ha --short                                all of it in two minutes

All copies, their clients and the etcd share this machine: the ratios say what three processes cost
here, not what three machines do. A stalled copy is one that is stopped (SIGSTOP) when all count.
RabbitMQ with quorum queues on three nodes, and with --failover NATS with a stream of three
replicas, are measured beside it where they are installed, as `scripts/setup bench` does.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.command import parser, said, show, workloads
from bench.ha_failover import failover
from bench.ha_gaps import Gaps
from bench.ha_machines import group, wait_for
from bench.ha_peers import PEERS, peer_failover
from bench.peers.rabbitmq import RABBITMQ_QUORUM_3
from bench.peers.server import Peer
from hms.boot.bench.pairs import Row, compare
from hms.boot.bench.systems import HMS, HmsSystem, Needs, Running, System
from hms.store.journal.disk import READ, REAL_DISK
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.segment_walk import last_written, opened

__all__ = ["CatchUp", "Copies", "catch_up", "main"]

USUAL = ("W1", "W2", "W3", "W4")
SHORT = {"W1": 300, "W2": 20_000, "W3": 20_000, "W4": 10_000}
FAULTS = ("crash", "loss", "stall", "move")
CATCH_UP_BODY = 64 << 10
LEASE_S = 10
"""Where nothing fails, no other copy is to take over as a busy machine stands still."""


class Copies(HmsSystem):
    """The same node with so many copies of its log; is_stalled: one of them is stopped."""

    durability = "synced by a majority of the copies before it is confirmed"

    def __init__(self, copies: int, *, is_stalled: bool = False) -> None:
        self._copies, self._is_stalled = copies, is_stalled
        self.name = f"hms, {copies} copies{', 1 stalled' if is_stalled else ''}"

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Boot them; clients are given the one that leads."""
        config = self.config(needs)
        own = config.pop("node")["node1"]
        with group(folder, self._copies, config, lease_s=LEASE_S, node=own) as machines:
            leader = machines.leader
            if self._is_stalled:
                next(one for one in machines.machines if one is not leader).pause()
            yield Running(leader.address, tuple(one.pid for one in machines.machines))


class CatchUp(NamedTuple):
    """How a new copy came up, from when it was there until it counted: MiB/s of the log beside
    those of cp, and what others did meanwhile, in sends a second, beside those before."""

    mib: float
    copy_mib_s: float
    cp_mib_s: float
    sends_s: float
    sends_before_s: float

    def __str__(self) -> str:
        return (
            f"catch-up of {self.mib:,.0f} MiB: {self.copy_mib_s:,.0f} MiB/s, cp and sync "
            f"{self.cp_mib_s:,.0f}, ratio {self.copy_mib_s / self.cp_mib_s:.2f}; foreground "
            f"{self.sends_s:,.0f} sends/s, {self.sends_before_s:,.0f} before, ratio "
            f"{self.sends_s / self.sends_before_s:.2f}"
        )


def catch_up(folder: Path, mib: int, before_s: float) -> CatchUp:
    """Two copies with so many MiB of live messages; the third one comes with an empty store."""
    config: dict[str, Any] = {"hms": {"queue": {"bench": {}, "waiting": {}}}}
    node = {"segment_bytes": "64 MiB", "max_memory_bytes": "4 GiB"}
    with group(folder, 3, config, lease_s=LEASE_S, node=node) as machines:
        new = next(one for one in machines.machines if one is not machines.leader)
        new.stop()
        shutil.rmtree(new.store)
        with machines.connect() as connection, connection.session() as session:
            producer = session.producer("waiting")
            for _ in range(mib):
                producer.send_many([os.urandom(CATCH_UP_BODY)] * ((1 << 20) // CATCH_UP_BODY))
            store = machines.leader.store
            size_mib, cp_mib_s = _cp(store, folder / "cp")
            with machines.connect() as asking, _Sends(session.producer("bench")) as sends:

                def row() -> dict[str, Any]:
                    rows = asking.administer("status")["replication"]["replicas"]
                    return next((o for o in rows if _is_here(o, new.folder.name)), {})

                begun_s = time.monotonic()
                wait_for(lambda: not row() and time.monotonic() - begun_s > before_s, "the sends")
                before = sends.rate(begun_s, time.monotonic())
                booting = threading.Thread(target=new.boot)
                booting.start()
                wait_for(row, "the new copy")
                begun_s = time.monotonic()
                wait_for(lambda: _counts(row()), "all of the log")
                ended_s = time.monotonic()
                booting.join()
            meanwhile = sends.rate(begun_s, ended_s)
    return CatchUp(size_mib, size_mib / (ended_s - begun_s), cp_mib_s, meanwhile, before)


def _is_here(row: dict[str, Any], name: str) -> bool:
    return row["replica"] == name and bool(row["is_heard"])


def _counts(row: dict[str, Any]) -> bool:
    return bool(row.get("is_in_sync") and row["is_member"])


class _Sends:
    """One producer that sends one hundred at a time, in a thread, until the block ends."""

    def __init__(self, producer: Any) -> None:
        self._producer, self._is_over = producer, False
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            self._producer.send_many([b"x" * 1024] * 100)
            self._times.append(time.monotonic())

    def rate(self, begun_s: float, ended_s: float) -> float:
        """Sends a second between two moments; those on their way at either end by their part, so
        the last ones are waited for."""
        wait_for(lambda: self._times[-1:] >= [ended_s] or not self._thread.is_alive(), "a send")
        count = 0.0
        for before_s, at_s in pairwise(list(self._times)):
            part_s = min(at_s, ended_s) - max(before_s, begun_s)
            count += 100 * max(0.0, part_s) / (at_s - before_s)
        return count / (ended_s - begun_s)


def _cp(store: Path, to: Path) -> tuple[float, float]:
    """MiB of the log's files, and MiB/s of a copy of them that is synced."""
    files = [file for file in store.glob("*.log") if file.is_file()]
    sizes = {file: _written(file) for file in files}
    to.mkdir()
    begun_s = time.monotonic()
    for file, size in sizes.items():
        with file.open("rb") as source, (to / file.name).open("wb") as target:
            for at in range(0, size, 1 << 20):
                target.write(source.read(min(1 << 20, size - at)))
            target.flush()
            os.fsync(target.fileno())
    taken_s = time.monotonic() - begun_s
    shutil.rmtree(to)
    size_mib = sum(sizes.values()) / (1 << 20)
    return size_mib, size_mib / taken_s


def _written(file: Path) -> int:
    """Up to where a segment is not zero."""
    with opened(REAL_DISK, file, READ) as fd:
        return last_written(REAL_DISK, fd, SEGMENT_HEADER_BYTES)


def _systems(copies: int, *, is_short: bool) -> list[System]:
    found: list[System] = [HMS, Copies(copies), Copies(copies, is_stalled=True)]
    if is_short:
        return found  # three servers of RabbitMQ take a minute to come up
    if _is_there(RABBITMQ_QUORUM_3):
        found.append(RABBITMQ_QUORUM_3)
    return found


def _is_there(peer: Peer) -> bool:
    """Whether it is installed; it says so where it is not."""
    if missing := peer.missing():
        said(f"{peer.name} is skipped: {', '.join(missing)} is not installed (scripts/setup bench)")
    return not missing


def _faults() -> Sequence[str]:
    if shutil.which("ip") is None or os.geteuid() != 0 or shutil.which("openssl") is None:
        said("loss is skipped: it needs network namespaces, the commands ip and openssl, and root")
        return [one for one in FAULTS if one != "loss"]
    return FAULTS


def main() -> list[Row | CatchUp | Gaps]:
    """Print what was asked for; all that was found."""
    made = parser("Measure copies of the log.")
    made.add_argument("--copies", type=int, default=3)
    made.add_argument("--failover", type=int, metavar="N", help="each fault so many times")
    made.add_argument("--waiting", type=int, default=1_000_000, help="messages of --failover")
    made.add_argument("--lease-s", type=float, default=3)
    made.add_argument("--catch-up-mib", type=int, default=1024)
    made.add_argument("--short", action="store_true", help="all of it in two minutes")
    options = made.parse_args()
    if shutil.which("etcd") is None:
        sys.exit("etcd is not installed (Debian: apt install etcd-server)")
    said(f"load of this machine: {' '.join(f'{one:.1f}' for one in os.getloadavg())}")
    options.workload = options.workload or list(USUAL)
    found: list[Row | CatchUp | Gaps] = []
    with tempfile.TemporaryDirectory(prefix="bench-ha-", dir=options.data) as name:
        folder = Path(name)
        if options.short or options.failover is None:
            found += _throughput(options)
            mib, before_s = (64, 2.0) if options.short else (options.catch_up_mib, 10.0)
            found.append(catch_up(folder / "catch-up", mib, before_s))
            print(found[-1])
        if options.short or options.failover is not None:
            times, waiting = options.failover or 2, options.waiting
            waiting = min(waiting, 10_000) if options.short else waiting
            found += failover(folder, _faults(), times, waiting, options.lease_s, print)
            for kind in () if options.short else PEERS:
                if _is_there(kind.peer):
                    found += peer_failover(folder, kind, times, waiting, print)
    return found


def _throughput(options: Any) -> list[Row]:
    """Rows of each workload; a ratio is that of the local log to the row's."""
    rows: list[Row] = []
    runs = 1 if options.short else options.runs
    for workload in workloads(options):
        is_own = not options.short or options.count
        one = workload if is_own else replace(workload, count=SHORT.get(workload.name, 1000))
        rows += compare(
            _systems(options.copies, is_short=options.short), one, options.data, runs, said
        )
    show(options, rows)
    return rows


if __name__ == "__main__":
    main()
