"""hms queue, topic, subscription and session: what the node has."""

from collections.abc import Callable

import click

from hms.boot.cli.changing import add_changes
from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["group", "queue", "session"]


def _listing(verb: str, said: str, empty: str) -> Callable[..., None]:
    """A command that prints what the node lists under a verb."""

    def run(target: Target) -> None:
        show_table(target, target.administer(verb), empty=empty)

    run.__doc__ = said
    return run


def group(name: str, said: str, list_said: str, empty: str) -> click.Group:
    """A group with the command list."""
    group = click.Group(name=name, help=said)
    listing = target_options(_listing(f"{name}.list", list_said, empty))
    group.add_command(click.command("list")(listing))
    return group


queue = group(
    "queue",
    "Queues: list, show, create, alter, delete, pause, resume or purge them.",
    "The queues with what waits, is in flight and was counted.",
    "there is no queue",
)
add_changes(queue, "queue")
session = group("session", "List sessions.", "The open sessions.", "no session is open")


@queue.command()
@target_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """Everything the node knows of one queue."""
    show_values(target, target.administer("queue.show", name=name))


@queue.command()
@target_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(target: Target, name: str, yes: bool) -> None:
    """Remove every waiting message of a queue; each is counted and in the history."""
    if not yes:
        click.confirm(f"Remove all that waits in {name}?", abort=True, err=True)
    count = target.administer("queue.purge", name=name)
    target.say(f"{name}: {count} messages removed", {"queue": name, "purged": count})
