"""The null broker: the least that a broker in Python over ZeroMQ must do, which sets the limit.

It reads all that has come, writes and syncs it at once when it is to be durable, confirms with a
count or passes on. No queue, credit, order, filter, recovery or check. `python -m
hms.boot.bench.null LOG` prints its addresses and serves until it is ended; LOG "" stores nothing.

A frame's first byte says what it is: P blocks of messages, C a consumer, F fill with that many
blocks, A a block is done with, S a server, Q a request for it, Y its reply.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable

import zmq

__all__ = ["BLOCK_MESSAGES", "MESSAGE_BYTES_MAX", "NullBroker"]

BLOCK_MESSAGES = 64
"""So many messages are packed in a frame."""
MESSAGE_BYTES_MAX = 1 << 20
_LOG_BYTES = 256 << 20
_FRAMES_MAX = 1000
_BUFFERS_MAX = 512
_ADDRESS = "tcp://127.0.0.1:*"


def bound(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    """A socket without limits at a free port."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    if kind == zmq.XPUB:
        socket.setsockopt(zmq.XPUB_NODROP, 1)
    socket.bind(_ADDRESS)
    return socket


class _Log:
    """A file that was written once beforehand and is overwritten."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        for _ in range(_LOG_BYTES >> 20):
            os.write(self._fd, bytes(1 << 20))
        os.fsync(self._fd)
        self._at = 0

    def write(self, buffers: list[bytes]) -> None:
        """Write and sync."""
        if self._at + sum(map(len, buffers)) > _LOG_BYTES:
            self._at = 0
        for first in range(0, len(buffers), _BUFFERS_MAX):
            self._at += os.pwritev(self._fd, buffers[first : first + _BUFFERS_MAX], self._at)
        os.fdatasync(self._fd)


class NullBroker:
    """See the module."""

    def __init__(self, log: str) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._log = _Log(log) if log else None
        self._router = bound(context, zmq.ROUTER)
        self._topic_in, self._topic_out = bound(context, zmq.SUB), bound(context, zmq.XPUB)
        self._topic_in.subscribe(b"")
        self._consumer = self._server = b""
        self._waiting: dict[bytes, deque[bytes]] = {}
        """By consumer, the blocks that it filled in: each gets its own, however fast others are."""
        self._counts: dict[bytes, int] = {}
        self._act: dict[bytes, Callable[[bytes, bytes], None]] = {
            b"P": self._produced,
            b"C": self._consumes,
            b"F": self._fill,
            b"A": self._done,
            b"S": self._serves,
            b"Q": self._asked,
            b"Y": self._replied,
        }

    @property
    def address(self) -> str:
        """Of the router, and of the topic's two sides."""
        sockets = self._router, self._topic_in, self._topic_out
        return " ".join(socket.get(zmq.LAST_ENDPOINT).decode() for socket in sockets)  # type: ignore[union-attr]

    def serve(self) -> None:
        """Serve for ever."""
        threading.Thread(target=self._forward, daemon=True).start()
        while True:
            frames = self._read()
            if self._log is not None:
                logged = [data for _, kind, data in frames if kind in (b"P", b"A")]
                if logged:
                    self._log.write(logged)
            for who, kind, data in frames:
                self._act[kind](who, data)
            for who, count in self._counts.items():
                self._router.send_multipart((who, b"%d" % count))
            self._counts.clear()

    def _read(self) -> list[tuple[bytes, bytes, bytes]]:
        """All that has come by now, at least one frame."""
        receive = self._router.recv_multipart
        frames = [tuple(receive())]
        try:
            while len(frames) < _FRAMES_MAX:
                frames.append(tuple(receive(zmq.NOBLOCK)))
        except zmq.Again:
            pass
        return frames  # type: ignore[return-value]

    def _forward(self) -> None:
        while True:
            self._topic_out.send(self._topic_in.recv())

    def _produced(self, who: bytes, data: bytes) -> None:
        self._counts[who] = self._counts.get(who, 0) + 1
        if self._consumer:
            self._router.send_multipart((self._consumer, data))

    def _fill(self, who: bytes, data: bytes) -> None:
        count, _, block = data.partition(b" ")
        self._waiting[who] = deque([block] * int(count))
        self._counts[who] = 1

    def _consumes(self, who: bytes, data: bytes) -> None:
        self._consumer, room = who, int(data)
        self._router.send_multipart((who, b""))
        for _ in range(room):
            self._give(who)

    def _done(self, who: bytes, _: bytes) -> None:
        self._give(who)

    def _give(self, who: bytes) -> None:
        waiting = self._waiting.get(who)
        if waiting:
            self._router.send_multipart((who, waiting.popleft()))

    def _serves(self, who: bytes, _: bytes) -> None:
        self._server = who

    def _asked(self, who: bytes, data: bytes) -> None:
        self._router.send_multipart((self._server, who, data))

    def _replied(self, _: bytes, data: bytes) -> None:
        who, body = data[:5], data[5:]
        self._router.send_multipart((who, body))


def echo(address: str) -> None:
    """Be the server behind the null broker at that address: answer what is asked."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    socket.send_multipart((b"S", b""))
    while True:
        who, data = socket.recv_multipart()
        socket.send_multipart((b"Y", who + data))


def main(log: str, is_echo: bool) -> None:
    """Serve, with a process beside it that answers."""
    broker = NullBroker(log)
    address = broker.address
    if is_echo and os.fork() == 0:
        echo(address.split()[0])
    sys.stdout.write(address + "\n")
    sys.stdout.flush()
    broker.serve()


if __name__ == "__main__":
    main(sys.argv[1], is_echo="echo" in sys.argv[2:])
