"""Where a node listens: its addresses, and its encrypted listeners with their keys."""

import logging

from hms.boot.entries import Config, Node
from hms.errors.catalogue import KeyFileError, LinkKeyError
from hms.server.links.keys import read_key_file
from hms.server.listening_sockets import ListenAt

__all__ = ["listening"]

log = logging.getLogger("hms.security")


def listening(config: Config, node: Node) -> list[ListenAt]:
    """KeyFileError for a key file that cannot be used, or is that of the node's links."""
    return [_listen_at(config, node, address) for address in node.listen]


def _listen_at(config: Config, node: Node, address: str) -> ListenAt:
    found = config.listeners.get(address)
    if found is None:
        return ListenAt(address)
    path = str(found.server_key_file)
    try:
        keys = read_key_file(found.server_key_file)
        if keys.public.decode() == node.group.link_public_key:
            raise KeyFileError(path=path, detail="it is that of the node's links; make another")
    except LinkKeyError as fault:
        raise KeyFileError(path=path, detail=str(fault.fields["detail"])) from fault
    if found.client_keys == "ANY":
        log.warning("listener %s lets in clients with any key, as far as the login", found.name)
    pair = (keys.public, keys.secret)
    takes_any = found.client_keys == "ANY"
    return ListenAt(found.address, found.name, pair, takes_any, found.addresses)
