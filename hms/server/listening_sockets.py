"""Listening sockets: the limits, and how a frame comes out of ZeroMQ and how one goes in.

Nothing here knows a peer: a listener names the pipe that a frame came through by its routing id.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import zmq
import zmq.backend

from hms.errors.catalogue import NotSupported
from hms.errors.tree import HmsError
from hms.server.accepted_sockets import Arrivals, Callers, descriptor_of
from hms.server.accepted_sockets import Caller as Accepted
from hms.server.address_faults import rebind, unusable
from hms.server.logins.callers import Caller, caller_at
from hms.wire.frames import Kind, frame
from hms.wire.structures import encode_error

__all__ = [
    "FrameParts",
    "GatewayLimits",
    "ListenAt",
    "Listener",
    "check_zeromq",
    "expect_unreachable",
    "io_threads_for",
    "is_chosen_by_peer",
]

FrameParts = Sequence[bytes]
"""Envelope and payload, as frames.frame() makes them."""

ZEROMQ_MIN = (4, 3, 4)  # older ones can be overrun before login (CVE-2020-15166, CVE-2019-13132)
ROUTING_ID_BYTES = 5  # a zero byte and a counter, when libzmq chose it itself
HANDSHAKE_MS = 2000  # silent connections must not keep descriptors for libzmq's 30 s
LINGER_MS = 200  # for the last words of a node; what must arrive is confirmed, never lingering
DRAINED_LINGER_MS = 2000
"""For those of one that stops in order, as how a move has ended: a machine may stand still for some
tenths of a second. One that fails has no time: another one is to lead."""
PACK_BYTES = 64 * 1024  # the size of frame that clients and node aim at when they pack
COPY_BYTES_MAX = 16 * 1024  # smaller payloads are copied; above, lending the bytes is cheaper
FRAMES_WAITING_MAX = 256
CALLERS_EXTRA_MIN = 32
VIEW_BYTES_MIN = 4 * 1024
"""A smaller payload is copied sooner than its frame is wrapped."""

PINGS_PER_PERIOD = 3
"""How often libzmq asks a peer's libzmq whether it is there, in each heartbeat_s."""

OWNER_ALONE = 0o600
"""Until the file of a local socket has its group."""
_THREADS = {False: 1, True: 2}
"""The thread of libzmq, as a bit, of listeners that do not encrypt, and of those that do."""
_LAST = zmq.NOBLOCK
_MORE = zmq.NOBLOCK | zmq.SNDMORE


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """What the gateway takes and holds.

    frames_per_turn bounds how long the outbox waits for the sockets, pending_bytes_per_peer how
    much is kept for a peer that does not read.
    """

    frame_bytes_max: int
    peers_max: int
    heartbeat_s: float
    pending_bytes_per_peer: int
    frames_per_turn: int = 512
    ipc_mode: int = 0o600
    ipc_gid: int = -1
    """The group of a local socket's file, -1: as it comes."""
    peers_per_address_max: int = 0
    """Of other machines; 0 sets no limit."""

    @property
    def ping_s(self) -> float:
        """How often libzmq asks a peer's libzmq whether it is there."""
        return max(0.001, self.heartbeat_s / PINGS_PER_PERIOD)

    @property
    def unread_bytes_per_peer(self) -> int:
        """What libzmq is given for a peer before it has read; what is more waits here."""
        return self.pending_bytes_per_peer // 4

    @property
    def callers_max(self) -> int:
        """Connections of all listeners, with those that have said no HELLO yet."""
        return self.peers_max + max(CALLERS_EXTRA_MIN, self.peers_max // 8)


@dataclass(frozen=True, slots=True)
class ListenAt:
    """An address; name: of its [listener.NAME], if it has one. keys: the node's pair, in Z85, when
    it is encrypted; then only known client keys are let in, or takes_any_key, and from these
    networks, none: from anywhere."""

    address: str
    name: str = ""
    keys: tuple[bytes, bytes] | None = field(default=None, repr=False)
    takes_any_key: bool = False
    networks: tuple[str, ...] = ()

    @property
    def domain(self) -> bytes:
        """What libzmq calls it when it asks whether somebody may come in."""
        return f"hms-listener-{self.name}".encode()


class Listener:
    """One ROUTER socket, bound to one address."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        at: ListenAt,
        limits: GatewayLimits,
        everywhere: list[Callers],
        arrivals: Arrivals,
        on_cut: Callable[[Accepted, str], None] = lambda _caller, _why: None,
    ) -> None:
        self._file: tuple[Path, int] | None = None
        address = at.address
        self.name = at.name or address
        self.socket = context.socket(zmq.ROUTER)
        self.has_input: Callable[[], Sequence[Any]] = partial(
            zmq.zmq_poll, [(self.socket, int(zmq.POLLIN))], 0
        )
        """Not empty while a frame waits: 1 microsecond, an Again that is raised costs 5 to 10."""
        self._receive = self.socket.recv
        self._send = _plain_send(self.socket)
        self._head: zmq.Frame | None = None
        self.callers = Callers(
            *(context, self.socket, limits.callers_max, limits.heartbeat_s, everywhere, arrivals),
            name=self.name,
            on_cut=on_cut,
        )
        try:
            _configure(self.socket, limits)
            if context.get(zmq.IO_THREADS) == len(_THREADS):
                self.socket.setsockopt(zmq.AFFINITY, _THREADS[at.keys is not None])
            if at.keys is not None:
                self.socket.curve_server = True
                self.socket.curve_secretkey = at.keys[1]
                self.socket.zap_domain = at.domain
            self.socket.setsockopt(zmq.IPV6, int("[" in address))
            with _only(limits.ipc_mode if limits.ipc_gid < 0 else OWNER_ALONE):
                self.socket.bind(address)
        except zmq.ZMQError as fault:
            self.close()
            key = f"[listener.{at.name}]" if at.name else "listen"
            raise unusable(address, fault, key) from fault
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._file = _file_of(self.endpoint)
        if self._file is not None:
            if limits.ipc_gid >= 0:
                os.chown(self._file[0], -1, limits.ipc_gid)
            self._file[0].chmod(limits.ipc_mode)

    def receive(self) -> tuple[bytes, Sequence[bytes | memoryview]]:
        """Read the next frame's routing id and parts, or raise zmq.Again when none waits.

        There are no parts when there are not two of them. Frame objects are used because they tell
        without another call whether more follows: 1.4 instead of 2.9 microseconds for 1 KiB. What
        is large is not copied here: a worker copies out of it what it needs.
        """
        receive = self._receive
        routing_id = receive(zmq.NOBLOCK)
        self._head = head = receive(copy=False)
        if not head.more:
            return routing_id, ()
        payload = receive(copy=False)
        if not payload.more:
            is_large = len(payload) > VIEW_BYTES_MIN
            return routing_id, (head.bytes, payload.buffer if is_large else payload.bytes)
        while payload.more:  # drop them one by one: how many a peer sends is its own choice
            payload = receive(copy=False)
        return routing_id, ()

    def descriptor(self) -> int:
        """Of the connection that the last frame came through."""
        return descriptor_of(self._head)

    def who(self) -> Caller:
        """What the transport proves of whom the last frame came from."""
        return caller_at(self.name, _told(self._head, "Peer-Address"), _told(self._head, "User-Id"))

    def send(self, routing_id: bytes, parts: FrameParts) -> bool:
        """Send a frame, False when libzmq has no room; ZMQError EHOSTUNREACH when the peer is gone.

        Only the first part can be refused. The payload is lent to libzmq, not copied: 3 instead of
        17 microseconds for 64 KiB.
        """
        head, payload = parts
        send = self._send
        try:
            send(routing_id, _MORE)
        except zmq.Again:
            return False
        send(head, _MORE)
        send(payload, _LAST, copy=False)
        return True

    def refuse(self, routing_id: bytes, fault: HmsError, correlation: int = 0) -> None:
        """Tell why a frame is refused; one who is gone, or does not read, misses it."""
        try:
            self.send(routing_id, frame(Kind.ERROR, encode_error(fault), correlation))
        except zmq.ZMQError as failed:
            expect_unreachable(failed)

    def rekey(self, keys: tuple[bytes, bytes]) -> None:
        """Show another key. Connections keep the one that they began with, so they are cut."""
        self.callers.cut_all()
        self.socket.curve_secretkey = keys[1]
        rebind(self.socket, self.endpoint, f"[listener.{self.name}]")

    def close(self, *, is_drained: bool = False) -> None:
        """Close the socket and remove its file, unless another node has put its own there."""
        self.callers.close()
        self.socket.close(DRAINED_LINGER_MS if is_drained else LINGER_MS)
        if self._file is not None and _file_of(self.endpoint) == self._file:
            self._file[0].unlink(missing_ok=True)


def _told(head: zmq.Frame | None, what: str) -> str:
    """What libzmq knows of the connection that a frame came through; "" when it does not."""
    try:
        return str(head.get(what)) if head is not None else ""
    except zmq.ZMQError:
        return ""


def _plain_send(socket: "zmq.Socket[bytes]") -> Any:
    """The socket's send() without pyzmq's own Python around it, which looks for options of sockets
    that are not ours: three calls of Python less for each frame."""
    return partial(zmq.backend.Socket.send, socket)


def io_threads_for(addresses: Sequence[ListenAt]) -> int:
    """How many threads libzmq is to move bytes with. Where some listeners encrypt and others do
    not, those that do have one of their own: a handshake takes 0.6 ms of it, and a flood of them
    would hold up every frame of a local socket."""
    return max(1, len({at.keys is not None for at in addresses}))


def is_chosen_by_peer(routing_id: bytes) -> bool:
    """Whether a peer brought a routing id of its own instead of taking the one it is given."""
    return len(routing_id) != ROUTING_ID_BYTES or routing_id[:1] != b"\0"


def check_zeromq() -> None:
    """Refuse a libzmq that an attacker can break before login."""
    if zmq.zmq_version_info() < ZEROMQ_MIN:
        raise NotSupported(
            feature=f"libzmq {zmq.zmq_version()}",
            instead="Install a pyzmq that brings libzmq 4.3.4 or newer.",
        )


def expect_unreachable(failed: zmq.ZMQError) -> None:
    """A peer may be gone at any time; whatever else a socket reports is ours to fix."""
    if failed.errno != zmq.EHOSTUNREACH:
        raise failed


@contextmanager
def _only(mode: int) -> Iterator[None]:
    """What is made in the block has no further rights, not even for a moment."""
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)


def _file_of(endpoint: str) -> tuple[Path, int] | None:
    """Path and inode of an ipc address's file; None when there is none."""
    scheme, _, path = endpoint.partition("://")
    if scheme != "ipc" or not Path(path).exists():
        return None
    return Path(path), Path(path).stat().st_ino


def _configure(socket: "zmq.Socket[bytes]", limits: GatewayLimits) -> None:
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # else libzmq drops silently
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.frame_bytes_max)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    # Whether a peer is there is asked of its libzmq, whose I/O thread answers without the peer's
    # interpreter: a handler may hold that for longer than heartbeat_s.
    heartbeat_ms = max(1, int(limits.heartbeat_s * 1000))
    socket.setsockopt(zmq.HEARTBEAT_IVL, int(limits.ping_s * 1000))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, heartbeat_ms)
    # A ping cannot leave a full socket: there the kernel knows that nobody takes anything out.
    socket.setsockopt(zmq.TCP_MAXRT, heartbeat_ms)
    # libzmq counts frames, we count bytes: let it hold for a peer about what we hold ourselves,
    # in frames of the usual size, and enough small ones that a burst need not wait for a retry.
    usual = limits.pending_bytes_per_peer // PACK_BYTES
    socket.setsockopt(zmq.SNDHWM, min(1000, max(64, usual)))
    # A peer that sends faster than we read is to feel it in its own socket; half of this many
    # frames a peer keep the I/O thread busy while a turn goes on.
    socket.setsockopt(zmq.RCVHWM, FRAMES_WAITING_MAX)
    socket.copy_threshold = COPY_BYTES_MAX
