"""Where a node listens: its addresses, and its encrypted listeners with their keys."""

import logging
import os
import stat
from pathlib import Path

from hms.boot.entries import Config, Node
from hms.boot.server_keys import read_server_key
from hms.errors.catalogue import InvalidArgument
from hms.server.listening_sockets import ListenAt

__all__ = ["listening"]

log = logging.getLogger("hms.security")


def listening(config: Config, node: Node) -> list[ListenAt]:
    """KeyFileError for a key file that cannot be used, or is that of the node's links;
    InvalidArgument for a local socket of a secured node in whose place another user could listen.
    """
    if node.security is not None:
        for address in node.listen:
            if address.startswith("ipc://") and (said := _fault_of(address.removeprefix("ipc://"))):
                raise InvalidArgument(what=f"listening at {address}", detail=said)
    if node.ipc_group is not None and not int(node.ipc_mode, 8) & stat.S_IWGRP:
        log.warning("ipc_group: ipc_mode %s lets no group in, 0660 does", node.ipc_mode)
    return [_listen_at(config, node, address) for address in node.listen]


def _fault_of(path: str) -> str:
    """Why somebody else could listen there while the node is down; "" when nobody can."""
    file = Path(path)
    try:
        folder = file.parent.stat()
    except OSError as fault:
        return f"its folder cannot be looked at: {fault.strerror}"
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write into {file.parent}: chmod go-w it, or choose another folder"
    own = (os.geteuid(), 0)
    if folder.st_uid not in own:
        return f"{file.parent} belongs to another user"
    if file.is_symlink():
        return "it is a symbolic link"
    if file.exists() and file.stat().st_uid not in own:
        return "it belongs to another user"
    return ""


def _listen_at(config: Config, node: Node, address: str) -> ListenAt:
    found = config.listeners.get(address)
    if found is None:
        return ListenAt(address)
    keys = read_server_key(found.server_key_file, node.group.link_public_key)
    if found.client_keys == "ANY":
        log.warning("listener %s lets in clients with any key, as far as the login", found.name)
    pair = (keys.public, keys.secret)
    takes_any = found.client_keys == "ANY"
    return ListenAt(found.address, found.name, pair, takes_any, found.addresses)
