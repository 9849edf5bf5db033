"""The mixed load on one node: its clients and probes, its legs, its books."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_bytes

import msgspec

from bench.mixed_client_pool import Client, Process, client_pool, probe
from bench.mixed_figures import Books
from bench.mixed_histogram import Histogram
from bench.mixed_maximum import Kept
from bench.mixed_pauses import Pause, Pauses
from bench.mixed_probe import Glance
from bench.mixed_words import KINDS, Leg, Part, Said, parts
from hms.boot.bench.client_pool import BenchFailed
from hms.boot.bench.machine import process_tree
from hms.testing import TestNode, node

__all__ = ["CONFIG", "QUEUES", "Run", "mixed_run"]

DRAIN_S = 90.0
_LATE_NS = 2_000_000_000
QUEUES = ("queue", "move", "moved", "large")
_NODE = {
    "segment_bytes": "64 MiB",
    "history_bytes": "1 GiB",
    "max_pending_bytes": "512 MiB",
}
CONFIG = {
    "node": {"node1": _NODE},
    "hms": {
        "queue": {f"mixed.{name}": {} for name in QUEUES},
        "topic": {"mixed.topic": {}},
    },
}


class Run:
    """A node under load; see mixed_run()."""

    def __init__(self, running: TestNode) -> None:
        self.node = running
        self.pauses = Pauses()
        self.clients: list[Client] = []
        self.probes: list[Process] = []
        self.names: dict[int, str] = {}
        self._lock = threading.Lock()
        self._times = {name: Histogram() for name in KINDS}
        self._legs = 0

    # ---- what clients and probes say

    def heard(self, part: Part, said: Said) -> None:
        """A report of a client."""
        with self._lock:
            self._times[part.kind.name].add(said.counts, said.most_us)
            for begin_ns, end_ns, *worst in said.slow:
                self.pauses.slow(part.kind.name, begin_ns, end_ns, (worst[0], worst[1]))

    def saw(self, line: bytes) -> None:
        """A line of a probe; a thread gets the name of what it belongs to."""
        glance = msgspec.json.decode(line, type=Glance)
        if glance.who:
            pid, _, thread = glance.who.partition("/")
            who = f"{self.names[int(pid)]} {thread}"
            glance = msgspec.structs.replace(glance, who=who)
        with self._lock:
            self.pauses.saw(glance)

    def settled(self, *, is_last: bool = False) -> list[Pause]:
        """The pauses that are over by now, explained."""
        with self._lock:
            return self.pauses.settle(time.monotonic_ns() - (0 if is_last else _LATE_NS))

    def forget(self) -> None:
        """What was measured until now is not of the run; the books go on."""
        with self._lock:
            self.pauses.forget()
            self._times = {name: Histogram() for name in KINDS}

    def books(self) -> dict[str, Books]:
        """What was sent and what arrived, by kind."""
        found = {name: Books(copies=kind.copies) for name, kind in KINDS.items()}
        for client in self.clients:
            found[client.part.kind.name].add(client.said)
        return found

    @property
    def backlog(self) -> int:
        """How many messages have not arrived, as far as was reported."""
        return sum(one.missing for one in self.books().values())

    # ---- legs

    def begin(self, rate: float, seconds: float) -> Leg:
        """Let all senders begin a leg together."""
        leg = Leg(time.monotonic_ns() + 200_000_000, seconds, rate)
        for client in self.clients:
            if client.is_sender:
                client.begin(leg)
        self._legs += 1
        return leg

    def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Until the senders are done and all has arrived; BenchFailed."""
        until = time.monotonic() + timeout_s
        while not self._is_drained():
            self.check()
            if time.monotonic() > until:
                raise BenchFailed(f"{self.backlog:,} messages have not come in {timeout_s:g} s")
            time.sleep(0.1)

    def _is_drained(self) -> bool:
        senders = [client for client in self.clients if client.is_sender]
        return all(one.said.legs_done >= self._legs for one in senders) and self.backlog <= 0

    def step(self, rate: float, seconds: float) -> Kept:
        """A short leg, until its last message arrived."""
        self.times()
        leg = self.begin(rate, seconds)
        time.sleep(seconds)
        self.drain()
        last_ns = max(client.said.last_ns for client in self.clients)
        worst_us = max(kind.percentile_us(99) for kind in self.times().values())
        return Kept(seconds / max(seconds, (last_ns - leg.begin_ns) / 1e9), worst_us / 1000)

    def check(self) -> None:
        """BenchFailed when a client or the node has failed."""
        if not self.node.is_running:
            raise BenchFailed(f"the node has ended: {self.node.log[-500:]}")
        for client in self.clients:
            client.check()

    def end_senders(self) -> None:
        """They disconnect when all is confirmed."""
        for client in self.clients:
            if client.is_sender:
                client.end()
                if client.said.error:
                    raise BenchFailed(f"{client.name}: {client.said.error}")

    def times(self) -> dict[str, Histogram]:
        """The latencies since this was last asked for, by kind."""
        with self._lock:
            found, self._times = self._times, {name: Histogram() for name in KINDS}
        return found


def _probes(run: Run, folder: Path, stack: ExitStack) -> list[Process]:
    run.names = dict.fromkeys(process_tree(run.node.pid), "call service")
    run.names |= {client.pid: client.name for client in run.clients}
    run.names[run.node.pid] = "node"
    commands = (["disk", str(folder)], ["machine"], ["waits", *map(str, run.names)])
    return [stack.enter_context(probe(command, run.saw)) for command in commands]


@contextmanager
def mixed_run(folder: Path) -> Iterator[Run]:
    """A node with an empty store in this folder, its clients and the probes, all ready."""
    with ExitStack() as stack:
        serve = ["hms.boot.bench.echo"]
        running = stack.enter_context(node(store=folder / "store", config=CONFIG, serve=serve))
        run = Run(running)
        wanted = parts(running.address, token_bytes(8))
        run.clients = stack.enter_context(client_pool(wanted, run.heard))
        run.probes = _probes(run, folder, stack)
        yield run
