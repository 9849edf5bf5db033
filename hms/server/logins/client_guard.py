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

CUTS_MAX, SHUN_S = 3, 10.0
"""From so many connections on that were cut for what they sent, a key is refused from their address
until so long after the last one. One alone may be a fault, and its key another program's too."""
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
        self._cuts: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """How many connections of a key, and from where, were cut, and until when that counts."""
        self.zap = ZapSocket(context, self._who, b"refused")

    def shun(self, caller: Caller) -> None:
        """A connection was cut; who goes on is refused for a while."""
        if caller.key:
            about = caller.key, caller.source
            self._cuts[about] = self._cuts_of(about) + 1, self._clock() + SHUN_S
            self._cuts.move_to_end(about)
            while len(self._cuts) > SHUNNED_MAX:
                self._cuts.popitem(last=False)

    def _cuts_of(self, about: tuple[str, str]) -> int:
        count, until = self._cuts.get(about, (0, 0.0))
        return count if self._clock() < until else 0

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
        if self._cuts_of((key, caller.source)) >= CUTS_MAX:
            return caller, "connections of it were cut a moment ago for what they sent"
        return caller, ""


def _is_from(address: str, networks: Sequence[str]) -> bool:
    if not networks:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
