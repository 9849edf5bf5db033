"""A node under load while Spark reads its history: how many sends a second are left.

    python -m bench.spark_beside [--seconds S] [--rounds N] [--json]

Three states take turns: alone; with Spark reading the whole log again and again; and with as many
processes that only compute as Spark has tasks. On a machine with few cores the last one says how
much of the loss is the processor's, and not the log's.
"""

import argparse
import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hms
import hms.testing
from hms.history import session

BODY = bytes(1024)
AT_ONCE = 1000
TASKS = 2
CONFIG = {"hms": {"queue": {"busy": {}}}}


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    spark = session("bench", f"local[{TASKS}]")
    with hms.testing.node(config=CONFIG) as node:
        states: dict[str, Callable[[], Any]] = {
            "alone": _alone,
            "with Spark reading": lambda: _reading(spark, str(node.store)),
            "with processes computing": _computing,
        }
        rates: dict[str, list[float]] = {name: [] for name in states}
        for _ in range(options.rounds):
            for name, state in states.items():
                with state() as done:
                    rates[name].append(_sends(node.address, options.seconds))
                if done:
                    print(f"  {done[0]} scans of up to {done[1]:,} rows", flush=True)
    spark.stop()
    middle = {name: statistics.median(found) for name, found in rates.items()}
    if options.json:
        print(json.dumps(middle))
        return
    for name, rate in middle.items():
        print(f"{name:26} {rate:>9,.0f} durable sends/s  {rate / middle['alone']:.2f}")


def _sends(address: str, seconds: float) -> float:
    """Durable sends of 1 KiB, received beside; the rate at which they are confirmed."""
    with hms.connect(address) as connection, connection.session() as own:
        stopping = threading.Event()
        receiver = threading.Thread(target=_receive, args=(address, stopping))
        receiver.start()
        producer = own.producer(hms.Queue("busy"))
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            producer.send_many([BODY] * AT_ONCE)
            count += AT_ONCE
        rate = count / (time.perf_counter() - began)
        stopping.set()
        receiver.join()
    return rate


def _receive(address: str, stopping: threading.Event) -> None:
    with hms.connect(address) as connection, connection.session() as own:
        consumer = own.consumer(hms.Queue("busy"))
        while not stopping.is_set():
            consumer.receive(timeout_s=0.1)


@contextmanager
def _alone() -> Iterator[list[int]]:
    yield []


@contextmanager
def _reading(spark: Any, store: str) -> Iterator[list[int]]:
    """Spark reads until the block ends; how often, and how many rows at most."""
    stopping, done = threading.Event(), [0, 0]

    def read() -> None:
        while not stopping.is_set():
            rows = spark.read.format("hms").load(store)
            done[:] = [done[0] + 1, max(done[1], rows.count())]

    reader = threading.Thread(target=read)
    reader.start()
    yield done
    stopping.set()
    reader.join()


@contextmanager
def _computing() -> Iterator[list[int]]:
    processes = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(TASKS)]
    for process in processes:
        process.start()
    yield []
    for process in processes:
        process.terminate()
        process.join()


def _compute() -> None:
    while True:
        sum(range(10_000))


if __name__ == "__main__":
    main()
