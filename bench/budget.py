"""The largest legal instance of each command beside a light load on a real node.

    python bench/budget.py [--waiting 100000] [--times 3] [--command NAME]

A table: how long the engine's lock was held at most during the command, and the slowest of the
others' requests. Below it the 99th percentile of all of them. Those are a persistent send and its
receipt every 5 ms, from a process of its own.
"""

import argparse
import itertools
import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import zmq

import hms
import hms.testing
from hms.wire import structures as wire
from hms.wire.client_identity import uid_of
from hms.wire.frames import Kind, decode_delivery, decode_envelope, frame
from hms.wire.packed_messages import unpack_delivered
from tests.support.largest import LARGEST

ROOT = Path(__file__).parents[1]
ANSWERS = (Kind.REPLY, Kind.ERROR, Kind.CONFIRM, Kind.WELCOME, Kind.BROWSED, Kind.ANSWER)
CONFIG = {
    "hms": {"queue": {"long": {}, "work": {}, "light": {}}, "topic": {"news": {}}},
    "node": {"node1": {"heartbeat_s": 60}},
}
UNANSWERED = (Kind.GOODBYE, Kind.HEARTBEAT, Kind.RESULT, Kind.TALK)


class Peer:
    """A client by hand."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self._correlations = itertools.count(1)
        self._delivered: list[int] = []
        secret = next(_SECRETS)
        self.ask(Kind.HELLO, wire.encode(wire.Hello(uid_of(secret), secret=secret)))
        self.request(wire.OpenSession(1, 2))

    def ask(self, kind: Kind, payload: bytes) -> Any:
        """Send, and wait for the answer."""
        correlation = next(self._correlations)
        self._socket.send_multipart(frame(kind, payload, correlation))
        while kind not in UNANSWERED:
            answer, data = self._read()
            if answer.correlation == correlation and answer.kind in ANSWERS:
                return wire.decode_reply(data) if answer.kind is Kind.REPLY else None
        return None

    def request(self, request: Any) -> Any:
        """The same, of a request."""
        return self.ask(Kind.REQUEST, wire.encode(request))

    def wait_for(self, messages: int) -> list[int]:
        """The ids of so many messages, once they are delivered."""
        while len(self._delivered) < messages:
            self._read()
        found, self._delivered = self._delivered, []
        return found

    def _read(self) -> tuple[Any, bytes]:
        while not self._socket.poll(5000):
            self._socket.send_multipart(frame(Kind.HEARTBEAT))
        head, data = self._socket.recv_multipart()
        envelope = decode_envelope([head, data], 1 << 31)
        if envelope.kind is Kind.DELIVER:
            _, count, at = decode_delivery(data)
            self._delivered += [row.message_id for row, *_ in unpack_delivered(data, count, at)]
        return envelope, data

    def close(self) -> None:
        """Without a good-bye."""
        self._context.destroy(0)


_SECRETS = (b"%016d" % n for n in itertools.count(1))


def light(address: str) -> None:
    """Until the standard input ends; a line with time and duration for each round."""
    with hms.connect(address) as conn, conn.session() as session:
        producer, consumer = session.producer("light"), session.consumer("light")
        times: list[tuple[float, float]] = []
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            began = time.monotonic()
            producer.send(b"light")
            consumer.receive(60)
            times.append((began, time.monotonic() - began))
    print(json.dumps(times))


def measure(address: str, name: str, waiting: int, others: list[tuple[float, float]]) -> float:
    """The command, once; how long it took. others: when it began and ended."""
    peer = Peer(address)
    kind, payload = LARGEST[name](peer, waiting)
    began = time.monotonic()
    if kind is Kind.HELLO:
        Peer(address).close()
    else:
        peer.ask(kind, payload)
        if kind is not Kind.GOODBYE:
            peer.request(wire.Administer("status"))
    others.append((began, time.monotonic()))
    peer.close()
    return time.monotonic() - began


def main() -> None:
    """Each command some times; the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--command", action="append", help="this one alone; may be repeated")
    parser.add_argument("--light", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.light:
        light(options.light)
        return
    with hms.testing.node(config=CONFIG) as node:
        command = [sys.executable, __file__, "--light", node.address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=ROOT, **pipes) as load:
            assert load.stdout is not None
            load.stdout.readline()
            spans: dict[str, list[tuple[float, float]]] = {}
            took = {}
            for name in options.command or sorted(LARGEST):
                for _ in range(options.times):
                    spans.setdefault(name, [])
                    took[name] = measure(node.address, name, options.waiting, spans[name])
                    print(f"{name} {took[name]:.3f}", file=sys.stderr, flush=True)
                    _empty(node.address)
            said, _ = load.communicate("")
        with hms.connect(node.address) as conn:
            status = conn.administer("status")
    _tell(json.loads(said), spans, took, status)


def _empty(address: str) -> None:
    with hms.connect(address) as conn:
        for queue in ("long", "work"):
            conn.administer("queue.purge", {"name": queue})


def _tell(
    times: list[tuple[float, float]],
    spans: dict[str, list[tuple[float, float]]],
    took: dict[str, float],
    status: dict[str, Any],
) -> None:
    during: list[float] = []
    print(f"{'command':18} {'took ms':>9} {'slowest of the others, ms':>26}")
    for name, found in spans.items():
        own = [t for at, t in times if any(at < end and at + t > start for start, end in found)]
        during += own
        print(f"{name:18} {took[name] * 1000:9.1f} {max(own, default=0) * 1000:26.1f}")
    for what, some in (("during a command", during), ("at any time", [t for _, t in times])):
        ordered = sorted(some)
        p99 = ordered[int(len(ordered) * 0.99)] * 1000
        print(f"{what}: {len(some)} rounds of the others, p99 {p99:.1f} ms")
    print({key: value for key, value in status.items() if key.startswith("lock_")})


if __name__ == "__main__":
    main()
