"""What the commands over the history share: their options, and where the store is found."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import click

from hms.history.reports.words import table

__all__ = [
    "CONFIG",
    "JSON",
    "MASTER",
    "PATH",
    "TIMES",
    "connects",
    "options",
    "resolved",
    "table",
    "tell",
]

Resolve = Callable[[Path], tuple[str, Path]]
"""The address of the node and the directory of its store, by the path of its configuration."""
Decorator = Callable[[Any], Any]

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default="hms.conf",
    envvar="HMS_CONFIG",
    show_default=True,
    help="Where --connect and --path come from when they are not given.",
)
PATH = click.option("--path", help="The store's directory, or that of an archive.")
TIMES = (
    click.option("--from", "from_", help="Beginning: ISO 8601 (UTC) or ms since 1970."),
    click.option("--to", help="End, excluded."),
)
JSON = click.option("--json", "is_json", is_flag=True, help="Print JSON.")
MASTER = click.option(
    "--master", help="Spark's master URL; local[2] unless spark-submit says otherwise."
)


def connects(said: str) -> Decorator:
    """--connect, and --profile in its place; the command has `address`, which may be
    "profile:NAME"."""

    def add(command: Any) -> Any:
        @wraps(command)
        def run(*, address: str | None, profile: str | None, **rest: Any) -> Any:
            if address and profile:
                raise click.UsageError("--connect and --profile both say which node: give one")
            return command(address=f"profile:{profile}" if profile else address, **rest)

        for option in (
            click.option("--profile", metavar="NAME", help="The same, by a client profile."),
            click.option("--connect", "address", help=said),
        ):
            option(run)
        return run

    return add


def options(*every: Decorator) -> Decorator:
    """Several options as one decorator."""

    def add(command: Any) -> Any:
        for option in reversed(every):
            command = option(command)
        return command

    return add


def resolved(config: Path, wanted: str) -> tuple[str, Path]:
    """Address and store of the configuration; a wrong command line where nobody can find them."""
    resolve: Resolve | None = click.get_current_context().find_root().obj
    if resolve is None:
        raise click.UsageError(f"give {wanted}")
    return resolve(config)


def tell(rows: Sequence[Any], *, is_json: bool, text: Callable[[], str]) -> None:
    """Print dataclasses as JSON, else a text."""
    click.echo(json.dumps([asdict(row) for row in rows]) if is_json else text())
