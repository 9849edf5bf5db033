"""What traces cost a client: `python -m bench.traces` measures W2 and W4, in turn, with clients
that trace and with clients that do not.

without   trace=True, and no SDK of OpenTelemetry that would keep a span; bar 0.97
sampled   1 % of all traces is kept; bar 0.95
whole     all are; no bar

The ratio stands in the row of the clients that do not trace. Before: how many calls of Python a
message costs its client, which is exact on any machine.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import hms
from hms.boot.bench.hms_driver import HmsDriver
from hms.boot.bench.pairs import compare, rows_text
from hms.boot.bench.systems import HmsSystem
from hms.boot.bench.workloads import WORKLOADS
from hms.otel import instrument, uninstrument
from hms.testing import node

__all__ = ["BARS", "calls", "main"]

BARS = {"without": 0.97, "sampled": 0.95, "whole": 0.0}
SHARES = {"sampled": 0.01, "whole": 1.0}
SAMPLE = 200
WAIT_S = 60


def _trace(name: str) -> None:
    """From now on, as the row of that name says."""
    provider: trace.TracerProvider = trace.NoOpTracerProvider()
    if name in SHARES:
        kept = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SHARES[name])))
        kept.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
        provider = kept
    instrument(provider)


class Without(HmsDriver):
    """A client that traces where nothing keeps a span."""

    traces = "without"

    def __init__(self, address: str, options: dict[str, str]) -> None:
        super().__init__(address, options)
        _trace(self.traces)


class Sampled(Without):
    """One of which 1 % is kept."""

    traces = "sampled"


class Whole(Without):
    """One of which all is kept."""

    traces = "whole"


class _Traced(HmsSystem):
    """The same node; its clients trace."""

    def __init__(self, name: str) -> None:
        self.name, self.driver = name, f"bench.traces:{name.capitalize()}"


class _Quiet(HmsSystem):
    name = "off"


@contextmanager
def _counting(found: list[int]) -> Iterator[None]:
    def note(_frame: Any, event: str, _argument: Any) -> None:
        found[0] += event == "call"

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def calls(address: str, name: str) -> dict[str, float]:
    """How many calls a message costs, of send_many(), send() and receive_many(); name "off": of a
    client that does not trace."""
    counted: dict[str, float] = {}
    if name != "off":
        _trace(name)
    try:
        with hms.connect(address, request_timeout_s=WAIT_S) as conn, conn.session() as session:
            producer, consumer = session.producer("traced"), session.consumer("traced")
            bodies = [b"x" * 1000] * SAMPLE

            def send_each() -> None:
                for body in bodies:
                    producer.send_async(body)

            def receive() -> None:
                left = 2 * SAMPLE
                while left:
                    left -= len(consumer.receive_many(left, WAIT_S))

            steps: dict[str, tuple[Callable[[], object], int]] = {
                "send_many": (lambda: producer.send_many(bodies), SAMPLE),
                "send_async": (send_each, SAMPLE),
                "receive_many": (receive, 2 * SAMPLE),
            }
            for step, (work, count) in steps.items():
                found = [0]
                with _counting(found):
                    work()
                counted[step] = found[0] / count
    finally:
        uninstrument()
    return counted


def main(words: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="pairs, in turn")
    parser.add_argument("--count", type=int, help="messages of W2 and W4, each")
    parser.add_argument("--only", default=",".join(BARS), help="such as sampled,whole")
    parser.add_argument("--workloads", default="W2,W4", help="one or both")
    given = parser.parse_args(words)
    names = given.only.split(",")
    config = {"hms": {"queue": {"traced": {}}}}
    with node(config=config) as running:
        for name in ("off", *names):
            counted = calls(running.address, name)
            told = ", ".join(f"{step} {count:.1f}" for step, count in counted.items())
            print(f"{name}: calls of Python per message: {told}", flush=True)
    for workload in filter(None, given.workloads.split(",")):
        made = WORKLOADS[workload]
        made = made if given.count is None else made.with_count(given.count)
        for name in names:
            with tempfile.TemporaryDirectory(prefix="hms-bench-") as folder:
                rows = compare([_Traced(name), _Quiet()], made, Path(folder), given.runs)
            print(f"{rows_text(rows)}\n{name}: bar {BARS[name]}\n", flush=True)


if __name__ == "__main__":
    main()
