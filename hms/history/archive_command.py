"""hms history archive and seal: what the log has sealed becomes Parquet files."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from hms.history.archive import ArchiveReport, archive
from hms.history.archive_all import archive_all, seal
from hms.history.command_options import CONFIG, JSON, connects, options, resolved

__all__ = ["archive_command", "seal_command"]

CONNECT = connects("Address of the node.")


def _store(config: Path, path: str | None) -> str:
    if path:
        return path
    resolve = click.get_current_context().find_root().obj
    if resolve is None:
        raise click.UsageError("give --path")
    return str(resolve(config)[1])


def _address(config: Path, address: str | None) -> str:
    return address or resolved(config, "--connect")[0]


@click.command("archive")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default="hms.conf",
    envvar="HMS_CONFIG",
    show_default=True,
    help="Where --path comes from when it is not given.",
)
@click.option("--path", help="The store's directory.")
@click.option(
    "--where", help="A directory, or a URL that Spark's Hadoop knows; as before if not given."
)
@click.option("--continuous", is_flag=True, help="Go on until stopped (Ctrl-C).")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    help="Seconds between two looks at the log, with --continuous.",
)
@click.option(
    "--allow-gap", is_flag=True, help="Go on behind what the log has let go, and note it."
)
@click.option(
    "--all",
    "takes_all",
    is_flag=True,
    help="Also the segment that is being written; a node that runs is asked to begin another one.",
)
@connects("Address of the node, for --all.")
@click.option("--master", help="Spark's master URL; local[2] if not given.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one line for each step.")
def archive_command(
    config: Path,
    path: str | None,
    where: str | None,
    continuous: bool,
    interval_s: float,
    allow_gap: bool,
    takes_all: bool,
    address: str | None,
    master: str | None,
    is_json: bool,
) -> None:
    """Archive what the log has sealed as Parquet files by day and destination.

    Each piece is compared with the log before it counts. A run that was stopped or killed is
    resumed by the same command; nothing is archived twice, and nothing left out.
    """

    def tell(report: ArchiveReport) -> None:
        click.echo(json.dumps(asdict(report)) if is_json else _piece(report))

    if takes_all and continuous:
        raise click.UsageError("--all is for one run; leave out --continuous")
    store = _store(config, path)
    node = partial(_address, config, address)
    how: dict[str, Any] = {"allow_gap": allow_gap, "on_piece": tell, "master": master}
    with _stop_signals() as stopping:
        if takes_all:
            done = archive_all(None, store, where, address=node, **how)
        else:
            how |= {"interval_s": interval_s if continuous else None, "is_stopping": stopping.wait}
            done = archive(None, store, where, **how)
    click.echo(json.dumps(asdict(done) | {"is_done": True}) if is_json else _sentence(done))


@click.command("seal")
@options(CONFIG, CONNECT, JSON)
def seal_command(config: Path, address: str | None, is_json: bool) -> None:
    """Have the log of a node begin a new segment, so that the present one can be archived."""
    offset = seal(_address(config, address))
    text = f"The log goes on in a new segment from offset {offset}; all before it can be archived."
    click.echo(json.dumps({"offset": offset}) if is_json else text)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM: the step under way is finished, or was for nothing."""
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _piece(report: ArchiveReport) -> str:
    return (
        f"offsets {report.first_offset} to {report.until_offset - 1} archived and compared "
        f"in {report.seconds:.1f} s; {report.rows} rows in {report.files} files so far"
    )


def _sentence(report: ArchiveReport) -> str:
    merged = f"; {report.merged} small files were merged" if report.merged else ""
    return (
        f"{report.where} has all offsets below {report.until_offset}: {report.rows} rows in "
        f"{report.files} files of {report.size} bytes were added in {report.seconds:.1f} s{merged}."
    )
