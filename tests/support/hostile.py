"""A client that speaks the protocol by hand, and keeps none of the rules of the library."""

import itertools
import os
from typing import Any, Self

import zmq

from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind, frame
from hms.wire.packed_messages import ROW
from tests.support.hello import hello_of

__all__ = ["Hostile", "pack"]


def pack(*bodies: bytes) -> bytes:
    """A pack of messages without heads."""
    rows = b"".join(ROW.pack(0, len(body), 0, 0, 4, 0, 0, 0) for body in bodies)
    return rows + b"".join(bodies)


class Hostile:
    """One connection. ask() returns the kind and the payload of the answer, None without one."""

    def __init__(self, address: str, wait_s: float = 10) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option in (zmq.LINGER, zmq.SNDHWM, zmq.RCVHWM):
            self._socket.setsockopt(option, 0)
        self._socket.connect(address)
        self._wait_s = wait_s
        self._correlations = itertools.count(1)
        hello = hello_of(int.from_bytes(os.urandom(6), "big"))
        self.ask(Kind.HELLO, wire.encode(hello))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close(0)
        self._context.term()

    def post(self, kind: Kind, payload: bytes = b"", correlation: int = 0, count: int = 1) -> None:
        """Send and do not wait."""
        self._socket.send_multipart(frame(kind, payload, correlation, count), copy=False)

    def ask(self, kind: Kind, payload: bytes = b"", count: int = 1) -> tuple[Kind, bytes] | None:
        """Send and wait for the answer, or for the end of the connection."""
        wanted = next(self._correlations)
        self.post(kind, payload, wanted, count)
        while self._socket.poll(int(self._wait_s * 1000)):
            parts = self._socket.recv_multipart()
            envelope = frames.decode_envelope(parts, 1 << 31)
            if envelope.correlation == wanted or envelope.kind in (Kind.GOODBYE, Kind.ERROR):
                return envelope.kind, parts[1]
        return None

    def request(self, one: Any) -> bool:
        """Whether a request was answered, and not refused."""
        answer = self.ask(Kind.REQUEST, wire.encode(one))
        return answer is not None and answer[0] is Kind.REPLY

    def send(self, producer: int, sequence: int, *bodies: bytes, persistent: bool = False) -> bool:
        """Whether messages were taken."""
        head = frames.SendHead(producer, len(bodies), sequence, persistent)
        payload = frames.encode_send(head, pack(*bodies))
        answer = self.ask(Kind.SEND, payload, len(bodies))
        return answer is not None and answer[0] is Kind.CONFIRM
