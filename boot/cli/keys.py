"""hms keys: key pairs of listeners and clients."""

from pathlib import Path

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.entries import Group
from hms.boot.link_keys import note_key
from hms.boot.server_keys import prepare_key, read_server_key, switch
from hms.boot.watched_files import next_key
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
@click.argument("listener", required=False)
@click.option("--links", "is_links", is_flag=True, help="Of the links to other nodes.")
@click.option("--switch", "is_switch", is_flag=True, help="Show the next key from now on.")
def rotate(target: Target, listener: str | None, is_links: bool, is_switch: bool) -> None:
    """Prepare the next key of LISTENER, or of the node's links, and print its public half; with
    --switch, show it.

    A running node tells its clients of the next key within a second, and shows it within a second
    after the switch. Their connections are cut then, and come back by what they were told. So do
    the other nodes of a cluster.
    """
    if is_links == (listener is not None):
        raise click.UsageError("give LISTENER or --links")
    word = listener or "--links"
    group = None if listener is not None else target.config().node(target.node_name).group
    file = _file_of_links(group) if group is not None else _file_of(target, word)
    if is_switch and not next_key(file).exists():
        detail = f"there is no next key yet: hms keys rotate {word}"
        raise KeyFileError(path=str(next_key(file)), detail=detail)
    if is_switch and group is not None:
        coming = read_server_key(next_key(file)).public.decode()
        note_key(file, group.nodename, group.link_public_key or "", coming)
    public = switch(file) if is_switch else prepare_key(file)
    target.say(public, {"listener": word, "public": public, "is shown": is_switch})


def _file_of(target: Target, listener: str) -> Path:
    found = target.config().listeners.get(listener)
    if found is None:
        known = ", ".join(target.config().listeners) or "none"
        raise InvalidArgument(what="LISTENER", detail=f"hms.conf has no {listener!r}, but {known}")
    return found.server_key_file


def _file_of_links(group: Group) -> Path:
    if group.link_key_file is None:
        detail = "hms.conf has no link_key_file: the links of this node are not encrypted"
        raise InvalidArgument(what="--links", detail=detail)
    return group.link_key_file


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
