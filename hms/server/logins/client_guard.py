"""The guard of client listeners: whose key is known, and who comes from a known network, is let in
before anything of it is read (ZAP). The key is attached to every frame of the connection.
"""

import ipaddress
import logging
from collections.abc import Callable, Container, Sequence

import zmq
from zmq.utils import z85

from hms.server.listening_sockets import ListenAt
from hms.server.zap import PARTS, ZapSocket

__all__ = ["ClientGuard"]

log = logging.getLogger("hms.security")

LOGGED_MAX = 1000


class ClientGuard:
    """known_keys: of users, and those that only admit to a login."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listeners: Sequence[ListenAt],
        known_keys: Callable[[], Container[str]],
    ) -> None:
        self._listeners = {one.domain: one for one in listeners if one.keys is not None}
        self._known_keys = known_keys
        self.zap = ZapSocket(context, self._who, b"refused")

    def _who(self, parts: list[bytes]) -> bytes | None:
        key, why = self._key(parts)
        if why and self.zap.refused < LOGGED_MAX:
            log.warning("a connection from %s is refused: %s", _text(parts, 3), why)
        return None if why else key

    def _key(self, parts: list[bytes]) -> tuple[bytes, str]:
        """The key of a connection, or why it is refused."""
        listener = self._listeners.get(parts[2]) if len(parts) == PARTS else None
        if listener is None or parts[5] != b"CURVE":
            return b"", "it does not encrypt"
        if not _is_from(_text(parts, 3), listener.networks):
            return b"", f"listener {listener.name} is not for its network"
        key = z85.encode(parts[6])
        if not listener.takes_any_key and key.decode() not in self._known_keys():
            return b"", f"its key {key.decode()} is not known"
        return key, ""


def _text(parts: list[bytes], at: int) -> str:
    shown = parts[at][:64].decode(errors="replace") if len(parts) > at else ""
    return "".join(filter(str.isprintable, shown))


def _is_from(address: str, networks: Sequence[str]) -> bool:
    if not networks:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
