"""What waits in one queue costs the others nothing: `python -m bench.backlog`.

Bursts go through one queue, sent and received, while the log turns over ten times; beside them so
many messages of 800 bytes wait in another queue. Of each size the rate of every second is held
against that of an empty node in the same run, one beside the other, several times: the mean, the
worst second, and the node's CPU for each message. Write amplification is what the log appended for
each byte of clients, and disk what the store takes at the end without history; both are counts,
exact on any machine.

    python -m bench.backlog --waiting 150000 1000000 --pairs 3
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import hms
from hms.boot.bench.machine import cpu_s
from hms.testing import TestNode, node

__all__ = ["main"]

_SIZE = 800
_BURST = 500
_WAIT_S = 120
_CONFIG = """
[node.node1]
heartbeat_s = 60
max_message_bytes = "1 MiB"
max_transaction_bytes = "2 MiB"
max_memory_bytes = "4 GiB"
segment_bytes = "{segment_mib} MiB"
{history}
[hms.queue.standing]
[hms.queue.busy]
"""


class Run(msgspec.Struct, kw_only=True):
    """One node's life: messages per second of each whole second, and what its log wrote."""

    waiting: int
    rates: list[int]
    node_us: float
    """CPU of the node for each message: on a busy machine the only figure of time that holds."""
    write_amplification: float
    rewritten_bytes: int
    pinned_bytes: int
    disk_bytes: int

    @property
    def mean(self) -> float:
        """Over all seconds but the first and the last."""
        return statistics.fmean(self.rates[1:-1] or self.rates)

    @property
    def worst(self) -> int:
        """The slowest of these."""
        return min(self.rates[1:-1] or self.rates)


@contextmanager
def _running(options: argparse.Namespace) -> Iterator[TestNode]:
    history = "" if options.history else 'history_bytes = "0 B"'
    config = _CONFIG.format(segment_mib=options.segment_mib, history=history)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.data) as folder,
        node(Path(folder) / "store", config) as found,
    ):
        yield found


def _fill(address: str, count: int) -> None:
    with hms.connect(address) as connection, connection.session() as session:
        producer = session.producer(hms.Queue("standing"))
        for start in range(0, count, _BURST):
            producer.send_many([bytes(_SIZE)] * min(_BURST, count - start))


class _Bursts:
    """A sender and a receiver; how many messages came in each second."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_over = threading.Event()
        self.came: list[int] = [0]

    def _send(self) -> None:
        with hms.connect(self._address) as connection, connection.session() as session:
            producer = session.producer(hms.Queue("busy"))
            while not self._is_over.is_set():
                producer.send_many([bytes(_SIZE)] * _BURST)

    def _receive(self) -> None:
        begun = time.monotonic()
        with hms.connect(self._address) as connection, connection.session() as session:
            consumer = session.consumer(hms.Queue("busy"), prefetch=4 * _BURST)
            while consumer.receive(1 if self._is_over.is_set() else _WAIT_S) is not None:
                second = int(time.monotonic() - begun)
                self.came += [0] * (second + 1 - len(self.came))
                self.came[second] += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the block runs."""
        threads = [threading.Thread(target=one) for one in (self._send, self._receive)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()


def _one(options: argparse.Namespace, waiting: int) -> Run:
    """A node with so many messages standing, through whose log ten times four segments go."""
    with _running(options) as found, hms.connect(found.address) as connection:
        _fill(found.address, waiting)
        before = connection.administer("status")
        ring = max(4 * options.segment_mib << 20, before.get("live_bytes", 0))
        goal = before["appended_bytes"] + options.turns * ring
        bursts, cpu_before_s = _Bursts(found.address), cpu_s(found.pid)
        with bursts.running():
            while connection.administer("status")["appended_bytes"] < goal:
                time.sleep(0.2)
        spent_s = cpu_s(found.pid) - cpu_before_s
        now = connection.administer("status")
        store = Path(str(now["path"]))
        disk = sum(file.stat().st_size for file in store.iterdir() if file.suffix != ".history")
    rewritten = now["rewritten_bytes"] - before["rewritten_bytes"]
    appended = now["appended_bytes"] - before["appended_bytes"]
    return Run(
        waiting=waiting,
        rates=bursts.came,
        node_us=1e6 * spent_s / max(sum(bursts.came), 1),
        write_amplification=appended / (appended - rewritten),
        rewritten_bytes=rewritten,
        pinned_bytes=now["pinned_bytes"],
        disk_bytes=disk,
    )


def _row(empty: Run, run: Run) -> str:
    return (
        f"{run.waiting:>10,} {run.mean:>9,.0f}/s {run.mean / empty.mean:>6.2f} "
        f"{run.worst:>9,}/s {run.worst / empty.mean:>6.2f} {empty.worst / empty.mean:>8.2f} "
        f"{run.node_us:>6.1f} {run.node_us / empty.node_us:>6.2f} "
        f"{run.write_amplification:>7.3f} {run.rewritten_bytes >> 20:>7,} "
        f"{run.pinned_bytes >> 20:>7,} {run.disk_bytes >> 20:>7,}"
    )


def main() -> None:
    """One table; each row beside an empty node of the same moment."""
    made = argparse.ArgumentParser(description="What a backlog costs the other queues.")
    made.add_argument("--waiting", type=int, nargs="*", default=[150_000])
    made.add_argument("--pairs", type=int, default=3)
    made.add_argument("--turns", type=int, default=10)
    made.add_argument("--segment-mib", type=int, default=64)
    made.add_argument("--history", action="store_true", help="keep the past, as by default")
    made.add_argument("--data", type=Path, default=None, help="a disk, not memory")
    options = made.parse_args()
    print(
        "   waiting        mean  ratio      worst  ratio  (empty) CPU us  ratio   ampl. "
        "rewr.MiB pin.MiB disk MiB"
    )
    for waiting in options.waiting:
        pairs = []
        for _ in range(options.pairs):
            empty, run = _one(options, 0), _one(options, waiting)
            pairs.append((empty, run))
            print(_row(empty, run), flush=True)
        means = statistics.median(run.mean / empty.mean for empty, run in pairs)
        worst = statistics.median(run.worst / empty.worst for empty, run in pairs if empty.worst)
        cpu = statistics.median(run.node_us / empty.node_us for empty, run in pairs)
        print(
            f"{waiting:>10,} median of ratios: mean {means:.2f}, worst second {worst:.2f}, "
            f"CPU a message {cpu:.2f}"
        )


if __name__ == "__main__":
    main()
