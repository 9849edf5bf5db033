"""The guard of client listeners: whose key is known, and who comes from a known network, is let in
before anything of it is read (ZAP). The key is attached to every frame of the connection.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence

import zmq
from zmq.utils import z85

from hms.errors.catalogue import LoginRefused
from hms.server.listening_sockets import ListenAt
from hms.server.logins.callers import Caller, caller_at
from hms.server.refused_connections import RefusedConnections
from hms.server.zap import PARTS, ZapSocket, word_of

__all__ = ["ClientGuard"]

SHUN_S = 10.0
"""So long a key is refused from an address where a connection of it was cut for what it sent."""
SHUNNED_MAX = 256


class ClientGuard:
    """known_keys: of users, and those that only admit to a login; clock: seconds."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listeners: Sequence[ListenAt],
        known_keys: Callable[[], Container[str]],
        refused: RefusedConnections,
        clock: Callable[[], float],
    ) -> None:
        self._listeners = {one.domain: one for one in listeners if one.keys is not None}
        self._known_keys = known_keys
        self._refused, self._clock = refused, clock
        self._shunned: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Keys, and from where, that are refused until then."""
        self.zap = ZapSocket(context, self._who, b"refused")

    def shun(self, caller: Caller) -> None:
        """Refuse the key of a connection that was cut, from its address, for a while."""
        if caller.key:
            self._shunned[caller.key, caller.source] = self._clock() + SHUN_S
            self._shunned.move_to_end((caller.key, caller.source))
            while len(self._shunned) > SHUNNED_MAX:
                self._shunned.popitem(last=False)

    def _who(self, parts: list[bytes]) -> bytes | None:
        caller, why = self._judge(parts)
        if why:
            self._refused.note(caller, why, LoginRefused.number or 0)
        return None if why else caller.key.encode()

    def _judge(self, parts: list[bytes]) -> tuple[Caller, str]:
        """Who it is, and why it is refused; "" when it is let in."""
        listener = self._listeners.get(parts[2]) if len(parts) == PARTS else None
        name = "unknown" if listener is None else listener.name
        is_curve = listener is not None and parts[5] == b"CURVE"
        key = z85.encode(parts[6]).decode() if is_curve else ""
        caller = caller_at(name, word_of(parts, 3), key)
        if listener is None or not is_curve:
            return caller, "it does not encrypt"
        if not _is_from(caller.address, listener.networks):
            return caller, "the listener is not for its network"
        if not (listener.takes_any_key or key in self._known_keys()):
            return caller, "its key is not known"
        if self._shunned.get((key, caller.source), 0.0) > self._clock():
            return caller, "it was cut a moment ago for what it sent"
        return caller, ""


def _is_from(address: str, networks: Sequence[str]) -> bool:
    if not networks:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
