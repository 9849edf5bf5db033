"""hms bench: throughput and latency of a node, beside what its disk can do."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from hms.boot.bench.client_pool import BenchFailed
from hms.boot.bench.load import STAMP, Load
from hms.boot.cli.bench_report import report
from hms.boot.cli.load import Received, Sent, receive_all, receive_beside, send_all
from hms.boot.cli.target import Target, target_options

__all__ = ["bench"]

_QUEUE = click.option("--queue", default="bench", show_default=True, help="Use a queue of its own.")

_RECEIVING = (
    click.option(
        "--size",
        type=click.IntRange(STAMP.size),
        default=1024,
        show_default=True,
        help="Bytes of a body.",
    ),
    click.option("--count", type=click.IntRange(1), default=20_000, show_default=True),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1),
        default=30.0,
        show_default=True,
        help="Seconds without any progress that end the run.",
    ),
)

_SENDING = (
    *_RECEIVING,
    click.option(
        "--durable/--non-durable",
        "is_durable",
        default=True,
        show_default=True,
        help="Stored before it is confirmed, or not.",
    ),
    click.option(
        "--in-flight",
        type=click.IntRange(1),
        help="Unconfirmed sends at once; 1 waits for each; else as many as the node lets through.",
    ),
    click.option(
        "--rate", type=click.FloatRange(0), default=0.0, help="Messages a second; 0: all it can."
    ),
    click.option("--warm-up", type=click.IntRange(0), help="Messages before; else a tenth."),
    click.option(
        "--disk", type=click.Path(path_type=Path), help="Folder for the bare disk's figure."
    ),
)


def _options(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group()
def bench() -> None:
    """Measure throughput and latency.

    What is durable is also set against the disk: the same bytes, appended and synced by a bare
    loop in batches of --in-flight, in the same run.
    """


@bench.command()
@target_options
@_QUEUE
@_options(_SENDING)
def send(target: Target, **settings: Any) -> None:
    """Send and wait for the confirmations; the messages stay in the queue."""
    run = _Run("send", target, **settings)
    with run.progress() as progress:
        sent = run.send(progress)
    run.report(sent, None)


@bench.command()
@target_options
@_QUEUE
@_options(_RECEIVING)
def receive(target: Target, **settings: Any) -> None:
    """Receive and acknowledge what waits in the queue."""
    run = _Run("receive", target, **settings)
    with run.progress() as progress:
        found = receive_all(target.resolve(), run.load, progress)
    run.report(None, found)


@bench.command()
@target_options
@_QUEUE
@_options(_SENDING)
def both(target: Target, **settings: Any) -> None:
    """Send and receive at once; latency is from the send to the receipt."""
    run = _Run("both", target, **settings)
    with run.progress() as progress:
        sent, found = run.send_beside(progress)
    run.report(sent, found)


@bench.command()
@target_options
@click.option("--topic", default="news", show_default=True, help="Use a topic of its own.")
@click.option("--subscribers", type=click.IntRange(1), default=8, show_default=True)
@_options(_SENDING)
def fanout(target: Target, topic: str, subscribers: int, **settings: Any) -> None:
    """Publish to subscribers that are not durable; counts what all of them receive."""
    run = _Run("fanout", target, topic=topic, subscribers=subscribers, **settings)
    with run.progress() as progress:
        sent, found = run.send_beside(progress)
    run.report(sent, found)


class _Run:
    """One command: its load, and what is said about it."""

    def __init__(
        self,
        what: str,
        target: Target,
        *,
        queue: str = "",
        topic: str = "",
        subscribers: int = 1,
        warm_up: int | None = None,
        in_flight: int | None = None,
        disk: Path | None = None,
        **settings: Any,
    ) -> None:
        self.what, self.target, self._disk = what, target, disk
        self._name, self._in_flight, self._subscribers = queue or topic, in_flight, subscribers
        destination = f"queue:{queue}" if queue else f"topic:{topic}"
        self.load = Load(destination=destination, window=in_flight or 1000, **settings)
        count = self.load.count
        self._warm_up = min(count // 10, 1000) if warm_up is None else warm_up
        self._is_topic = not queue

    @property
    def _processes(self) -> int:
        """Of receivers; at most two, as they share what the node leaves of the machine."""
        return 2 if self._subscribers > 1 and self._subscribers % 2 == 0 else 1

    @contextmanager
    def progress(self) -> Iterator[Callable[[int], None]]:
        """A bar on standard error; none for a program that reads the figures."""
        if self.target.is_json:
            yield lambda _: None
            return
        with click.progressbar(length=self.load.count, label=self.what, file=sys.stderr) as bar:
            yield bar.update

    def send(self, progress: Callable[[int], None]) -> Sent:
        """Send the load from here."""
        return send_all(
            self.target.resolve(),
            self.load,
            in_flight=self._in_flight,
            warm_up=self._warm_up,
            progress=progress,
        )

    def send_beside(self, progress: Callable[[int], None]) -> tuple[Sent, Received]:
        """Send it while other processes receive."""
        fan = self._subscribers // self._processes
        load = structs.replace(self.load, fan=fan)
        send = partial(self.send, progress)
        try:
            return receive_beside(self.target.resolve(), load, send, self._processes)
        except BenchFailed as fault:
            raise click.ClickException(str(fault)) from fault

    def report(self, sent: Sent | None, found: Received | None) -> None:
        """Print the figures; an error when less came than was wanted."""
        about: dict[str, Any] = {"what": self.what}
        about["topic" if self._is_topic else "queue"] = self._name
        if self._is_topic:
            about["subscribers"] = self._subscribers
        if sent is not None:
            about |= {"durable": self.load.is_durable, "in_flight": self._in_flight}
        report(self.target, about, self.load, sent, found, self._disk)
        wanted = self.load.count * self._subscribers
        if found is not None and found.count < wanted:
            text = f"only {found.count} of {wanted} messages came"
            raise click.ClickException(f"{text}; none for {self.load.timeout_s:g} s")
