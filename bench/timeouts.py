"""How late time-outs are: `python -m bench.timeouts` prints elapsed minus timeout_s of receive,
call, tpgetrply and send, beside an idle and a busy node, with the node stopped, and of connect
where nothing listens."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hms
import hms.testing
import tpmon
from hms.boot.cli.figures import QUANTILES, percentiles_ms

__all__ = ["main"]

SERVICE = """
import threading
from tpmon import service

@service("SLOW")
def slow(request):
    threading.Event().wait(3600)
"""
CROWD = """
import sys
import hms

with hms.connect(sys.argv[1]) as connection, connection.session() as session:
    queue = hms.Queue("crowd")
    producer, consumer = session.producer(queue), session.consumer(queue)
    print("ready", flush=True)
    while True:
        producer.send_many(bytes(1000) for _ in range(200))
        while consumer.receive_many(200, timeout_s=0):
            pass
"""
CONFIG = {
    "node": {"node1": {"auto_destinations": True, "heartbeat_s": 3600}},
    "server": {"slow": {"module": "slow_service", "MIN": 1, "MAX": 1}},
}
"""A stopped node is to be silent, not lost."""
REFUSED = "tcp://127.0.0.1:1"
Tried = Callable[[], object]


def _beyond_ns(tried: Tried, timeout_s: float) -> int:
    begin = time.perf_counter_ns()
    with contextlib.suppress(hms.HmsError):
        tried()
    return time.perf_counter_ns() - begin - int(timeout_s * 1e9)


def _show(what: str, tried: Tried, count: int, timeout_s: float) -> None:
    late = [_beyond_ns(tried, timeout_s) for _ in range(count)]
    found = percentiles_ms(late)
    cells = "".join(f"{found[name]:10.2f}" for name in (*QUANTILES, "max"))
    print(f"{what:32}{count:7}{cells}", flush=True)


@contextlib.contextmanager
def _crowd(address: str) -> Iterator[None]:
    """Another process that sends and receives without a pause."""
    command = [sys.executable, "-c", CROWD, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def _cases(connection: hms.Connection, timeout_s: float) -> dict[str, tuple[Tried, float]]:
    session = connection.session()
    queue = hms.Queue("nothing")
    consumer = session.consumer(queue)
    return {
        "receive": (lambda: consumer.receive(timeout_s), timeout_s),
        "call": (lambda: connection.call("SLOW", b"", timeout_s=timeout_s), timeout_s),
        "tpcall": (lambda: tpmon.tpcall("SLOW", b"", timeout_s=timeout_s), timeout_s),
    }


def main() -> None:
    """All of them."""
    made = argparse.ArgumentParser(description="How late time-outs are, in ms.")
    made.add_argument("--count", type=int, default=1000)
    made.add_argument("--timeout", type=float, default=0.05)
    options = made.parse_args()
    count, timeout_s = options.count, options.timeout
    print(f"{'ms behind the time-out':32}{'tries':>7}", end="")
    print("".join(f"{name:>10}" for name in (*QUANTILES, "max")))
    bare = threading.Event()
    _show("a bare wait", lambda: bare.wait(timeout_s), count, timeout_s)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "slow_service.py").write_text(SERVICE)
        with hms.testing.node(place / "store", CONFIG, python_path=[place]) as node:
            os.environ["HMS_ADDRESS"] = node.address
            _measure(node, count, timeout_s)
    _show("connect, port refused", lambda: hms.connect(REFUSED), count, 0)


def _measure(node: hms.testing.TestNode, count: int, timeout_s: float) -> None:
    tpmon.tpstart()
    with hms.connect(node.address) as connection:
        cases = _cases(connection, timeout_s)
        for what, (tried, given_s) in cases.items():
            _show(f"{what}, idle node", tried, count, given_s)
        with _crowd(node.address):
            for what, (tried, given_s) in cases.items():
                _show(f"{what}, busy node", tried, count, given_s)
        producer = connection.session().producer(hms.Queue("sent"))
        connection.requests.request_timeout_s = timeout_s  # opening had the usual time
        cases["send"] = (lambda: producer.send(b"x"), timeout_s)
        node.pause()
        try:
            for what, (tried, given_s) in cases.items():
                _show(f"{what}, node stopped", tried, count, given_s)
        finally:
            node.resume()
            connection.requests.request_timeout_s = 30
    tpmon.tpend()


if __name__ == "__main__":
    main()
