"""Sender: the socket that leads to one other node. libzmq connects it, and again after a loss,
waiting longer each time; nothing is kept for a node that is not connected.
"""

from collections import deque
from collections.abc import Sequence

import zmq

from hms.server.links.key_guard import Guard

RECONNECT_MS, RECONNECT_MS_MAX = 100, 1000
FRAMES_WAITING_MAX = 256
CONNECT_TIMEOUT_MS = 3000
HANDSHAKE_MS = 3000

Frame = Sequence[bytes]


class LinkSender:
    """Frames for one node, in order; pending_bytes_max: then it is said not to read."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        guard: Guard | None,
        key: str,
        pending_bytes_max: int,
    ) -> None:
        self._context, self._address = context, address
        self._guard, self._key = guard, key
        self._pending_bytes_max = pending_bytes_max
        self._pending: deque[Frame] = deque()
        self._epoch = 1
        self.pending_bytes = 0
        self.sent_frames = self.sent_bytes = 0
        self.socket = self._open()

    def say(self, parts: Frame) -> bool:
        """Send behind what waits; False when too much waits already."""
        self._pending.append(parts)
        self.pending_bytes += sum(map(len, parts))
        self.flush()
        return self.pending_bytes <= self._pending_bytes_max

    def hint(self, parts: Frame) -> bool:
        """Send if there is room, or wait behind what waits anyway: a connection that was made again
        needs its hello. False when there is no connection yet."""
        if self._pending:
            self.say(parts)
            return True
        return self._send(parts)

    def flush(self) -> None:
        """Send what waits as far as there is room."""
        while self._pending and self._send(self._pending[0]):
            self.pending_bytes -= sum(map(len, self._pending.popleft()))

    def start_over(self, epoch: int) -> None:
        """Drop what waits, in a new epoch also what is in libzmq: it is of no use any more."""
        self._pending.clear()
        self.pending_bytes = 0
        if epoch != self._epoch:
            self._epoch = epoch
            self.connect_again()

    def expect(self, key: str) -> None:
        """The other node shows this key from now on."""
        if key != self._key:
            self._key = key
            self.connect_again()

    def connect_again(self) -> None:
        """Another connection: this one may be dead, and the kernel takes long to find that out."""
        self.close()
        self.socket = self._open()

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket."""
        self.socket.close(linger_ms)

    def _send(self, parts: Frame) -> bool:
        try:
            self.socket.send_multipart(parts, zmq.NOBLOCK, copy=True)
        except zmq.Again:
            return False
        self.sent_frames += 1
        self.sent_bytes += sum(map(len, parts))
        return True

    def _open(self) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # else frames pile up for a node that is not there
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, FRAMES_WAITING_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        if self._guard is not None:
            self._guard.introduce(socket, self._key)
        socket.connect(self._address)
        return socket
