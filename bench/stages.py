"""Where the time of one durable send goes: `python -m bench.stages`; W1, looked at from inside.

The node and the client note the time where a message passes from one thread or system to the next.
All times are of one clock. What is told is the median of each step over the messages whose steps
came in the most frequent order; noting them costs a few microseconds itself.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import getattr_static
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import hms
from bench.command import said
from hms.boot import node as node_module
from hms.client.core.transport import Transport
from hms.server.broker import Broker
from hms.server.gateway import Gateway
from hms.server.listening_sockets import Listener
from hms.server.lone_frames import LoneFrames
from hms.store.journal.disk import RealDisk
from hms.store.journal.journal import Journal
from hms.testing import node

__all__ = ["main", "measured", "steps_of"]

_WARM_UP = 500
_BEGIN, _END = "send() begins", "send() returns"
Times = list[tuple[str, float]]

NODE_STEPS: tuple[tuple[type, str, str, str], ...] = (
    (Gateway, "_read", "the main thread is awake and reads", ""),
    (LoneFrames, "apply", "frame read, and it is the only one", ""),
    (Broker, "turn", "the engine has it", ""),
    (Journal, "commit", "the engine is done; written to the log", ""),
    (RealDisk, "fdatasync", "the system has it", "it is synced"),
    (Gateway, "put", "checked; the answer is made", ""),
    (Listener, "send", "the answer is given to ZeroMQ", "sent"),
)
"""Class and method, what it means that it begins, and that it ends."""
CLIENT_STEPS: tuple[tuple[type, str, str, str], ...] = (
    (Transport, "send", "encoded; given to ZeroMQ", "given"),
    (Transport, "receive", "the client's thread looks for frames", ""),
)


@contextmanager
def _watched(steps: Sequence[tuple[type, str, str, str]], times: Times) -> Iterator[None]:
    """Within the block the methods note when they are called."""
    plain = [(owner, name, getattr_static(owner, name)) for owner, name, _, _ in steps]
    for (owner, name, begins, ends), (_, _, method) in zip(steps, plain, strict=True):
        noted = _noted(getattr(owner, name), begins, ends, times)
        setattr(owner, name, staticmethod(noted) if isinstance(method, staticmethod) else noted)
    try:
        yield
    finally:
        for owner, name, method in plain:
            setattr(owner, name, method)


def _noted(call: Callable[..., Any], begins: str, ends: str, times: Times) -> Callable[..., Any]:
    def noted(*given: Any, **named: Any) -> Any:
        times.append((begins, perf_counter()))
        try:
            return call(*given, **named)
        finally:
            if ends:
                times.append((ends, perf_counter()))

    return noted


def _serve(out: Path, command: Sequence[str]) -> int:
    """The node: notes its times, and writes them down at its end."""
    times: Times = []
    try:
        with _watched(NODE_STEPS, times):
            return node_module.main(command[command.index("hms.boot.node") + 1 :])
    finally:
        out.write_text(json.dumps(times), encoding="utf-8")


def _send(address: str, count: int) -> Times:
    times: Times = []
    body = bytes(1024)
    with (
        _watched(CLIENT_STEPS, times),
        hms.connect(address) as connection,
        connection.session() as session,
    ):
        producer = session.producer("queue:bench", persistent=True)
        for _ in range(_WARM_UP):
            producer.send(body)
        for _ in range(count):
            times.append((_BEGIN, perf_counter()))
            producer.send(body)
            times.append((_END, perf_counter()))
    return times


def measured(count: int, folder: Path) -> Times:
    """The times of node and client, in order."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        out = Path(place) / "times.json"
        prefix = [sys.executable, "-m", "bench.stages", "--serve", str(out)]
        config = {"hms": {"queue": {"bench": {}}}}
        with node(store=Path(place) / "store", config=config, command_prefix=prefix) as running:
            of_client = _send(running.address, count)
            running.stop()
        of_node = [(step, at) for step, at in json.loads(out.read_text(encoding="utf-8"))]
    return sorted(of_client + of_node, key=itemgetter(1))


def steps_of(times: Times) -> tuple[list[tuple[str, float]], int]:
    """The usual steps of a message with the median microseconds since its beginning, and how many
    messages went that way."""
    messages: list[Times] = []
    for step, at in times:
        if step == _BEGIN:
            messages.append([])
        if messages and (not messages[-1] or messages[-1][-1][0] != _END):
            messages[-1].append((step, at))
    ways = Counter(tuple(step for step, _ in message) for message in messages)
    usual, count = ways.most_common(1)[0]
    same = [message for message in messages if tuple(step for step, _ in message) == usual]
    return [
        (step, statistics.median((message[i][1] - message[0][1]) * 1e6 for message in same))
        for i, step in enumerate(usual)
    ], count


def main() -> int:
    """Measure and tell."""
    made = argparse.ArgumentParser(description="Where the time of one durable send goes.")
    made.add_argument("--count", type=int, default=3000)
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    made.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options, rest = made.parse_known_args()
    if options.serve is not None:
        return _serve(options.serve, rest)
    steps, count = steps_of(measured(options.count, options.data))
    before = 0.0
    for step, at in steps:
        print(f"{at:8.1f} us  + {at - before:6.1f}  {step}")
        before = at
    said(f"the way of {count} of {options.count} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
