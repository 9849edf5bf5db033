"""What a subscriber that stopped costs the others: `python bench/slow_consumer.py [--pairs N]`.

Some subscribers, a process each, receive a topic as fast as they can; the publisher is never more
than a window ahead of the slowest. The same messages are published once without and once with one
more subscriber that stopped: idle, it holds its connection and receives nothing; frozen (SIGSTOP),
it does not even read its socket. The two legs alternate in one run, and each pair gives a ratio:
of the rates, and of the node's CPU time, which other work on the machine disturbs less.
"""

import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import hms
from hms.testing import TestNode, node

MIB = 1 << 20
CONFIG = """
[node.node1]
heartbeat_s = 60
max_pending_bytes = "{pending_mib} MiB"
max_message_bytes = "256 KiB"
[hms.topic.news]
"""
BATCH = 250
WINDOW = 8
"""Batches that the publisher may be ahead of a subscriber."""
WAIT_S = 60
NEWS = hms.Topic("news")


# ---- the subscribers' processes


def receive(address: str) -> None:
    """Receive for ever; a line for each batch."""
    with hms.connect(address) as connection, connection.session() as session:
        subscriber = session.subscriber(NEWS)
        print("ready", flush=True)
        for count, _ in enumerate(subscriber, 1):
            if not count % BATCH:
                print(count, flush=True)


def stop(address: str) -> None:
    """Subscribe or stop it, as each line of the input says, and receive nothing."""
    with hms.connect(address) as connection, connection.session() as session:
        subscriber = None
        print("ready", flush=True)
        for _ in sys.stdin:
            if subscriber is None:
                subscriber = session.subscriber(NEWS, prefetch=100)
            else:
                subscriber.close()
                subscriber = None
            print("ready", flush=True)


class Process:
    """One of them, and its output."""

    def __init__(self, address: str, role: str) -> None:
        command = [sys.executable, __file__, "--role", role, "--address", address]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.next_line()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def next_line(self) -> None:
        """Wait for what it says next."""
        try:
            self.lines.get(timeout=WAIT_S)
        except queue.Empty:
            sys.exit("a subscriber stands still; was its window above --pending-mib?")

    def end(self) -> None:
        """Kill it; a frozen one too."""
        self.process.kill()
        self.process.wait(WAIT_S)


class Stopped(Process):
    """A subscriber that receives nothing."""

    @contextmanager
    def subscribed(self, kind: str) -> Iterator[None]:
        """It is subscribed, and idle or frozen, while the block runs."""
        self._toggle()
        if kind == "frozen":
            self.process.send_signal(signal.SIGSTOP)
        yield
        self.process.send_signal(signal.SIGCONT)
        self._toggle()

    def _toggle(self) -> None:
        assert self.process.stdin is not None
        print(file=self.process.stdin)
        self.next_line()


# ---- the legs


class Leg(NamedTuple):
    """Messages a second at each subscriber, and the node's CPU time for a message."""

    rate: float
    cpu_us: float


class Bench:
    """A node, its publisher and its subscribers."""

    def __init__(self, running: TestNode, producer: hms.Producer, options: Namespace) -> None:
        self.running = running
        self.producer = producer
        self.count = options.count
        self.body = random.Random(1).randbytes(options.size)
        self.subscribers = [Process(running.address, "receive") for _ in range(options.subscribers)]
        self.stopped = Stopped(running.address, "stop")

    def end(self) -> None:
        """Kill all of them."""
        for process in (*self.subscribers, self.stopped):
            process.end()

    def leg(self) -> Leg:
        """Publish, and wait until all have received all."""
        started, cpu_s = time.perf_counter(), self._cpu_s()
        batches = self.count // BATCH
        for number in range(batches):
            if number >= WINDOW:
                self._await_batch()
            self.producer.send_many([self.body] * BATCH)
        for _ in range(min(WINDOW, batches)):
            self._await_batch()
        rate = batches * BATCH / (time.perf_counter() - started)
        return Leg(rate, (self._cpu_s() - cpu_s) / (batches * BATCH) * 1e6)

    def _await_batch(self) -> None:
        for subscriber in self.subscribers:
            subscriber.next_line()

    def _cpu_s(self) -> float:
        """CPU time of the node so far; utime and stime are the 14th and 15th field."""
        text = Path(f"/proc/{self.running.pid}/stat").read_text(encoding="ascii")
        ticks = text.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    @property
    def rss_mib(self) -> float:
        """Memory of the node."""
        text = Path(f"/proc/{self.running.pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB

    def pair(self, kind: str, *, is_stopped_first: bool) -> tuple[Leg, Leg]:
        """A leg without and one with a stopped subscriber."""
        legs: dict[bool, Leg] = {}
        for is_stopped in (is_stopped_first, not is_stopped_first):
            with self.stopped.subscribed(kind) if is_stopped else nullcontext():
                legs[is_stopped] = self.leg()
        return legs[False], legs[True]


def _report(options: Namespace, found: dict[str, list[tuple[Leg, Leg]]]) -> None:
    print(f"{options.subscribers} others, medians of {options.pairs} pairs of legs")
    for kind, pairs in found.items():
        without = Leg(*map(statistics.median, zip(*[pair[0] for pair in pairs], strict=True)))
        rate = statistics.median(beside.rate / alone.rate for alone, beside in pairs)
        cpu = statistics.median(beside.cpu_us / alone.cpu_us for alone, beside in pairs)
        print(
            f"{kind:6} {without.rate:7,.0f} messages/s each without, {rate:.3f} of it with;"
            f" node CPU {without.cpu_us:.1f} us a message without, {cpu:.3f} of it with"
        )


def measure(options: Namespace) -> None:
    """All pairs, and the medians."""
    found: dict[str, list[tuple[Leg, Leg]]] = {"idle": [], "frozen": []}
    with (
        node(config=CONFIG.format(pending_mib=options.pending_mib)) as running,
        hms.connect(running.address) as connection,
        connection.session() as session,
    ):
        bench = Bench(running, session.producer(NEWS, persistent=False), options)
        try:
            bench.leg()
            before_mib = bench.rss_mib
            for number in range(options.pairs):
                for kind, pairs in found.items():
                    pairs.append(bench.pair(kind, is_stopped_first=bool(number % 2)))
            after_mib = bench.rss_mib
        finally:
            bench.end()
    _report(options, found)
    print(f"node memory before {before_mib:.1f} MiB, after {after_mib:.1f} MiB")


def main() -> None:
    """The command."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--subscribers", type=int, default=4)
    parser.add_argument("--count", type=int, default=10_000, help="messages of a leg")
    parser.add_argument("--size", type=int, default=512, help="bytes of a message")
    parser.add_argument("--pending-mib", type=int, default=3, help="max_pending_bytes of the node")
    parser.add_argument("--role", choices=["measure", "receive", "stop"], default="measure")
    parser.add_argument("--address", default="")
    options = parser.parse_args()
    if options.role == "measure":
        measure(options)
    else:
        {"receive": receive, "stop": stop}[options.role](options.address)


if __name__ == "__main__":
    main()
