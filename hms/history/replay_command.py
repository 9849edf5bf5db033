"""hms history replay and hms history runs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hms.errors.tree import HmsError
from hms.history.census import Census, preview
from hms.history.command_options import (
    CONFIG,
    JSON,
    MASTER,
    PATH,
    TIMES,
    connects,
    options,
    resolved,
    table,
    tell,
)
from hms.history.pace import Progress, Show
from hms.history.replay import ReplayReport, replay

__all__ = ["replay_command", "runs_command"]

_FILES = "their content was in files, which the history does not have"
_CONNECT = connects("Address of the node that takes the messages.")


@click.command("replay")
@options(CONFIG, PATH, _CONNECT, *TIMES, MASTER, JSON)
@click.option(
    "--destination",
    required=True,
    help="Where they were sent to: queue:NAME, topic:NAME, NAME, or with *; a comma list.",
)
@click.option("--selector", default="", help='Which, such as "Month > 4 AND JMSPriority = 9".')
@click.option(
    "--into",
    required=True,
    help="Where they go now: queue:NAME, topic:NAME or NAME, in which {destination} is where each "
    "was sent to.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second.")
@click.option("--run-id", default="", help="Name of the run; else one that follows from the rest.")
@click.option("--copies", "takes_copies", is_flag=True, help="Also what a replay had brought.")
@click.option("--dry-run", is_flag=True, help="Count what would be sent, and send nothing.")
def replay_command(
    config: Path,
    path: str | None,
    address: str | None,
    is_json: bool,
    dry_run: bool,
    **wanted: Any,
) -> None:
    """Send messages of the history again, each once, in their order, with what they carried.

    A run that was interrupted goes on with the same command; one that is complete sends nothing
    when it is repeated.
    """
    if not (path and (address or dry_run)):
        found = resolved(config, "--connect and --path")
        address, path = address or found[0], path or str(found[1])
    if dry_run:
        del wanted["rate"], wanted["run_id"]
        counted = preview(None, path, **wanted)
        tell(counted, is_json=is_json, text=lambda: _counted(counted))
        return
    assert address is not None, "found above"
    with _notes(), _progress(is_shown=not is_json and sys.stderr.isatty()) as show:
        report = replay(None, path, address=address, show=show, **wanted)
    click.echo(json.dumps(asdict(report)) if is_json else _sentence(report))


@click.command("runs")
@options(CONFIG, _CONNECT, JSON)
@click.option("--forget", metavar="RUN", help="Forget a run: the same command then sends anew.")
def runs_command(config: Path, address: str | None, is_json: bool, forget: str | None) -> None:
    """List the replays into a node, and how far they have come."""
    from hms.history.ledger import forget_run, known_runs  # noqa: PLC0415 - loads the client

    address = address or resolved(config, "--connect")[0]
    if forget is not None:
        found = forget_run(address, forget)
        if found is None:
            raise click.UsageError(f"the node knows no run {forget!r}")
        click.echo(f"Run {forget} is forgotten; it had sent {found.sent:,} messages.")
        return
    entries = known_runs(address)
    rows = [
        (e.run, "complete" if e.is_done else "open", e.sent, e.last_offset, e.until_offset)
        for e in entries
    ]
    head = ("run", "state", "sent", "last offset", "ends before")
    none = "No replay into this node is known."
    tell(entries, is_json=is_json, text=lambda: table(head, rows) if rows else none)


@contextmanager
def _notes() -> Iterator[None]:
    """What an error says of how far the run has come is printed before it."""
    try:
        yield
    except HmsError as error:
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True)
        raise


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Show | None]:
    """A bar with the rate and the time that is left, on a terminal."""
    if not is_shown:
        yield None
        return
    with click.progressbar(
        length=1000, label="replaying", file=sys.stderr, show_eta=False, item_show_func=_item
    ) as bar:

        def show(progress: Progress) -> None:
            place = 1000 * progress.done // max(1, progress.whole)
            bar.update(place - bar.pos, progress)

        yield show


def _item(progress: Progress | None) -> str | None:
    if progress is None:
        return None
    left_s = progress.left_s
    left = "" if left_s is None else f", {left_s:.0f} s left"
    return f"{progress.sent:,} messages, {progress.rate:,.0f} a second{left}"


def _sentence(report: ReplayReport) -> str:
    lines = [_main(report)]
    if report.sent and report.before:
        lines.append(f"{report.before} more were sent by earlier attempts of this run.")
    if report.copies:
        lines.append(
            f"{report.copies} were left out: a replay had brought them (--copies takes them too)."
        )
    if report.files:
        lines.append(f"{report.files} were left out: {_FILES}.")
    if report.unmarked:
        lines.append(f"{report.unmarked} could not be marked with their origin, and went as is.")
    return "\n".join(lines)


def _main(report: ReplayReport) -> str:
    if not report.sent and report.before:
        return (
            f"Run {report.run} was complete before, with {report.before} messages; "
            "nothing was sent. Another --run-id sends them again."
        )
    if not report.sent:
        return "Nothing in the history fits; nothing was sent."
    offsets = f"offsets {report.first_offset} to {report.last_offset}"
    return (
        f"{report.sent} messages sent and confirmed ({offsets}) "
        f"in {report.seconds:.1f} s, {report.rate:.0f} a second; run {report.run}."
    )


def _counted(rows: list[Census]) -> str:
    if not rows:
        return "Nothing in the history fits."
    head = ("destination", "into", "messages", "copies left out", "first offset", "last offset")
    lines = [
        (r.destination, r.into, r.messages, r.copies, r.first_offset, r.last_offset) for r in rows
    ]
    total, files = sum(row.messages for row in rows), sum(row.files for row in rows)
    left_out = f" {files:,} would be left out: {_FILES}." if files else ""
    return f"{table(head, lines)}\n{total:,} messages would be sent.{left_out}"
