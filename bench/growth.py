"""W9, growth: what a message costs at 1, 10, 100, 1,000 destinations or connections, and with 1,
1,000, 1,000,000 messages waiting. `python -m bench.growth --plot growth.svg`.

At every size the same is done: bursts of 100 messages to one place after the other, received and
acknowledged together, by hand: the library would send the acknowledgements of several bursts at
once where they are a session's. So the cost of a message must be the same; the plot is of the
node's CPU.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

import hms
from bench.plot import picture_file, plot
from hms.boot.bench.machine import usage
from hms.boot.bench.systems import HMS, Needs, Running

__all__ = ["main"]

_BURST = 100
_SIZE = 128
_PREFETCH = 2 * _BURST
_FILL = 10_000
_WAIT_S = 60
TENFOLDS = (1, 10, 100, 1000)
WAITING = (1, 1000, 1_000_000)
Places = list[tuple[Any, Any, Any]]
"""A session, a producer and a consumer of each place."""


class Cost(msgspec.Struct, kw_only=True):
    """What a message cost, sent and received, at one size; in microseconds."""

    dimension: str
    size: int
    node_us: float
    client_us: float
    wall_us: float


@contextmanager
def _destinations(running: Running, size: int) -> Iterator[Places]:
    """One connection, many queues."""
    with hms.connect(running.address) as connection, _session(connection) as session:
        yield [_place(session, f"queue:q{i}") for i in range(size)]


@contextmanager
def _connections(running: Running, size: int) -> Iterator[Places]:
    """Many connections, one queue each."""
    with ExitStack() as stack:
        places = []
        for i in range(size):
            connection = stack.enter_context(hms.connect(running.address))
            session = stack.enter_context(_session(connection))
            places.append(_place(session, f"queue:q{i}"))
        yield places


@contextmanager
def _waiting(running: Running, size: int) -> Iterator[Places]:
    """One queue in which so many messages stay."""
    with _destinations(running, 1) as places:
        left = size
        while left:
            count = min(left, _FILL)
            places[0][1].send_many([bytes(_SIZE)] * count)
            left -= count
        yield places


def _session(connection: hms.Connection) -> Any:
    return connection.session(ack=hms.AckMode.CLIENT)


def _place(session: Any, name: str) -> tuple[Any, Any, Any]:
    return session, session.producer(name), session.consumer(name, prefetch=_PREFETCH)


_DIMENSIONS: dict[str, tuple[Callable[..., Any], Sequence[int]]] = {
    "destinations": (_destinations, TENFOLDS),
    "connections": (_connections, TENFOLDS),
    "waiting messages": (_waiting, WAITING),
}


def _work(places: Places, count: int) -> None:
    """Bursts to one place after the other, each received before the next."""
    bodies = [bytes(_SIZE)] * _BURST
    for number in range(count // _BURST):
        session, producer, consumer = places[number % len(places)]
        producer.send_many(bodies)
        for _ in range(_BURST):
            assert consumer.receive(_WAIT_S) is not None, "a message did not come"
        session.ack()


def _measure(dimension: str, size: int, count: int, folder: Path) -> Cost:
    opened, _ = _DIMENSIONS[dimension]
    queues = tuple(f"q{i}" for i in range(max(TENFOLDS)))
    needs = Needs(queues=queues, node={"max_memory_bytes": "4 GiB"})
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place,
        HMS.run(Path(place), needs) as running,
        opened(running, size) as places,
    ):
        _work(places, max(count // 10, len(places) * _BURST))
        node_s, _ = usage(running.pids)
        client_s, begin = time.process_time(), time.perf_counter()
        _work(places, count)
        wall_s = time.perf_counter() - begin
        client_s = time.process_time() - client_s
        node_s = usage(running.pids)[0] - node_s
    return Cost(
        dimension=dimension,
        size=size,
        node_us=node_s / count * 1e6,
        client_us=client_s / count * 1e6,
        wall_us=wall_s / count * 1e6,
    )


def _median(costs: Sequence[Cost]) -> Cost:
    first = costs[0]
    middle = {
        name: round(statistics.median(getattr(cost, name) for cost in costs), 2)
        for name in ("node_us", "client_us", "wall_us")
    }
    return Cost(dimension=first.dimension, size=first.size, **middle)


def _growth(dimension: str, options: argparse.Namespace) -> list[Cost]:
    """Run after run over all sizes, so that a slow minute meets them all."""
    _, sizes = _DIMENSIONS[dimension]
    found: dict[int, list[Cost]] = {size: [] for size in sizes}
    for _ in range(options.runs):
        for size in sizes:
            found[size].append(_measure(dimension, size, options.count, options.data))
    return [_median(costs) for costs in found.values()]


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Whether the cost of a message grows.")
    made.add_argument("dimension", nargs="*", help=f"of {', '.join(_DIMENSIONS)}; all if none")
    made.add_argument("--runs", type=int, default=3)
    made.add_argument("--count", type=int, default=40_000)
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    made.add_argument(
        "--plot", type=picture_file, help="an SVG of the node's CPU, relative to the first"
    )
    made.add_argument("--json", type=Path)
    return made


def _say(cost: Cost, first: Cost) -> None:
    print(
        f"{cost.dimension:18} {cost.size:9,}  node {cost.node_us:7.1f} µs  "
        f"client {cost.client_us:7.1f} µs  wall {cost.wall_us:7.1f} µs  "
        f"x {cost.node_us / first.node_us:.2f}",
        flush=True,
    )


def main() -> None:
    """Measure, print the table, and draw the plot."""
    options = _parser().parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection has six descriptors
    lines: dict[str, list[tuple[float, float]]] = {}
    every: list[Cost] = []
    for dimension in options.dimension or _DIMENSIONS:
        costs = _growth(dimension, options)
        every += costs
        lines[dimension] = [(cost.size, cost.node_us / costs[0].node_us) for cost in costs]
        for cost in costs:
            _say(cost, costs[0])
    if options.plot:
        title = "CPU of the node for one message, relative to the smallest size"
        options.plot.write_text(plot(lines, title), encoding="utf-8")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(every)) + b"\n")


if __name__ == "__main__":
    main()
