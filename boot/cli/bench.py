"""hms bench: throughput and latency of a node, beside what its disk can do."""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from boot.cli.figures import QUANTILES, measure_disk, percentiles_ms
from boot.cli.load import STAMP, Load, Received, Sent, receive_all, send_all
from boot.cli.target import Target, target_options

__all__ = ["bench"]

_RECEIVING = (
    click.option("--queue", default="bench", show_default=True, help="Use a queue of its own."),
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
        default=1000,
        show_default=True,
        help="Unconfirmed sends at once; 1 waits for each.",
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
@_options(_SENDING)
def send(target: Target, disk: Path | None, **settings: Any) -> None:
    """Send and wait for the confirmations; the messages stay in the queue."""
    load = _load(**settings)
    with _progress(target, load, "send") as progress:
        sent = send_all(target, load, progress)
    said = {**_about("send", load), **_throughput(load, load.count, sent.seconds)}
    said["confirm_ms"] = percentiles_ms(sent.times_ns)
    _report(target, _with_disk(target, said, load, disk))


@bench.command()
@target_options
@_options(_RECEIVING)
def receive(target: Target, **settings: Any) -> None:
    """Receive and acknowledge what waits in the queue."""
    load = Load(**settings)
    with _progress(target, load, "receive") as progress:
        found = receive_all(target, load, progress, is_own_run=False)
    said = {"what": "receive", "queue": load.queue, "size": load.size, "count": load.count}
    said |= _throughput(load, found.count, found.seconds)
    said["latency_ms"] = percentiles_ms(found.times_ns)
    _report(target, said)
    _fail_if_short(load, found)


@bench.command()
@target_options
@_options(_SENDING)
def both(target: Target, disk: Path | None, **settings: Any) -> None:
    """Send and receive at once; latency is from the send to the receipt."""
    load = _load(**settings)
    with _progress(target, load, "both") as progress:
        sent, found = _run_both(target, load, progress)
    said = {
        **_about("both", load),
        **_throughput(load, found.count, max(sent.seconds, found.seconds)),
    }
    said["confirm_ms"] = percentiles_ms(sent.times_ns)
    said["latency_ms"] = percentiles_ms(found.times_ns)
    if found.strangers:
        said["messages_of_others"] = found.strangers
    _report(target, _with_disk(target, said, load, disk))
    _fail_if_short(load, found)


def _run_both(target: Target, load: Load, progress: Callable[[int], None]) -> tuple[Sent, Received]:
    """The receiver opens first, so that no message waits before it is measured."""
    is_open = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(
            receive_all, target, load, progress, is_own_run=True, ready=is_open.set
        )
        receiving.add_done_callback(lambda _: is_open.set())
        is_open.wait(load.timeout_s)
        if receiving.done():
            receiving.result()
        sent = send_all(target, load, lambda _: None)
        return sent, receiving.result()


def _load(*, warm_up: int | None, count: int, **settings: Any) -> Load:
    """A window larger than the load would only measure the end of it."""
    warm = min(count // 10, 1000) if warm_up is None else warm_up
    settings["in_flight"] = min(settings["in_flight"], count)
    return Load(warm_up=warm, count=count, **settings)


@contextmanager
def _progress(target: Target, load: Load, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error; none for a program that reads the figures."""
    if target.is_json:
        yield lambda _: None
        return
    with click.progressbar(length=load.count, label=label, file=sys.stderr) as bar:
        yield bar.update


def _about(what: str, load: Load) -> dict[str, Any]:
    return {
        "what": what,
        "queue": load.queue,
        "durable": load.is_durable,
        "size": load.size,
        "count": load.count,
        "in_flight": load.in_flight,
        "rate": load.rate,
    }


def _throughput(load: Load, count: int, seconds: float) -> dict[str, Any]:
    rate = count / seconds if seconds else 0.0
    return {
        "messages": count,
        "seconds": round(seconds, 3),
        "messages_per_s": round(rate, 1),
        "mib_per_s": round(rate * load.size / (1 << 20), 2),
    }


def _with_disk(
    target: Target, said: dict[str, Any], load: Load, folder: Path | None
) -> dict[str, Any]:
    """What the disk does with the same bytes, and the ratio of the two."""
    if not load.is_durable or load.rate:
        return said  # there is nothing to compare: the disk is not what sets the pace
    chosen = folder or _disk_of(target)
    bare = measure_disk(chosen, message_bytes=load.size, count=load.count, batch=load.in_flight)
    disk = {"folder": str(chosen), "messages_per_s": round(bare, 1), "batch": load.in_flight}
    return {**said, "disk": disk, "ratio_to_disk": round(said["messages_per_s"] / bare, 3)}


def _disk_of(target: Target) -> Path:
    """The folder of the node's store; the temporary one when only an address is known."""
    if target.address:
        return Path(tempfile.gettempdir())
    return target.config().node(target.node_name).store.parent


def _report(target: Target, said: dict[str, Any]) -> None:
    kind = {True: "durable ", False: "non-durable ", None: ""}[said.get("durable")]
    window = f", {said['in_flight']} in flight" if "in_flight" in said else ""
    what = f"{said['what']}: {said['messages']} {kind}messages of {said['size']} bytes"
    lines = [
        f"{what} in {said['seconds']} s{window}",
        f"  {said['messages_per_s']:,.0f} messages/s, {said['mib_per_s']} MiB/s",
    ]
    for name in ("confirm_ms", "latency_ms"):
        if times := said.get(name):
            spelt = "  ".join(f"{q} {times[q]} ms" for q in (*QUANTILES, "max"))
            lines.append(f"  {name.removesuffix('_ms'):8} {spelt}")
    if disk := said.get("disk"):
        rate = f"{disk['messages_per_s']:,.0f} messages/s in {disk['folder']}"
        lines.append(f"  bare disk {rate}: the node reaches {said['ratio_to_disk']} of it")
    if others := said.get("messages_of_others"):
        lines.append(f"  {others} messages of others were taken too: use a queue of its own")
    target.say("\n".join(lines), said)


def _fail_if_short(load: Load, found: Received) -> None:
    if found.count < load.count:
        text = f"only {found.count} of {load.count} messages came"
        raise click.ClickException(f"{text}; none for {load.timeout_s:g} s")
