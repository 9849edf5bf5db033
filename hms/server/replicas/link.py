"""The link between copies: the sockets of both ends, and who may use them.

Beyond loopback both ends show keys of the group (CURVE), and each knows the other's beforehand.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from hms.errors.catalogue import ReplicaAddressInUse
from hms.server.links.key_guard import Guard
from hms.server.links.keys import KeyPair
from hms.server.replicas.confirmation import Limits
from hms.server.replicas.frames import BYTES_MAX, FORMAT, Data, Envelope, Said, encode

__all__ = [
    "FollowerLink",
    "FollowerSocket",
    "Group",
    "Held",
    "Peer",
    "PrimaryLink",
    "PrimarySocket",
    "now_s",
]

MESSAGE_BYTES_MAX: Final = 16 * BYTES_MAX
"""A JOIN lists every segment."""
FRAMES_AT_ONCE: Final = 256
RECONNECT_MS: Final = 10, 20
"""How soon a copy tries again where nobody listens yet, at first and at last: one that is about to
lead listens in a moment."""
HUNG_UP: Final = frozenset((errno.EPIPE, errno.ECONNRESET))
"""How a handshake ends that cannot be read there; one that is not answered in time is EAGAIN."""
HANG_UPS: Final = 3
"""So many in a row are no process that ends meanwhile."""
VIEW_BYTES: Final = 64 << 10
"""From so many on the bytes that come stay where ZeroMQ has them: a copy of 256 KiB takes 27 us."""


class Peer(msgspec.Struct, frozen=True):
    """A replica as hms.conf has it. public_key: of its link, "" without keys; is_async: it gets the
    log, and never counts."""

    name: str
    address: str
    public_key: str = ""
    is_async: bool = False


class Group(msgspec.Struct, frozen=True):
    """All replicas of a node, and what holds for them. keys: of this one; window_bytes: of the log
    that may be on their way to a copy."""

    node: str
    me: str
    peers: Mapping[str, Peer]
    lease_s: float
    limits: Limits
    keys: KeyPair | None = None
    window_bytes: int = 64 << 20

    @property
    def asynchronous(self) -> frozenset[str]:
        """Names of those that never count."""
        return frozenset(one.name for one in self.peers.values() if one.is_async)


def now_s() -> float:
    """Seconds on a clock that is never set, and counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class PrimaryLink(Protocol):
    """A primary's end, or what a simulator has in its place."""

    def send(self, route: bytes, envelope: bytes, data: bytes) -> None:
        """To one copy."""

    def received(self) -> Iterator[list[bytes]]:
        """What is there."""

    def wait(self, timeout_s: float) -> None:
        """Until there is something, or so long."""

    def hear(self, timeout_s: float) -> bool:
        """Until a copy says something, or so long; False when that was not it, or a wait() is to
        end. Any thread, one at a time."""

    def rest(self, timeout_s: float) -> None:
        """Until a wait() is to end, or so long; others may use the socket meanwhile."""

    def wake(self) -> None:
        """End a wait(), a hear() and a rest()."""

    def let_in(self, peers: Iterable[Peer]) -> None:
        """Copies that were not known before."""

    def close(self) -> None:
        """No more."""


class FollowerLink(Protocol):
    """A follower's end, or what a simulator has in its place."""

    primary: str

    def say(self, log: str, replica: str, start: int, said: Said, epoch: int = 0) -> None:
        """Tell the primary."""

    def received(self) -> Iterator[list[Data]]:
        """What is there."""

    def wait(self, timeout_s: float) -> None:
        """Until there is something, or so long."""

    def is_lost(self) -> bool:
        """The connection has ended since this was asked."""

    def refuses_key(self) -> bool:
        """That machine does not know the key of this one, as far as is_lost() has seen."""

    def shows_other_key(self) -> bool:
        """That machine hangs up as one does that has another key than is known here, or none; as
        far as is_lost() has seen."""

    def close(self) -> None:
        """No more."""


class _Link:
    """What both ends have: a context of their own, since ZAP has one guard in each."""

    def __init__(self, group: Group, kind: int) -> None:
        self._context: zmq.Context[Any] = zmq.Context(1)
        names = {p.public_key: p.name for p in group.peers.values() if p.public_key}
        self._guard = None if group.keys is None else Guard(self._context, group.keys, names)
        self.socket = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 200)
        self.socket.setsockopt(zmq.SNDHWM, 0)  # bounded by what is not acknowledged
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, 3000)
        self._ready: dict[object, int] = {}
        """What the last wait() found; before it, nothing is known of."""
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)
        if self._guard is not None:
            self.poller.register(self._guard.zap.socket, zmq.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Until there is something, or so long."""
        self._ready = dict(self.poller.poll(max(0, round(timeout_s * 1000))))
        if self._guard is not None and self._guard.zap.socket in self._ready:
            self._guard.zap.answer()

    def received(self) -> Iterator[list[Any]]:
        """What was there when wait() returned, a bounded number."""
        if self.socket not in self._ready:
            return  # to ask it costs an error, which is several system calls
        for _ in range(FRAMES_AT_ONCE):
            try:
                yield self._parts()
            except zmq.Again:
                return

    def _parts(self) -> list[Any]:
        return self.socket.recv_multipart(zmq.NOBLOCK)

    def close(self) -> None:
        """What was said last still goes out, for a moment."""
        self.socket.close()
        if self._guard is not None:
            self._guard.zap.close()
        self._context.term()


class PrimarySocket(_Link):
    """The primary's end. wake() may be called from any thread."""

    def __init__(self, group: Group) -> None:
        super().__init__(group, zmq.ROUTER)
        if self._guard is not None:
            self._guard.protect(self.socket)
        address = group.peers[group.me].address
        try:
            self.socket.bind(address)
        except zmq.ZMQError as fault:
            self.close()
            raise ReplicaAddressInUse(address=address, detail=str(fault)) from fault
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.poller.register(self._wake, zmq.POLLIN)
        self._woken = select.poll()
        self._woken.register(self._wake, select.POLLIN)
        self._heard = zmq.Poller()
        self._heard.register(self.socket, zmq.POLLIN)
        self._heard.register(self._wake, zmq.POLLIN)

    def hear(self, timeout_s: float) -> bool:
        """Until a copy says something, or so long; False when that was not it, or a wait() is to
        end: who waits there is still woken. Any thread, one at a time."""
        self._ready = dict(self._heard.poll(max(1, round(timeout_s * 1000))))
        return self.socket in self._ready and self._wake not in self._ready

    def rest(self, timeout_s: float) -> None:
        """Until a wait() is to end, or so long; others may use the socket meanwhile."""
        self._woken.poll(timeout_s * 1000)

    def wake(self) -> None:
        """End a wait(), a hear() and a rest()."""
        os.eventfd_write(self._wake, 1)

    def let_in(self, peers: Iterable[Peer]) -> None:
        """Copies that were not known before; any thread."""
        if self._guard is not None:
            self._guard.let_in({one.public_key: one.name for one in peers if one.public_key})

    def send(self, route: bytes, envelope: bytes, data: bytes) -> None:
        """To one copy; one that is gone gets nothing."""
        self.socket.send_multipart([route, envelope, data])

    def wait(self, timeout_s: float) -> None:
        """Until there is something, or so long."""
        super().wait(timeout_s)
        if self._wake in self._ready:
            os.eventfd_read(self._wake)

    def close(self) -> None:
        """What was said last still goes out, for a moment."""
        super().close()
        if hasattr(self, "_wake"):
            os.close(self._wake)


class Held:
    """The address of a copy that follows. Nobody listens there, so who connects is refused; nothing
    else gets the port meanwhile, no outgoing connection either. ReplicaAddressInUse at once."""

    def __init__(self, group: Group) -> None:
        PrimarySocket(group).close()
        parts = urlsplit(group.peers[group.me].address)
        host = parts.hostname or ""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # it could be bound just now
            self._socket.bind((host, parts.port or 0))

    def close(self) -> None:
        """Leave the port to others."""
        self._socket.close()


class FollowerSocket(_Link):
    """A follower's end, to one primary."""

    def __init__(self, group: Group, primary: str) -> None:
        super().__init__(group, zmq.DEALER)
        self.primary = primary
        peer = group.peers[primary]
        if self._guard is not None:
            self._guard.introduce(self.socket, peer.public_key)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        self._is_up = self._is_refused = False
        """_is_refused: that machine does not know our key, and hears nothing over this socket."""
        self._hang_ups = 0
        events = zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        if self._guard is not None:
            events |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            events |= zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._monitor = self.socket.get_monitor_socket(events)
        self.poller.register(self._monitor, zmq.POLLIN)
        self.socket.connect(peer.address)

    def is_lost(self) -> bool:
        """The connection has ended since this was asked, as wait() found: its machine closes it
        when the process ends, so a crash is noticed before its silence."""
        return self._monitor in self._ready and self._hears_end()

    def refuses_key(self) -> bool:
        """See FollowerLink."""
        return self._is_refused

    def shows_other_key(self) -> bool:
        """See FollowerLink."""
        return self._hang_ups >= HANG_UPS

    def _hears_end(self) -> bool:
        is_lost = False
        with suppress(zmq.Again):
            while True:
                told = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
                match told["event"]:
                    case zmq.EVENT_CONNECTED:
                        self._is_up = True
                    case zmq.EVENT_DISCONNECTED:
                        self._is_up, is_lost = False, True
                    case event:
                        self._shaken(int(event), told["value"])
        return is_lost

    def _shaken(self, event: int, value: int) -> None:
        """A handshake has ended; that machine did not."""
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._hang_ups = 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._is_refused = True
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            self._hang_ups = HANG_UPS  # it does not encrypt, and is not tried again
        elif value in HUNG_UP:
            self._hang_ups += 1

    def close(self) -> None:
        """What was said last still goes out, for a moment, where somebody is there."""
        self._hears_end()
        if not self._is_up:
            self.socket.setsockopt(zmq.LINGER, 0)
        self.poller.unregister(self._monitor)
        self.socket.disable_monitor()
        self._monitor.close(0)  # else the context would never end
        super().close()

    def _parts(self) -> list[Data]:
        parts: list[Data] = [self.socket.recv(zmq.NOBLOCK)]
        while self.socket.get(zmq.RCVMORE):
            frame = self.socket.recv(copy=False)
            parts.append(frame.buffer if len(frame) >= VIEW_BYTES else frame.bytes)
        return parts

    def say(self, log: str, replica: str, start: int, said: Said, epoch: int = 0) -> None:
        """Tell the primary. A socket whose key was refused has nobody to send to any more: what is
        said there is lost, and who wants an answer connects anew."""
        parts = [encode(Envelope(FORMAT, log, epoch, replica, start, said)), b""]
        with suppress(zmq.Again):
            self.socket.send_multipart(parts, zmq.NOBLOCK)
