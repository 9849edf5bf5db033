"""hms history: the commands over the history.

They take an address and a directory. Who mounts them may put into click's context object a function
that finds both in a configuration file, given its path: that is how --config works.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from field_buffer.errors import HmsError
from hms.history.replay import ReplayReport, replay
from hms.history.report import EventCount, count_events
from hms.history.scope import parse_scope

__all__ = ["history", "info_command", "replay_command"]

Resolve = Callable[[Path], tuple[str, Path]]
"""The address of the node and the directory of its store, by the path of its configuration."""


@click.group()
def history() -> None:
    """Read and replay what happened."""


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_SCOPE = _options(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        default="hms.conf",
        envvar="HMS_CONFIG",
        show_default=True,
        help="Where --connect and --path come from when they are not given.",
    ),
    click.option("--path", help="The store's directory."),
    click.option("--from", "from_", help="Beginning: ISO 8601 (UTC) or ms since 1970."),
    click.option("--to", help="End, excluded."),
    click.option("--selector", default="", help='Such as "Month > 4 AND JMSPriority = 9".'),
    click.option("--json", "is_json", is_flag=True, help="Print JSON."),
)


@history.command("info")
@_SCOPE
@click.option("--destination", default="", help="queue:NAME, topic:NAME or NAME; a comma list.")
def info_command(config: Path, path: str | None, is_json: bool, **wanted: str | None) -> None:
    """Count what happened, by destination."""
    scope = parse_scope({name.rstrip("_"): value for name, value in wanted.items() if value})
    counts = count_events(path or str(_resolved(config, "--path")[1]), scope)
    click.echo(json.dumps([asdict(row) for row in counts]) if is_json else _table(counts))


@history.command("replay")
@_SCOPE
@click.option("--connect", "address", help="Address of the node that takes the messages.")
@click.option("--destination", required=True, help="Where they were sent to.")
@click.option("--into", required=True, help="Where they go now: queue:NAME, topic:NAME or NAME.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second.")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master URL.")
def replay_command(
    config: Path, path: str | None, address: str | None, is_json: bool, **wanted: Any
) -> None:
    """Send messages of the history again, in their order, with what they carried.

    Every run sends its whole window: a second run sends everything a second time.
    """
    if not (address and path):
        found = _resolved(config, "--connect and --path")
        address, path = address or found[0], path or str(found[1])
    try:
        report = replay(None, path, address=address, **wanted)
    except HmsError as error:
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True)
        raise
    click.echo(json.dumps(asdict(report)) if is_json else _sentence(report))


def _resolved(config: Path, wanted: str) -> tuple[str, Path]:
    resolve: Resolve | None = click.get_current_context().find_root().obj
    if resolve is None:
        raise click.UsageError(f"give {wanted}")
    return resolve(config)


def _sentence(report: ReplayReport) -> str:
    if not report.rows:
        return "Nothing in the history fits; nothing was sent."
    offsets = f"offsets {report.first_offset} to {report.last_offset}"
    return (
        f"{report.sent} messages sent and confirmed ({offsets}) "
        f"in {report.seconds:.1f} s, {report.rate:.0f} a second."
    )


def _table(counts: list[EventCount]) -> str:
    if not counts:
        return "Nothing happened."
    lines = [("destination", "event", "count")]
    lines += [(f"{c.destination_kind}:{c.destination}", c.event, f"{c.count}") for c in counts]
    name, event, count = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(f"{a:{name}}  {b:{event}}  {c:>{count}}" for a, b, c in lines)
