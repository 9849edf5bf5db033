"""hms history watch: counts by the minute, and alerts."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hms.history.command_options import CONFIG, JSON, MASTER, PATH, connects, options, resolved
from hms.history.minutes import Alert, Minute
from hms.history.reports.table import time_of
from hms.history.watch import LATE_S, watch

__all__ = ["watch_command"]


@click.command("watch")
@options(CONFIG, PATH, MASTER, JSON)
@click.option(
    "--checkpoint",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory from which the next watch goes on.",
)
@click.option("--when", "rules", multiple=True, help='Such as "queue:orders dead_lettered >= 1".')
@click.option("--alert", default="", help="Where alerts go: topic:NAME or queue:NAME.")
@connects("The node that takes alerts.")
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=10.0)
@click.option("--late", "late_s", type=click.IntRange(0), default=LATE_S, show_default=True)
@click.option("--once", "is_once", is_flag=True, help="Up to now, and end.")
def watch_command(
    config: Path, path: str | None, address: str | None, is_json: bool, **wanted: Any
) -> None:
    """Count what happens by place and minute; send a message when a rule begins to hold."""
    if not path or (wanted["rules"] and not address):
        found = resolved(config, "--connect and --path")
        address, path = address or found[0], path or str(found[1])

    def tell(minutes: Sequence[Minute], alerts: Sequence[Alert]) -> None:
        for one in minutes:
            told = json.dumps(one._asdict()) if is_json else _line(one)
            click.echo(told)
        for alert in alerts:
            words = f"ALERT {alert.rule}: {alert.count:,} at {alert.place}"
            told = f"{words} in {time_of(alert.minute_ms)}"
            click.echo(json.dumps({"alert": asdict(alert)}) if is_json else told)

    watched = watch(None, path, address=address, tell=tell, **wanted)
    if watched.late:
        click.echo(f"{watched.late:,} events came too late to be counted (--late).", err=True)


def _line(one: Minute) -> str:
    return f"{time_of(one.minute_ms)}  {one.place}  {one.event}  {one.times:,}"
