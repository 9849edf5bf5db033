"""hms client: who is connected, what each has open, and closing one."""

import json
import sys
from typing import Any

import click

from hms.boot.cli.messages import message_time
from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["client"]

client = click.Group("client", help="Clients: list, show or close them.")
AT_ONCE = 1000
COLUMNS = (
    *("id", "client_id", "client_name", "since", "sessions", "producers", "consumers"),
    *("in_flight", "open_transactions"),
)


@client.command("list")
@target_options
@click.option("--user", help="Of this user alone.")
@click.option("--client-name", help="Of this name alone.")
def list_(target: Target, user: str | None, client_name: str | None) -> None:
    """Who is connected, and how much each has open and in flight."""
    found: list[dict[str, Any]] = []
    with target.connection() as connection:
        page = connection.administer("client.list", {})
        while page:
            found += page
            after = {"after": page[-1]["id"]}
            page = connection.administer("client.list", after) if len(page) == AT_ONCE else []
    rows = [
        row
        for row in found
        if user in (None, row["user"]) and client_name in (None, row["client_name"])
    ]
    if target.is_json:
        click.echo(json.dumps(rows, default=str))
        return
    show_table(target, [_readable(row) for row in rows], empty="no such client is connected")


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    shown = {**row, "since": message_time(row["since_ms"])}
    return {name: shown[name] for name in COLUMNS}


@client.command()
@target_options
@click.argument("number", metavar="ID", type=int)
def show(target: Target, number: int) -> None:
    """One client, with its consumers and producers."""
    show_values(target, target.administer("client.show", number=number))


@client.command()
@target_options
@click.argument("number", metavar="ID", type=int)
@click.option("--reason", default="", help="What the client is told.")
@click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only.")
def close(target: Target, number: int, reason: str, yes: bool) -> None:
    """Close a client's connection; it is told why, and may connect again."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Close client {number}?", abort=True, err=True)
    target.administer("client.close", number=number, reason=reason)
    target.say(f"client {number}: closed", {"client": number, "closed": True})
