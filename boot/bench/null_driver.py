"""The client of the null broker: blocks of messages, with no more than counting around them."""

import time
from collections.abc import Iterable

import zmq

from hms.boot.bench.load import Load, Sink
from hms.boot.bench.null import BLOCK_MESSAGES

__all__ = ["NullDriver"]

_JOIN_S = 1.0
"""How long ZeroMQ may take to make a subscription known."""
_POLL_MS = 60_000


class NullDriver:
    """See hms.boot.bench.driver.Driver. Options: pack, how many messages stand in a frame; fill
    "yes", give the broker first what is to be received."""

    def __init__(self, address: str, options: dict[str, str]) -> None:
        self._router, self._topic_in, self._topic_out = address.split()
        self._pack = int(options.get("pack", BLOCK_MESSAGES))
        self._fill = options.get("fill") == "yes"
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._load: Load
        self._socket: zmq.Socket[bytes]
        self._sockets: list[zmq.Socket[bytes]] = []

    def _join(self, kind: int, address: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        if kind == zmq.PUB:
            socket.set_hwm(10_000)
            socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.connect(address)
        return socket

    @property
    def _is_topic(self) -> bool:
        return self._load.destination.startswith("topic:")

    @property
    def _block(self) -> bytes:
        return bytes(self._load.size) * self._pack

    # ---- sending

    def open_sender(self, load: Load) -> None:
        """Connect."""
        self._load = load
        if self._is_topic:
            self._socket = self._join(zmq.PUB, self._topic_in)
            time.sleep(_JOIN_S)
        else:
            self._socket = self._join(zmq.DEALER, self._router)

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One message a frame, one frame at a time."""
        send, receive, clock = self._socket.send, self._socket.recv, time.perf_counter_ns
        for body in bodies:
            begin = clock()
            send(b"P", zmq.SNDMORE)
            send(body)
            receive()
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:  # noqa: ARG002 - as many, not these
        """As many blocks as hold the bodies; the same one each time."""
        if self._is_topic:
            body = bytes(self._load.size)
            for _ in range(self._load.count):
                self._socket.send(body)
        else:
            self._send_blocks(-(-self._load.count // self._pack), self._block)

    def _send_blocks(self, count: int, block: bytes) -> None:
        socket, limit = self._socket, max(1, self._load.window // self._pack)
        sent = confirmed = 0
        while confirmed < count:
            while sent < count and sent - confirmed < limit:
                socket.send(b"P", zmq.SNDMORE)
                socket.send(block)
                sent += 1
            confirmed += int(socket.recv())
            while socket.poll(0):
                confirmed += int(socket.recv())

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each leaves when it is given."""
        sent = confirmed = 0
        for body in bodies:
            self._socket.send(b"P", zmq.SNDMORE)
            self._socket.send(body)
            sent += 1
            while self._socket.poll(0):
                confirmed += int(self._socket.recv())
        while confirmed < sent:
            confirmed += int(self._socket.recv())

    # ---- receiving

    def open_receiver(self, load: Load) -> None:
        """Connect; with the option fill the broker is first given what is to be received."""
        self._load = load
        if self._is_topic:
            self._sockets = [self._join(zmq.SUB, self._topic_out) for _ in range(load.fan)]
            for socket in self._sockets:
                socket.subscribe(b"")
            time.sleep(_JOIN_S)
            return
        self._socket = self._join(zmq.DEALER, self._router)
        if self._fill:
            count = b"%d " % -(-load.count // self._pack)
            self._socket.send_multipart((b"F", count + self._block))
            self._socket.recv()
        else:
            self._begin(0)

    def _begin(self, room: int) -> None:
        self._socket.send_multipart((b"C", b"%d" % room))
        self._socket.recv()

    def receive(self, sink: Sink) -> None:
        """Count blocks; stamped messages one by one."""
        if self._is_topic:
            self._receive_topic(sink)
            return
        if self._fill:
            self._begin(max(1, self._load.window // self._pack))
        receive, socket, acknowledgement = self._socket.recv, self._socket, bytes(24)
        while not sink.is_full and socket.poll(_POLL_MS):
            block = receive()
            if self._pack == 1:
                sink.take(block)
            else:
                sink.take_many(self._pack)
            if self._fill:
                socket.send(b"A", zmq.SNDMORE)
                socket.send(acknowledgement)

    def _receive_topic(self, sink: Sink) -> None:
        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN)
        while not sink.is_full and (ready := poller.poll(_POLL_MS)):
            for socket, _ in ready:
                count = 0
                try:
                    while True:
                        socket.recv(zmq.NOBLOCK)
                        count += 1
                except zmq.Again:
                    sink.take_many(count)

    # ---- calling

    def open_caller(self, load: Load) -> None:
        """Connect."""
        self._load = load
        self._socket = self._join(zmq.DEALER, self._router)

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Call one after the other."""
        clock = time.perf_counter_ns
        for body in bodies:
            begin = clock()
            self._socket.send_multipart((b"Q", body))
            self._socket.recv()
            times_ns.append(clock() - begin)

    def close(self) -> None:
        """Close all sockets."""
        self._context.destroy(linger=0)
