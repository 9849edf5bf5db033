"""hms completion: what a shell offers at the tabulator, and the names that hms.conf has."""

import os
import tomllib
from pathlib import Path

import click
from click.shell_completion import get_completion_class

__all__ = ["complete_names", "complete_profiles", "completion"]

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HMS_COMPLETE"
FILE_BYTES_MAX = 1 << 20
_OF_GROUP = {
    "queue": (("hms", "queue"),),
    "topic": (("hms", "topic"),),
    "subscription": (("hms", "subscription"),),
    "server": (("server",),),
}
_EVERY = (("hms", "queue"), ("hms", "topic"))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what the shell is to read: source <(hms completion bash)."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "hms", VARIABLE).source())


def complete_profiles(incomplete: str) -> list[str]:
    """Profiles of hms-client.toml that begin so."""
    from hms.client.profiles.file_places import find_file  # noqa: PLC0415 - at the tabulator only

    try:
        found = find_file()
        if found is None:
            return []
        with found[0].open("rb") as file:
            data = tomllib.loads(file.read(FILE_BYTES_MAX).decode("utf-8-sig"))
        return [name for name in data.get("profile", {}) if name.startswith(incomplete)]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Destinations of the configuration that begin so. It asks no node: that might take long, or
    want a password."""
    group = ctx.parent.info_name if ctx.parent is not None else ""
    path = ctx.params.get("config_file") or os.environ.get("HMS_CONFIG") or "hms.conf"
    known: list[str] = []
    try:
        with Path(path).open("rb") as file:
            data = tomllib.loads(file.read(FILE_BYTES_MAX).decode("utf-8-sig"))
        for steps in _OF_GROUP.get(group or "", _EVERY):
            found = data
            for step in steps:
                found = found.get(step, {})
            known += found
    except (OSError, ValueError, AttributeError, TypeError):
        return []
    return [name for name in known if name.startswith(incomplete)]
