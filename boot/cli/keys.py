"""hms keys: key pairs of listeners and clients."""

from pathlib import Path

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.errors.catalogue import KeyFileError, LinkKeyError
from hms.server.links.keys import make_key_file, read_key_file

__all__ = ["keys"]


@click.group()
def keys() -> None:
    """Key pairs of listeners and clients: create, list."""


@keys.command()
@target_options
@click.argument("file", type=click.Path(path_type=Path))
def create(target: Target, file: Path) -> None:
    """Write a key pair to FILE, for a listener or a client, and print the public key."""
    try:
        public = make_key_file(file)
    except LinkKeyError as fault:
        raise KeyFileError(path=str(file), detail=str(fault.fields["detail"])) from fault
    target.say(public, {"path": str(file), "public": public})


@keys.command("list")
@target_options
@table_options
def list_(target: Target) -> None:
    """The public keys of the listeners of hms.conf, for server_keys of clients."""
    rows = []
    for name, one in target.config().listeners.items():
        try:
            public = read_key_file(one.server_key_file).public.decode()
        except LinkKeyError as fault:
            detail = str(fault.fields["detail"])
            raise KeyFileError(path=str(one.server_key_file), detail=detail) from fault
        rows.append({"listener": name, "address": one.address, "public key": public})
    show_table(target, rows, empty="There are no listeners.")
