"""The guard: lets in whose key is one of the cluster's, before anything of it is read (ZAP).

libzmq asks for each connection over a socket inside the process; the main thread answers in its
turn. Who is refused hears nothing; the node's log and `hms cluster status` tell of it.
"""

import struct

import zmq
from zmq.utils import z85

from hms.server.links.keys import KeyPair, is_public_key

ZAP_ADDRESS = "inproc://zeromq.zap.01"
DOMAIN = b"hms-links"
_PARTS = 7
ANSWERS_PER_TURN = 64


class Guard:
    """names: whose public key it is, by the key in Z85. A node that is about to show another key
    has two of them; when it has shown the second one, the first is no longer let in."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", own: KeyPair, names: dict[str, str]
    ) -> None:
        self._names = dict(names)
        self.own = own
        self.keys = {name: key for key, name in names.items()}
        """The one that each node shows."""
        self.next_keys: dict[str, str] = {}
        self.refused = 0
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ADDRESS)

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

    def answer(self) -> None:
        """Say for each connection that libzmq asks about whether it may come in."""
        for _ in range(ANSWERS_PER_TURN):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._answer(parts)

    def _answer(self, parts: list[bytes]) -> None:
        version, request = parts[0], parts[1] if len(parts) > 1 else b""
        name = ""
        if len(parts) == _PARTS and parts[2] == DOMAIN and parts[5] == b"CURVE":
            key = z85.encode(parts[6]).decode()
            name = self._names.get(key, "")
            if name and key == self.next_keys.get(name):
                del self._names[self.keys[name]], self.next_keys[name]
                self.keys[name] = key
        if name:
            said = [version, request, b"200", b"OK", name.encode(), b""]
        else:
            self.refused += 1
            said = [version, request, b"400", b"not a node of this cluster", b"", b""]
        self.socket.send_multipart(said)

    def close(self) -> None:
        """No more questions."""
        self.socket.close(0)


def _is_z85(key: str) -> bool:
    try:
        z85.decode(key.encode())
    except (ValueError, KeyError, struct.error):
        return False
    return True
