"""hms alert and hms log."""

from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.cli.time_spans import SPAN

__all__ = ["alert", "log"]

alert = click.Group("alert", help="Alerts: what is wrong, and what was.")
log = click.Group("log", help="The node's log: change its level.")
COLUMNS = ("alert", "destination", "since", "until", "text")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@alert.command("list")
@target_options
@table_options
@click.option("--ended", is_flag=True, help="The last ones that ended, too.")
def list_(target: Target, ended: bool) -> None:
    """What is wrong now, since when and why."""
    said: dict[str, list[dict[str, Any]]] = target.administer("alert.list")
    if target.is_json:
        target.say("", said)
        return
    rows = [*said["active"], *(said["ended"] if ended else [])]
    found = [_readable(row) for row in rows]
    show_table(target, found, empty="no alerts", columns=COLUMNS, times=("since", "until"))


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "alert": row["alert"],
        "destination": row["destination"],
        "since": row["since_ms"],
        "until": row.get("until_ms", 0),
        "text": row["text"],
    }


@log.command()
@target_options
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@click.option("--name", default="", help="Of this part alone, such as hms.node.")
@click.option("--for", "span_s", type=SPAN, default=600, help="Such as 10m; 0: until it ends.")
def level(target: Target, level: str, name: str, span_s: float) -> None:
    """Change how much the node writes to its log; after ten minutes it is as configured again."""
    said = target.administer("log.level", level=level.upper(), name=name, seconds=round(span_s))
    part = name or "the node"
    how_long = f" for {round(span_s)} s" if span_s else ""
    target.say(f"{part} logs {level.upper()}{how_long}", said)
