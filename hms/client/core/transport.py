"""One ZeroMQ DEALER socket to one node, and the monitor that tells at once when it is gone.

ZeroMQ does not reconnect by itself here: a new connection begins with HELLO, and so with a new
socket. None of this is safe for threads; the connection's lock is around every call.
"""

import contextlib
import os
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import zmq
from zmq.backend import Socket, zmq_poll

from hms.client.core.client_keys import ClientKeys

_GONE = int(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_MONITOR_STOPPED)
_WATCHED = _GONE | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED |= zmq.EVENT_HANDSHAKE_FAILED_AUTH
_WATCHED |= zmq.EVENT_CONNECTED
_REFUSED = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_REACHED = int(zmq.EVENT_CONNECTED)
_EVENT = struct.Struct("=HI")
"""What a monitor tells first: event and value. pyzmq's own reader would import asyncio, a sixth of
what importing the client takes."""
_BATCH_MAX = 256
LENT_BYTES_MIN = 288 * 1024
"""Smaller payloads, such as frames of many messages, are copied into ZeroMQ's memory: to lend them,
which a thread of pyzmq's ends, saves nothing there. A body of 1 MiB is sent in 0.8 ms of the
processor instead of 1.8."""
VIEW_BYTES_MIN = 4 * 1024
"""Smaller payloads are copied out of ZeroMQ's memory, which is sooner than to lend them."""
# Whole numbers made once: combining pyzmq's own enumerations takes 1 to 2 us each time.
_POLLIN = int(zmq.POLLIN)
_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE | zmq.NOBLOCK)
_send: Any = Socket.send
"""pyzmq's own around it looks at routing ids and groups: 2 calls of a send."""


class _Contexts:
    """One ZeroMQ context for all connections.

    It ends with the last of them, and with that waits for the frames that a closed socket still has
    to send; pyzmq would not wait when the program ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._users = 0

    def acquire(self) -> zmq.Context[zmq.Socket[bytes]]:
        with self._lock:
            self._users += 1
            if self._context is None or self._context.closed:
                self._context = zmq.Context()
                self._context.set(zmq.MAX_SOCKETS, 8192)
            return self._context

    def release(self, *, waits: bool) -> None:
        """One user less; waits: as the last one, end the context, and with that wait for what has
        still to leave. An event loop must not wait: its context stays, for the next user."""
        with self._lock:
            self._users -= 1
            if self._users or self._context is None or not waits:
                return
            context, self._context = self._context, None
        context.term()

    def forget(self) -> None:
        """In a forked child: the parent's context has no thread here."""
        self._lock, self._context, self._users = threading.Lock(), None, 0


contexts = _Contexts()
os.register_at_fork(after_in_child=contexts.forget)


class Transport:
    """See the module. Both high-water marks are off: windows and credit bound what is out."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        keys: ClientKeys | None = None,
        server_key: bytes = b"",
    ) -> None:
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.is_refused = self.has_failed_handshake = False
        """Why it is gone: the node knows no such key; or they do not understand one another."""
        self.is_reached = False
        """Whether something accepted the connection; a port where nothing listens refuses it."""
        try:
            if keys is not None:
                self._socket.setsockopt(zmq.CURVE_SERVERKEY, server_key)
                self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
                self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self._set_up(address)
        except BaseException:
            self._socket.close(linger=0)
            raise
        self.address = address
        self.has_input: Callable[[], Sequence[object]] = partial(
            zmq_poll, [(self._socket, _POLLIN)], 0
        )
        """Not empty while a frame waits; the descriptor signals only changes, so ask after a send
        too. The option EVENTS tells the same, by three calls more."""
        self.has_news = partial(zmq_poll, [(self._monitor, _POLLIN)], 0)
        self.fd = int(self._socket.getsockopt(zmq.FD))
        self.monitor_fd = int(self._monitor.getsockopt(zmq.FD))

    def _set_up(self, address: str) -> None:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.IPV6, 1),
        ):
            self._socket.setsockopt(option, value)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_WATCHED)
        self._socket.connect(address)

    def send(self, parts: Sequence[bytes]) -> None:
        """Hand a frame to ZeroMQ; never waits."""
        _send(self._socket, parts[0], _MORE)
        payload = parts[1]
        if len(payload) < LENT_BYTES_MIN:
            _send(self._socket, payload, _LAST)
        else:
            _send(self._socket, payload, _LAST, copy=False)

    def receive(self) -> list[list[bytes | memoryview]]:
        """The frames that wait, of which has_input() has told, up to a bounded number; a large
        payload is lent by ZeroMQ, since bodies are copied out of it anyway."""
        received: list[list[bytes | memoryview]] = []
        recv = self._socket.recv
        while not received or (len(received) < _BATCH_MAX and self.has_input()):
            part = recv(_LAST, copy=False)  # recv_multipart() asks for each part by a call of five
            parts: list[bytes | memoryview] = [part.bytes]
            while part.more:
                part = recv(_LAST, copy=False)
                parts.append(part.buffer if len(part) > VIEW_BYTES_MIN else part.bytes)
            received.append(parts)
        return received

    def fault(self) -> str:
        """Why the node is gone, or nothing while it is there."""
        while self.has_news():
            said = self._monitor.recv_multipart(_LAST)
            event, _ = _EVENT.unpack(said[0])
            if event & _REACHED:
                self.is_reached = True
                continue
            if event & _GONE:
                return "the node closed it or ended"
            self.is_refused = bool(event & _REFUSED)
            self.has_failed_handshake = not self.is_refused
            return "the handshake failed"
        return ""

    def close(self, linger_ms: int = 0) -> None:
        """Close; what was sent may still leave for linger_ms."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
