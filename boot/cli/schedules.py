"""hms schedule: messages that are sent again and again, and those that wait for their time."""

from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["schedule"]

schedule = click.Group("schedule", help="Scheduled and delayed messages: list, create, cancel.")

_TIMES = ("next", "first", "until")
_LISTED = ("name", "kind", "destination", "next", "when", "error")


@schedule.command("list")
@target_options
@table_options
@click.option("--kind", type=click.Choice(["schedule", "delayed"]), help="These only.")
@click.option("--destination", default="", help="Of one, such as queue:orders or topic:news.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True)
def list_(target: Target, kind: str | None, destination: str, limit: int) -> None:
    """Schedules and delayed messages, the next one due first."""
    asked = {"kind": kind or "", "destination": destination, "limit": limit}
    found = [_readable(one) for one in target.administer("schedule.list", **asked)]
    empty = "nothing is scheduled or delayed"
    show_table(target, found, empty=empty, columns=_LISTED, times=_TIMES)


@schedule.command()
@target_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """One schedule by its name, or one delayed message by its id."""
    found = _readable(target.administer("schedule.show", name=name))
    show_values(target, found, times=_TIMES)


@schedule.command()
@target_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def cancel(target: Target, name: str, yes: bool) -> None:
    """End a schedule, or take back a delayed message, given by its id; it is in the history."""
    if not yes:
        click.confirm(f"Cancel {name}?", abort=True, err=True)
    done = target.administer("schedule.cancel", name=name)
    target.say(f"{name}: cancelled", done)


@schedule.command()
@target_options
@click.argument("name")
@click.argument("destination")
@click.argument("body", default="")
@click.option("--every", "every_s", type=click.FloatRange(0.1), help="Seconds between two.")
@click.option("--cron", help="Such as '0 9 * * 1-5': minute, hour, day, month, day of the week.")
@click.option("--time-zone", default="UTC", show_default=True, help="Such as Europe/Berlin.")
@click.option("--count", type=click.IntRange(0), default=0, help="So many in all; 0 without end.")
@click.option("--missed", type=click.Choice(["SKIP", "ONE", "ALL"]), default="ONE")
@click.option("--replace", is_flag=True, help="Instead of another one of that name.")
def create(target: Target, name: str, destination: str, body: str, **recurrence: Any) -> None:
    """Have the node send BODY to DESTINATION (a queue's name, queue:NAME, topic:NAME) again and
    again; --missed: what becomes of those that are due while the node is down."""
    from hms.boot.cli.sending import named  # noqa: PLC0415 - not for --help

    with target.connection() as connection, connection.session() as session:
        producer = session.producer(named(destination))
        made = producer.schedule(name, body.encode(), **recurrence)
    said = {"schedule": made.name, "next": made.next_time.isoformat()}
    target.say(f"{name}: next at {made.next_time.isoformat(timespec='seconds')}", said)


def _readable(one: dict[str, Any]) -> dict[str, Any]:
    """With the columns that people read."""
    shown = dict(one)
    for name in _TIMES:
        if f"{name}_ms" in shown:
            shown[name] = shown.pop(f"{name}_ms")
    if one["kind"] == "schedule":
        shown["when"] = one["cron"] or f"every {one['every_s']:g} s"
    return shown
