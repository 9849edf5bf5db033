"""The load of hms bench: a sender here, and a receiver here or in a process of its own.

In one process the two would take turns at the interpreter, and the figure would be of that.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from hms.boot.bench.client import Report, Task
from hms.boot.bench.client_pool import client_pool
from hms.boot.bench.hms_driver import HmsDriver
from hms.boot.bench.load import WARM_UP, Load, Sink, bodies, timed_bodies

__all__ = ["Received", "Sent", "receive_all", "receive_beside", "send_all"]

Progress = Callable[[int], None]
_PROGRESS_EVERY = 256
_DRIVER = "hms.boot.bench.hms_driver:HmsDriver"


@dataclass(slots=True)
class Sent:
    """What the sender measured; times are from the send to its confirmation."""

    seconds: float = 0.0
    begin_ns: int = 0
    times_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Received:
    """What the receiver measured; times are from the send to the receipt."""

    count: int = 0
    seconds: float = 0.0
    strangers: int = 0
    times_ns: list[int] = field(default_factory=list)


class _Shown(Sink):
    """A sink that tells how far it is."""

    __slots__ = ("_progress",)

    def __init__(self, load: Load, progress: Progress) -> None:
        super().__init__(load, load.count, is_any_run=True)
        self._progress = progress

    def take(self, body: object, receiver: int = 0) -> None:
        """One message; every message counts, whichever client sent it."""
        before = self.others
        super().take(body, receiver)
        if self.others > before:
            self.others, self.count = before, self.count + 1
            self.last_ns = time.monotonic_ns()
        if self.count % _PROGRESS_EVERY == 0:
            self._progress(_PROGRESS_EVERY)


def _shown(made: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    number = 0
    for number, body in enumerate(made, 1):
        yield body
        if number % _PROGRESS_EVERY == 0:
            progress(_PROGRESS_EVERY)
    progress(number % _PROGRESS_EVERY)


def send_all(
    address: str, load: Load, *, in_flight: int | None, warm_up: int, progress: Progress
) -> Sent:
    """Warm up, then send the load; returns when all of it is confirmed. in_flight: unconfirmed
    sends at once, 1 waits for each, None as many as the node lets through."""
    driver = HmsDriver(address, {"is_async": "yes" if in_flight else "no"})
    sent = Sent()
    try:
        driver.open_sender(load)
        _warm_up(driver, load, warm_up)
        sent.begin_ns = time.monotonic_ns()
        made = _shown(timed_bodies(load), progress)
        if in_flight == 1 and not load.rate:
            driver.send_each(made, sent.times_ns)
        elif load.rate:
            driver.send_timed(made)
        else:
            driver.send_pipelined(made)
        sent.seconds = (time.monotonic_ns() - sent.begin_ns) / 1e9
        sent.times_ns = sent.times_ns or driver.confirm_times_ns
        return sent
    finally:
        driver.close()


def _warm_up(driver: HmsDriver, load: Load, count: int) -> None:
    warm = structs.replace(load, count=count, sender=WARM_UP)
    driver.send_each(bodies(warm), [])


def receive_all(address: str, load: Load, progress: Progress) -> Received:
    """Receive what waits, until the count is reached or nothing comes for the load's time."""
    driver, sink = HmsDriver(address, {}), _Shown(load, progress)
    try:
        driver.open_receiver(load)
        begin_ns = time.monotonic_ns()
        driver.receive(sink)
        progress(sink.count % _PROGRESS_EVERY)
    finally:
        driver.close()
    seconds = max(sink.last_ns - begin_ns, 0) / 1e9
    return Received(sink.count, seconds, 0, sink.times)


def receive_beside(
    address: str, load: Load, send: Callable[[], Sent], receivers: int = 1
) -> tuple[Sent, Received]:
    """Send with receivers in processes of their own, which are open before; only what this run
    sends counts."""
    task = Task(role="receive", driver=_DRIVER, address=address, load=load)
    with client_pool([task] * receivers) as clients:
        clients.go()
        sent = send()
        reports = clients.reports(max(load.timeout_s, 1.0) + 60)
    return sent, _together(sent, reports)


def _together(sent: Sent, reports: list[Report]) -> Received:
    times: list[Any] = []
    for report in reports:
        times += report.times_ns
    end_ns = max(report.end_ns for report in reports)
    return Received(
        sum(report.received for report in reports),
        max(end_ns - sent.begin_ns, 0) / 1e9,
        sum(report.others for report in reports),
        times,
    )
