"""hms queue, topic, subscription and session: what the node has."""

from collections.abc import Callable

import click

from hms.boot.cli.changing import add_changes, held_by
from hms.boot.cli.tables import has_own_view, table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.values import value_options
from hms.boot.counts import counted

__all__ = ["INNER", "group", "queue", "session"]


TEMPORARY = "HMS.TEMP."
_SHOWN = (
    ("name", "kind", "life", "paused", "consumers", "producers"),
    ("waiting", "delayed", "in_flight", "bytes", "held_by"),
    ("sent", "delivered", "acknowledged", "redelivered", "expired", "dead_lettered"),
)
"""What `hms queue show` shows without --wide, beside what is not 0 and stands not below."""
INNER = (
    *("processed", "remaining", "remaining_high", "pending", "dispatched", "moved", "poisoned"),
    *("memory", "memory_high"),
)
"""Counters by the names of JEUS, which stand beside those of HMS."""


def _listing(verb: str, said: str, empty: str, columns: tuple[str, ...]) -> Callable[..., None]:
    """A command that prints what the node lists under a verb."""

    def run(target: Target) -> None:
        show_table(target, target.administer(verb), empty=empty, columns=columns)

    run.__doc__ = said
    return run


def group(
    name: str, said: str, list_said: str, empty: str, columns: tuple[str, ...]
) -> click.Group:
    """A group with the command list; columns: what it shows without --wide."""
    group = click.Group(name=name, help=said)
    listing = target_options(table_options(_listing(f"{name}.list", list_said, empty, columns)))
    group.add_command(click.command("list")(listing))
    return group


queue = click.Group(
    name="queue", help="Queues: list, show, create, alter, delete, pause, resume or purge them."
)
add_changes(queue, "queue")
session = group(
    "session",
    "List sessions.",
    "The open sessions.",
    "no session is open",
    ("connection", "session", "client_id", "ack_mode", "consumers", "in_flight"),
)


@queue.command("list")
@target_options
@table_options
@click.argument("names", nargs=-1)
@click.option("--temporary", is_flag=True, help="Temporary queues of clients too.")
def list_(target: Target, names: tuple[str, ...], temporary: bool) -> None:
    """The queues with what waits, is in flight and was counted: all, or those of the NAMES, in
    which * stands for anything."""
    columns = ("name", "waiting", "delayed", "in_flight", "consumers", "paused")
    fields = "" if target.is_json or has_own_view() else " ".join(columns)
    found = target.administer("queue.list", names=" ".join(names), fields=fields)
    if not (temporary or target.is_json):
        found = [row for row in found if not row["name"].startswith(TEMPORARY)]
    show_table(target, found, empty="there is no queue", columns=columns)


@queue.command()
@target_options
@value_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """What the node knows of one queue."""
    show_values(target, target.administer("queue.show", name=name), usual=_SHOWN, inner=INNER)


@queue.command()
@target_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(target: Target, name: str, yes: bool) -> None:
    """Remove every waiting message of a queue; each is counted and in the history."""
    if not yes:
        held = held_by(target, name, "waiting")
        click.confirm(f"Remove {held} that wait in {name}?", abort=True, err=True)
    count = target.administer("queue.purge", name=name)
    target.say(f"{name}: {counted(count, 'message')} removed", {"queue": name, "purged": count})
