"""Calls against a bare echo: `python -m bench.calls [--calls N] [--json]`.

Both go from a client through one router process to one worker process and back. The bare one is
ZeroMQ alone: a ROUTER in front, a DEALER behind, zmq.proxy between, and a worker that sends back
what it gets. The other is a node with one server process that runs ECHO. Measured in the same run,
by turns, so that the ratio does not hang on the machine: the round trip, one call at a time, and
calls a second with several in flight.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import zmq

import hms
from hms.testing import node

__all__ = ["main"]

BODY = b"x" * 100
IN_FLIGHT = 32
WARM_UP = 200
ROUNDS = 3
_PROXY = """
import sys, zmq
context = zmq.Context()
front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
ports = [s.bind_to_random_port("tcp://127.0.0.1") for s in (front, back)]
print(*ports, flush=True)
zmq.proxy(front, back)
"""
_WORKER = """
import sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.connect(sys.argv[1])
while True:
    socket.send(socket.recv())
"""
CONFIG = '[server.echo]\nmodule = "hms.boot.bench.echo"\n'

Figures = dict[str, float]


@contextmanager
def bare() -> Iterator[zmq.Socket[bytes]]:
    """A client socket whose requests come back through router and worker."""
    proxy = subprocess.Popen([sys.executable, "-c", _PROXY], stdout=subprocess.PIPE, text=True)
    assert proxy.stdout is not None
    front, back = proxy.stdout.readline().split()
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, f"tcp://127.0.0.1:{back}"])
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.connect(f"tcp://127.0.0.1:{front}")
    try:
        yield client
    finally:
        client.close(0)
        context.term()
        for process in (proxy, worker):
            process.kill()
            process.wait()


def bare_round_trips(client: "zmq.Socket[bytes]", count: int) -> list[float]:
    """Seconds of each of so many round trips."""

    def one() -> None:
        client.send_multipart([b"", BODY])
        client.recv_multipart()

    return [_timed(one) for _ in range(count)]


def bare_rate(client: "zmq.Socket[bytes]", count: int) -> float:
    """Round trips a second, several in flight."""
    begin, sent = time.perf_counter(), 0
    for got in range(count):
        while sent < count and sent - got < IN_FLIGHT:
            client.send_multipart([b"", BODY])
            sent += 1
        client.recv_multipart()
    return count / (time.perf_counter() - begin)


def call_round_trips(conn: hms.Connection, count: int) -> list[float]:
    """Seconds of each of so many calls."""
    return [_timed(lambda: conn.call("ECHO", BODY)) for _ in range(count)]


def call_rate(conn: hms.Connection, count: int) -> float:
    """Calls a second, several in flight."""
    begin = time.perf_counter()
    waiting: list[Future[Any]] = []
    for _ in range(count):
        waiting.append(conn.call_async("ECHO", BODY))
        if len(waiting) >= IN_FLIGHT:
            waiting.pop(0).result(30)
    for future in waiting:
        future.result(30)
    return count / (time.perf_counter() - begin)


def _timed(one: Callable[[], object]) -> float:
    begin = time.perf_counter()
    one()
    return time.perf_counter() - begin


def measure(calls: int) -> Figures:
    """The figures of both, and their ratios."""
    trips: dict[str, list[float]] = {"bare": [], "call": []}
    rates: dict[str, list[float]] = {"bare": [], "call": []}
    with bare() as client, node(config=CONFIG) as started, hms.connect(started.address) as conn:
        bare_round_trips(client, WARM_UP)
        call_round_trips(conn, WARM_UP)
        for _ in range(ROUNDS):
            trips["bare"] += bare_round_trips(client, calls)
            trips["call"] += call_round_trips(conn, calls)
            rates["bare"].append(bare_rate(client, calls))
            rates["call"].append(call_rate(conn, calls))
    bare_us, call_us = (statistics.median(trips[who]) * 1e6 for who in ("bare", "call"))
    bare_s, call_s = (statistics.median(rates[who]) for who in ("bare", "call"))
    return {
        "bare_round_trip_us": round(bare_us, 1),
        "call_round_trip_us": round(call_us, 1),
        "round_trip_ratio": round(call_us / bare_us, 2),
        "bare_per_s": round(bare_s),
        "calls_per_s": round(call_s),
        "rate_ratio": round(call_s / bare_s, 3),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measure(given.calls)
    if given.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
