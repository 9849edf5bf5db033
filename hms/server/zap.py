"""ZAP: libzmq asks over a socket inside the process who may come in, before anything is read.

The main thread answers in its turn, and never waits.
"""

from collections.abc import Callable

import zmq

__all__ = ["PARTS", "ZapSocket", "word_of"]

ADDRESS = "inproc://zeromq.zap.01"
PARTS = 7
ANSWERS_PER_TURN = 64
WORD_BYTES = 64


def word_of(parts: list[bytes], at: int) -> str:
    """One part of a question as text, without what a terminal obeys; "" when it is not there."""
    shown = parts[at][:WORD_BYTES].decode(errors="replace") if len(parts) > at else ""
    return "".join(filter(str.isprintable, shown))


class ZapSocket:
    """decide: whom the parts of a question tell of, as every frame of it will say; None refuses it
    for the reason. A context has one such socket."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        decide: Callable[[list[bytes]], bytes | None],
        reason: bytes,
    ) -> None:
        self._decide, self._reason = decide, reason
        self.refused = 0
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ADDRESS)

    def answer(self) -> None:
        """Say for each connection that libzmq asks about whether it may come in."""
        for _ in range(ANSWERS_PER_TURN):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            who = self._decide(parts)
            if who is None:
                self.refused += 1
                said = [b"400", self._reason, b"", b""]  # at 300 a client waits without a word
            else:
                said = [b"200", b"OK", who, b""]
            request = parts[1] if len(parts) > 1 else b""
            self.socket.send_multipart([parts[0], request, *said])

    def close(self) -> None:
        """No more questions."""
        self.socket.close(0)
