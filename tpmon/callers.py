"""Callers: the descriptors of accepted connections, and how one of them is cut.

libzmq accepts whoever connects, and a ROUTER socket cannot end a connection of its own. A caller
that never says HELLO, or that was given up and stays, would keep a descriptor for good; enough of
them, and the log cannot open its next segment. The socket's monitor names the descriptor of each
connection as it is accepted, every frame carries it too (ZMQ_SRCFD), and shutdown(2) ends exactly
that one. libzmq then closes it.
"""

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

import zmq

__all__ = ["Caller", "Callers", "descriptor_of"]

_EVENT = struct.Struct("=HI")
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_EVENTS_PER_TURN = 1024


@dataclass(slots=True)
class Caller:
    """inode: of the connection, as a descriptor is used again. idle_at: when it was first seen
    without a peer, in seconds of the gateway's clock."""

    inode: int
    has_peer: bool = False
    idle_at: float | None = None

    def left(self) -> None:
        """Its peer is known no more; the connection may say HELLO again, or has to go."""
        self.has_peer = False


class Callers:
    """The connections of one listening socket, in the order of their acceptance.

    At most callers_max are kept: beyond, those without a peer are cut, the oldest first. login_s:
    how long one may be there without a peer.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listening: "zmq.Socket[bytes]",
        callers_max: int,
        login_s: float,
    ) -> None:
        self._max = callers_max
        self._login_s = login_s
        self._callers: dict[int, Caller] = {}
        self._listening = listening
        address = f"inproc://callers-{id(self)}"
        listening.monitor(address, _EVENTS)
        self.monitor = context.socket(zmq.PAIR)
        # Unlimited: libzmq's I/O thread would wait for room, and with it every connection.
        self.monitor.setsockopt(zmq.RCVHWM, 0)
        self.monitor.connect(address)

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._callers)

    def take_events(self) -> None:
        """Note who came and who went; cut the oldest without a peer when there are too many."""
        for _ in range(_EVENTS_PER_TURN):
            try:
                parts = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._note(*_EVENT.unpack(parts[0]))
        if len(self._callers) > self._max:
            self._cut_idle(len(self._callers) - self._max)

    def greeted(self, descriptor: int) -> Caller:
        """The connection has a peer now. What the monitor says of it may not be read yet."""
        self.take_events()
        caller = self._callers.get(descriptor) or Caller(-1)
        caller.has_peer, caller.idle_at = True, None
        return caller

    def tend(self, now: float) -> None:
        """Cut those that have had no peer for login_s."""
        for descriptor, caller in list(self._callers.items()):
            if caller.has_peer:
                continue
            if caller.idle_at is None:
                caller.idle_at = now
            elif now - caller.idle_at > self._login_s:
                _cut(descriptor, caller.inode)

    def close(self) -> None:
        """End the monitor."""
        with contextlib.suppress(zmq.ZMQError):
            self._listening.disable_monitor()
        self.monitor.close(0)

    def _note(self, event: int, descriptor: int) -> None:
        if event != zmq.EVENT_ACCEPTED:
            self._callers.pop(descriptor, None)
            return
        with contextlib.suppress(OSError):  # it may have gone already
            self._callers[descriptor] = Caller(os.fstat(descriptor).st_ino)

    def _cut_idle(self, count: int) -> None:
        idle = [(fd, one) for fd, one in self._callers.items() if not one.has_peer]
        for descriptor, caller in idle[:count]:
            _cut(descriptor, caller.inode)


def descriptor_of(part: Any) -> int:
    """The descriptor of the connection that a received part came through; -1 when not known."""
    try:
        return int(part.get(zmq.SRCFD))
    except (zmq.ZMQError, ValueError):
        return -1


def _cut(descriptor: int, inode: int) -> None:
    """End one connection, unless its descriptor is another's by now."""
    with contextlib.suppress(OSError):
        copy = os.dup(descriptor)
        try:
            if os.fstat(copy).st_ino == inode:
                with socket.socket(fileno=os.dup(copy)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
        finally:
            os.close(copy)
