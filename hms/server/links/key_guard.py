"""The guard: lets in whose key is one of the cluster's, before anything of it is read (ZAP).

Who is refused hears nothing; the node's log, its audit and `hms cluster status` tell of it.
"""

import struct

import zmq
from zmq.utils import z85

from hms.errors.catalogue import MemberRefused
from hms.server.links.keys import KeyPair, is_public_key
from hms.server.logins.callers import UNKNOWN, Caller
from hms.server.refused_connections import RefusedConnections
from hms.server.zap import PARTS, ZapSocket, word_of

DOMAIN = b"hms-links"
LISTENER = "HMS.links"
"""What the audit calls it."""


class Guard:
    """names: whose public key it is, by the key in Z85. A node that is about to show another key
    has two of them; when it has shown the second one, the first is no longer let in. refused: where
    it notes who is not."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        own: KeyPair,
        names: dict[str, str],
        refused: RefusedConnections | None = None,
    ) -> None:
        self._refused = refused or RefusedConnections()
        self._names = dict(names)
        self.own = own
        self.keys = {name: key for key, name in names.items()}
        """The one that each node shows."""
        self.next_keys: dict[str, str] = {}
        self.zap = ZapSocket(context, self._name, b"not a node of this cluster")

    def protect(self, listener: "zmq.Socket[bytes]") -> None:
        """A socket that others connect to takes only known keys."""
        listener.curve_server = True
        listener.curve_secretkey = self.own.secret
        listener.zap_domain = DOMAIN

    def introduce(self, sender: "zmq.Socket[bytes]", server_key: str) -> None:
        """A socket that connects shows its key, and talks to no other one."""
        sender.curve_serverkey = server_key.encode()
        sender.curve_publickey = self.own.public
        sender.curve_secretkey = self.own.secret

    def let_in(self, names: dict[str, str]) -> None:
        """These keys too, from now on."""
        self._names = {**self._names, **names}

    def learn(self, name: str, key: str) -> bool:
        """A node is going to show this key; whether that is news. One that cannot be, or is known
        as another one's, is passed over."""
        if key in (self.next_keys.get(name), *self._names, self.own.public.decode()):
            return False
        if not is_public_key(key) or not _is_z85(key):
            return False
        self._names.pop(self.next_keys.get(name, ""), None)
        self.next_keys[name], self._names[key] = key, name
        return True

    def _name(self, parts: list[bytes]) -> bytes | None:
        if len(parts) != PARTS or parts[2] != DOMAIN or parts[5] != b"CURVE":
            self._refuse(parts, "", "it does not encrypt")
            return None
        key = z85.encode(parts[6]).decode()
        name = self._names.get(key, "")
        if not name:
            self._refuse(parts, key, "its key is not one of this cluster's")
        if name and key == self.next_keys.get(name):
            del self._names[self.keys[name]], self.next_keys[name]
            self.keys[name] = key
        return name.encode() or None

    def _refuse(self, parts: list[bytes], key: str, why: str) -> None:
        caller = Caller(LISTENER, word_of(parts, 3) or UNKNOWN, key=key)
        self._refused.note(caller, why, MemberRefused.number or 0)


def _is_z85(key: str) -> bool:
    try:
        z85.decode(key.encode())
    except (ValueError, KeyError, struct.error):
        return False
    return True
