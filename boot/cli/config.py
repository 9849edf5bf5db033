"""hms config: check, show, init and keys."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.securing_config import open_, secure
from hms.boot.cli.target import Target, target_options
from hms.boot.config import effective, sample
from hms.boot.counts import counted
from hms.errors.catalogue import ConfigError

__all__ = ["config"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@click.group()
def config() -> None:
    """Check, show or write hms.conf."""


@config.command()
@target_options
def check(target: Target) -> None:
    """Report every fault of the file at once, each with its line; exit code 1 when there is one."""
    try:
        loaded = target.config()
    except ConfigError as error:
        faults = str(error.fields["report"]).splitlines()
        if target.is_json:
            click.echo(json.dumps({"path": str(target.path), "faults": faults}))
        for fault in faults:
            click.echo(fault, err=True)
        click.get_current_context().exit(1)
    counts = {kind: len(getattr(loaded, kind)) for kind in ("nodes", "servers", "queues", "topics")}
    said = ", ".join(counted(count, kind.removesuffix("s")) for kind, count in counts.items())
    data = {"path": str(target.path), "faults": [], **counts}
    target.say(f"{target.path} is good: {said}", data)


@config.command()
@target_options
def show(target: Target) -> None:
    """Print what holds, defaults filled in, as a file that could be used itself."""
    values = effective(target.config())
    target.say("\n".join(_toml(values)).strip(), values)


@config.command()
@target_options
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def init(target: Target, force: bool) -> None:
    """Write a commented sample to the path of --config."""
    _write(target.path, sample(), is_forced=force)
    target.say(f"{target.path} is written; boot the node with: hms boot", {"path": target.path})


@config.command()
@target_options
@click.argument("file", type=click.Path(path_type=Path))
def keys(target: Target, file: Path) -> None:
    """Write a key pair for a node's links to FILE, and print the public key for hms.conf."""
    from hms.server.links.keys import make_key_file  # noqa: PLC0415 - only here

    public = make_key_file(file)
    target.say(
        f"link_key_file = {_said(str(file))}\nlink_public_key = {_said(public)}", {"public": public}
    )


config.add_command(secure)
config.add_command(open_)


def _said(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _write(path: Path, text: str, *, is_forced: bool) -> None:
    """Whole or not at all: what is there stays where there is no room for the new one."""
    if path.exists() and not is_forced:
        raise click.ClickException(f"{path} exists; --force writes over it")
    place = path.resolve()
    part = place.with_name(f".{place.name}.part-{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        if place.exists():
            shutil.copymode(place, part)
        part.replace(place)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {fault.strerror}") from fault


def _toml(tables: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Tables as TOML; one that holds only tables needs no header of its own."""
    values = {word: value for word, value in tables.items() if not isinstance(value, dict)}
    if values or (path and not tables):
        yield f"\n[{'.'.join(map(_word, path))}]"
    for word, value in values.items():
        yield f"{word} = {json.dumps(value, ensure_ascii=False)}"
    for word, value in tables.items():
        if isinstance(value, dict) and (value or len(path) > 1):
            yield from _toml(value, (*path, word))


def _word(word: str) -> str:
    return word if _BARE.fullmatch(word) else json.dumps(word)
