"""hms history archive: what the log has sealed becomes Parquet files."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click

from hms.history.archive import ArchiveReport, archive

__all__ = ["archive_command"]


def _store(config: Path, path: str | None) -> str:
    if path:
        return path
    resolve = click.get_current_context().find_root().obj
    if resolve is None:
        raise click.UsageError("give --path")
    return str(resolve(config)[1])


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
@click.option("--master", help="Spark's master URL; local[2] if not given.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one line for each step.")
def archive_command(
    config: Path,
    path: str | None,
    where: str | None,
    continuous: bool,
    interval_s: float,
    allow_gap: bool,
    master: str | None,
    is_json: bool,
) -> None:
    """Archive what the log has sealed as Parquet files by day and destination.

    Each piece is compared with the log before it counts. A run that was stopped or killed is
    resumed by the same command; nothing is archived twice, and nothing left out.
    """

    def tell(report: ArchiveReport) -> None:
        click.echo(json.dumps(asdict(report)) if is_json else _piece(report))

    with _stop_signals() as stopping:
        done = archive(
            None,
            _store(config, path),
            where,
            allow_gap=allow_gap,
            on_piece=tell,
            interval_s=interval_s if continuous else None,
            is_stopping=stopping.wait,
            master=master,
        )
    click.echo(json.dumps(asdict(done) | {"is_done": True}) if is_json else _sentence(done))


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
