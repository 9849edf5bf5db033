"""The guard: lets in whose key is one of the cluster's, before anything of it is read (ZAP).

libzmq asks for each connection over a socket inside the process; the main thread answers in its
turn. Who is refused hears nothing; the node's log and `hms cluster status` tell of it.
"""

import zmq
from zmq.utils import z85

from hms.server.links.keys import KeyPair

ZAP_ADDRESS = "inproc://zeromq.zap.01"
DOMAIN = b"hms-links"
_PARTS = 7
ANSWERS_PER_TURN = 64


class Guard:
    """names: whose public key it is, by the key in Z85."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", own: KeyPair, names: dict[str, str]
    ) -> None:
        self._names = names
        self._own = own
        self.refused = 0
        self.last_refused = ""
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ADDRESS)

    def protect(self, listener: "zmq.Socket[bytes]") -> None:
        """A socket that others connect to takes only known keys."""
        listener.curve_server = True
        listener.curve_secretkey = self._own.secret
        listener.zap_domain = DOMAIN

    def introduce(self, speaker: "zmq.Socket[bytes]", server_key: str) -> None:
        """A socket that connects shows its key, and talks to no other one."""
        speaker.curve_serverkey = server_key.encode()
        speaker.curve_publickey = self._own.public
        speaker.curve_secretkey = self._own.secret

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
            name = self._names.get(z85.encode(parts[6]).decode(), "")
        if name:
            said = [version, request, b"200", b"OK", name.encode(), b""]
        else:
            self.refused += 1
            self.last_refused = parts[3].decode(errors="replace") if len(parts) > 3 else ""  # noqa: PLR2004
            said = [version, request, b"400", b"not a node of this cluster", b"", b""]
        self.socket.send_multipart(said)

    def close(self) -> None:
        """No more questions."""
        self.socket.close(0)
