"""hms alert."""

from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options

__all__ = ["alert"]

alert = click.Group("alert", help="Alerts: what is wrong, and what was.")
COLUMNS = ("alert", "destination", "since", "until", "text")


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
