"""A client process that is measured: `python -m hms.boot.bench.client TASK`, TASK in JSON.

It connects, prints "ready", begins when it reads a line, prints its report as one line of JSON, and
disconnects when its standard input ends.
"""

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hms.boot.bench.driver import Driver
from hms.boot.bench.load import Load, Sink, bodies, timed_bodies
from hms.boot.bench.machine import peak_rss_bytes

__all__ = ["Report", "Task"]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process does; driver: "module:class"."""

    role: str
    driver: str
    address: str
    load: Load
    options: dict[str, str] = {}


class Report(msgspec.Struct):
    """What it did, by the monotonic clock that all processes share."""

    role: str
    begin_ns: int = 0
    end_ns: int = 0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    sent: int = 0
    received: int = 0
    others: int = 0
    misordered: int = 0
    times_ns: Sequence[int] = ()
    error: str = ""


Work = Callable[[], None]


def _send_each(driver: Driver, load: Load, report: Report) -> Work:
    driver.open_sender(load)
    made, times = bodies(load), []  # type: ignore[var-annotated]

    def work() -> None:
        driver.send_each(made, times)
        report.sent, report.times_ns = len(made), times

    return work


def _send(driver: Driver, load: Load, report: Report) -> Work:
    driver.open_sender(load)
    made = bodies(load) if load.is_stamped else []

    def work() -> None:
        driver.send_pipelined(made)
        report.sent = load.count

    return work


def _send_timed(driver: Driver, load: Load, report: Report) -> Work:
    driver.open_sender(load)

    def work() -> None:
        driver.send_timed(timed_bodies(load))
        report.sent = load.count

    return work


def _receive(driver: Driver, load: Load, report: Report) -> Work:
    driver.open_receiver(load)
    sink = Sink(load, load.expected or load.count * load.fan)

    def work() -> None:
        driver.receive(sink)
        report.received, report.others = sink.count, sink.others
        report.misordered, report.times_ns = sink.misordered, sink.times
        report.end_ns = sink.last_ns

    return work


def _call_each(driver: Driver, load: Load, report: Report) -> Work:
    driver.open_caller(load)
    made, times = bodies(load), []  # type: ignore[var-annotated]

    def work() -> None:
        driver.call_each(made, times)
        report.sent, report.times_ns = len(made), times

    return work


ROLES: dict[str, Callable[[Driver, Load, Report], Work]] = {
    "send_each": _send_each,
    "send": _send,
    "send_timed": _send_timed,
    "receive": _receive,
    "call_each": _call_each,
}


def _driver(task: Task) -> Driver:
    module, _, name = task.driver.partition(":")
    made: Driver = getattr(importlib.import_module(module), name)(task.address, task.options)
    return made


def _run(task: Task, report: Report) -> Driver:
    driver = _driver(task)
    work = ROLES[task.role](driver, task.load, report)
    _say(b"ready")
    sys.stdin.readline()
    cpu_s, report.begin_ns = time.process_time(), time.monotonic_ns()
    work()
    report.end_ns = report.end_ns or time.monotonic_ns()
    report.cpu_s = time.process_time() - cpu_s
    report.peak_rss_bytes = peak_rss_bytes(os.getpid())
    return driver


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """One task; a fault is in the report."""
    task = msgspec.json.decode(arguments[0], type=Task)
    report = Report(task.role)
    driver: Any = None
    try:
        driver = _run(task, report)
    except Exception as fault:  # noqa: BLE001 - told to the process that measures
        report.error = f"{type(fault).__name__}: {fault}"
    _say(msgspec.json.encode(report))
    sys.stdin.read()
    if driver is not None:
        driver.close()


if __name__ == "__main__":
    main(sys.argv[1:])
