"""hms keys: key pairs of listeners and clients."""

from pathlib import Path

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.server_keys import next_key, prepare_key, read_server_key, switch
from hms.errors.catalogue import InvalidArgument, KeyFileError, LinkKeyError
from hms.server.links.keys import make_key_file

__all__ = ["keys"]


@click.group()
def keys() -> None:
    """Key pairs of listeners and clients: create, list, rotate."""


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


@keys.command()
@target_options
@click.argument("listener")
@click.option("--switch", "is_switch", is_flag=True, help="Show the next key from now on.")
def rotate(target: Target, listener: str, is_switch: bool) -> None:
    """Prepare the next key of LISTENER and print its public half; with --switch, show it.

    A running node tells its clients of the next key within a second, and shows it within a second
    after the switch. Their connections are cut then, and come back by what they were told.
    """
    found = target.config().listeners.get(listener)
    if found is None:
        known = ", ".join(target.config().listeners) or "none"
        raise InvalidArgument(what="LISTENER", detail=f"hms.conf has no {listener!r}, but {known}")
    file = found.server_key_file
    if is_switch and not next_key(file).exists():
        detail = f"there is no next key yet: hms keys rotate {listener}"
        raise KeyFileError(path=str(next_key(file)), detail=detail)
    public = switch(file) if is_switch else prepare_key(file)
    target.say(public, {"listener": listener, "public": public, "is shown": is_switch})


@keys.command("list")
@target_options
@table_options
def list_(target: Target) -> None:
    """The public keys of the listeners of hms.conf, for server_keys of clients."""
    rows = []
    for name, one in target.config().listeners.items():
        public = read_server_key(one.server_key_file).public.decode()
        coming = next_key(one.server_key_file)
        following = read_server_key(coming).public.decode() if coming.exists() else ""
        row = {"listener": name, "address": one.address, "public key": public}
        rows.append({**row, "next key": following})
    show_table(target, rows, empty="There are no listeners.")
