"""Who is connected: one peer, and the table that sends to peers and gives them up.

A routing id says which pipe a frame came through, never who sent it. A peer therefore has a key of
its own, given at its HELLO and never used twice: what a worker still sends to a peer that was
forgotten cannot reach the peer that says HELLO next through the same pipe.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NewType

import zmq

from hms.errors.catalogue import AddressLimit, LoginRequired, ProtocolError, TooManyConnections
from hms.errors.tree import HmsError
from hms.server.accepted_sockets import BYTES_BEFORE_LOGIN, NEVER, Arrivals, Caller
from hms.server.listening_sockets import FrameParts, GatewayLimits, Listener, expect_unreachable
from hms.server.logins.callers import Caller as Who
from hms.server.logins.callers import network_text
from hms.wire.frames import Envelope, Kind, frame

__all__ = ["FOREVER", "LOOK_S", "OnLost", "Peer", "PeerKey", "PeerTable"]

PeerKey = NewType("PeerKey", int)
OnLost = Callable[[PeerKey, str], None]
OnCut = Callable[[Caller, "Peer | None", str, type[HmsError]], None]

HEARTBEATS_PER_PERIOD = 3
SCANS_PER_PERIOD = 12  # amortised over all frames: four looks between two heartbeats
FOREVER = float("inf")
LOOK_S, LOOK_S_MIN = 0.005, 0.002
"""How soon those are looked at again that bring something, and whose frame grows."""
LOOK_S_PER_CALLER = 0.0003
"""To ask the kernel for one takes 6 microseconds: one part in 50 of the time at most."""
LOOK_S_PER_ACTIVE = 0.00002
"""One that was heard costs a word to the kernel, and one of it."""
LOOKS_PER_SCAN = 1000
"""So many quiet ones are looked at besides at each scan: 10 milliseconds at most."""
SUSPICIONS_MIN = 8
"""So many looks in turn a frame may seem too large while others may stand before it, and as many
as there are peers: each of them is read once before any is read twice."""
AUTH_BYTES = 48 << 10
"""What may come of a frame beyond a HELLO, before the login is done."""
PROBES_MAX = 20
"""So often a peer is probed whose connection was closed; then the next heartbeat finds it."""
RETRY_S_MIN, RETRY_S_MAX = 0.001, 0.05

_HEARTBEAT = frame(Kind.HEARTBEAT, count=0)


@dataclass(slots=True, eq=False)
class Peer:
    """A connection that said HELLO; times are seconds of the gateway's clock.

    received holds this turn's frames, received_bytes their size in the ledger, pending those that
    there is no room for. unread_max: how many bytes libzmq and the network may hold for it. who:
    what its transport proves of it. remote: the address that it counts for, "" none.
    """

    key: PeerKey
    routing_id: bytes
    listener: Listener
    caller: Caller
    opened_at: float
    heard_at: float
    sent_at: float
    is_accepted: bool = False
    received: list[tuple[Envelope, bytes | memoryview]] = field(default_factory=list)
    received_bytes: int = 0
    pending: deque[FrameParts] = field(default_factory=deque)
    pending_bytes: int = 0
    unread_max: int = 1 << 62
    who: Who | None = None
    remote: str = ""
    sent_bytes: int = 0
    read_bytes: int = 0
    _uncounted_bytes: int = 0

    def send(self, parts: FrameParts) -> bool:
        """Send a frame; False when there is no room. What waits goes first."""
        if self.sent_bytes - self.read_bytes > self.unread_max and not self.has_room():
            return False
        if not self.listener.send(self.routing_id, parts):
            return False
        self.sent_bytes += len(parts[0]) + len(parts[1])
        return True

    def has_room(self) -> bool:
        """Whether the peer has read enough of what libzmq was given for it.

        libzmq counts frames, up to 1,000 of whatever size. TCP knows the bytes; what it carries
        besides our frames is taken off whenever more was read than we sent.
        """
        acknowledged = self.caller.acknowledged_bytes()
        if acknowledged is None:
            self.read_bytes = self.sent_bytes
            return True
        read = acknowledged - self._uncounted_bytes
        if read > self.sent_bytes:
            self._uncounted_bytes += read - self.sent_bytes
            read = self.sent_bytes
        self.read_bytes = read
        return self.sent_bytes - read <= self.unread_max

    @property
    def waiting_bytes(self) -> int:
        """What waits to be read by it, here and in libzmq."""
        if self.sent_bytes > self.read_bytes:
            self.has_room()
        return self.pending_bytes + self.sent_bytes - self.read_bytes

    def hold(self, parts: FrameParts) -> int:
        """Keep a frame until there is room, and tell how many bytes wait."""
        self.pending.append(parts)
        self.pending_bytes += sum(map(len, parts))
        return self.pending_bytes

    def send_pending(self) -> int:
        """Send what waits as far as there is room, and tell how many frames went."""
        sent = 0
        while self.pending and self.send(self.pending[0]):
            self.pending_bytes -= sum(map(len, self.pending.popleft()))
            sent += 1
        return sent


def _is_older(routing_id: bytes, other: bytes) -> bool:
    """Of those that libzmq chose: it counts, from any number on, in 32 bits."""
    count, other_count = int.from_bytes(routing_id[1:]), int.from_bytes(other[1:])
    return (count - other_count) % (1 << 32) > 1 << 31


class PeerTable:
    """The peers by key and by pipe; on_lost(key, reason) is called for each that is given up."""

    def __init__(
        self,
        limits: GatewayLimits,
        on_lost: OnLost,
        arrivals: Arrivals,
        on_cut: OnCut = lambda _caller, _peer, _why, _error: None,
    ) -> None:
        """on_cut: told why a connection is cut for what it sends, or does not log in."""
        self._limits = limits
        self._arrivals = arrivals
        self._on_lost, self._on_cut = on_lost, on_cut
        self.on_gone: Callable[[PeerKey], None] = lambda _key: None
        """Told of every peer that is known no more."""
        self._keys = count(1)
        self._by_key: dict[PeerKey, Peer] = {}
        self.find: Callable[[PeerKey], Peer | None] = self._by_key.get
        """The peer of that key, None when it is known no more."""
        self._by_pipe: dict[Listener, dict[bytes, Peer]] = {}
        self._from_address: dict[str, int] = {}
        self.congested: dict[PeerKey, Peer] = {}
        """Those for whom frames wait that there was no room for."""
        self._retry_s = RETRY_S_MIN
        self._retry_at = 0.0
        self._scan_at = 0.0
        self.look_at = FOREVER
        """When look() has something to do next."""
        self.look_pause_s = LOOK_S
        """How long after something arrives it looks: with many who send all the time, later."""
        self.is_probing = False
        """A connection was closed whose peer is not lost yet: the next turn is soon."""

    def __iter__(self) -> Iterator[Peer]:
        """All peers."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_key)

    @property
    def pending_bytes(self) -> int:
        """What is kept for peers that have no room."""
        return sum([peer.pending_bytes for peer in self.congested.values()])

    def behind(self, listener: Listener) -> dict[bytes, Peer]:
        """The peers of one listener by routing id; a live view for the reading loop."""
        return self._by_pipe.setdefault(listener, {})

    def add(self, listener: Listener, routing_id: bytes, now: float) -> Peer:
        """Remember a new peer; TooManyConnections when there are peers_max, AddressLimit when there
        are as many from its address as there may be."""
        limits = self._limits
        if len(self._by_key) >= limits.peers_max:
            raise TooManyConnections(count=len(self._by_key), limit=limits.peers_max)
        who = listener.who()
        remote = who.remote if limits.peers_per_address_max else ""
        count = self._from_address.get(remote, 0)
        if remote and count >= limits.peers_per_address_max:
            address = network_text(remote)
            raise AddressLimit(address=address, count=count, limit=limits.peers_per_address_max)
        caller = self._caller_of(listener, routing_id)
        if caller.greeted_at is None:
            caller.greeted_at = now
        peer = Peer(PeerKey(next(self._keys)), routing_id, listener, caller, now, now, now)
        peer.who, peer.remote = who, remote
        if remote:
            self._from_address[remote] = count + 1
        peer.unread_max = self._limits.unread_bytes_per_peer
        caller.peer = peer.key
        self._by_key[peer.key] = self.behind(listener)[routing_id] = peer
        return peer

    def _caller_of(self, listener: Listener, routing_id: bytes) -> Caller:
        """The connection that the last frame came through, unless it has ended already: what came
        before its end may be read when its descriptor is another connection's.

        A connection has one routing id, so of two peers of a descriptor the older one is gone.
        """
        caller = listener.callers.greeted(listener.descriptor())
        other = self._by_key.get(PeerKey(caller.peer))
        if other is None or other.caller is not caller:
            return caller
        ended = Caller(-1, -1)
        if _is_older(routing_id, other.routing_id):
            return ended
        other.caller, ended.peer = ended, other.key
        return caller

    def remove(self, peer: Peer) -> bool:
        """Know a peer no more; False when it was not known."""
        if self._by_key.pop(peer.key, None) is None:
            return False
        if peer.remote:
            self._from_address[peer.remote] -= 1
            if not self._from_address[peer.remote]:
                del self._from_address[peer.remote]
        peer.caller.left()
        del self._by_pipe[peer.listener][peer.routing_id]
        self.congested.pop(peer.key, None)
        peer.pending.clear()
        self.on_gone(peer.key)
        return True

    def lose(self, peer: Peer, reason: str) -> None:
        """Give a peer up and say so, once."""
        if self.remove(peer):
            self._on_lost(peer.key, reason)

    def send(self, peer: Peer, parts: FrameParts, now: float) -> None:
        """Send a frame or keep it for later; the peer is lost when it is gone or does not read."""
        try:
            may_send = not peer.pending and (  # as Peer.send(), a call less for each frame
                peer.sent_bytes - peer.read_bytes <= peer.unread_max or peer.has_room()
            )
            is_sent = may_send and peer.listener.send(peer.routing_id, parts)
        except zmq.ZMQError as failed:
            self._lose_gone(peer, failed)
            return
        if is_sent:
            peer.sent_bytes += len(parts[0]) + len(parts[1])
            peer.sent_at = now
        elif peer.hold(parts) > self._limits.pending_bytes_per_peer:
            peer.caller.cut()  # else libzmq keeps what it has for it
            self.lose(peer, f"it does not read: {peer.pending_bytes} bytes wait for it")
        else:
            self._await_room(peer, now)

    def send_pending(self, peer: Peer, now: float) -> int:
        """Send what was kept for a peer, and tell how many frames went."""
        try:
            sent = peer.send_pending()
        except zmq.ZMQError as failed:
            self._lose_gone(peer, failed)
            return 0
        if sent:
            peer.sent_at = now
        if not peer.pending:
            self.congested.pop(peer.key, None)
        return sent

    def start(self, now: float) -> None:
        """Begin to count heartbeats."""
        self._scan_at = now + self._limits.heartbeat_s / SCANS_PER_PERIOD

    def due_at(self) -> float:
        """When tend() has something to do next."""
        return min(self._scan_at, self._retry_at) if self.congested else self._scan_at

    def tend(self, now: float, is_reading: bool) -> None:
        """Do what is due: try the congested again, keep up the heartbeats."""
        if self.congested and now >= self._retry_at:
            self.retry(now)
        if now >= self._scan_at:
            self._scan(now, is_reading)
        self.is_probing = False
        for listener in self._by_pipe if is_reading else ():
            if listener.callers.gone:
                self._probe(listener)

    def _probe(self, listener: Listener) -> None:
        """Lose the peers whose connection was closed, as by kill -9, without waiting for the next
        heartbeat. A routing id is never used again, so such a peer does not come back: its client
        says HELLO on another connection.

        What it had sent is read first. The event only says where to look: a peer is lost when
        libzmq refuses a frame for it, which may be a moment later.
        """
        gone, listener.callers.gone = listener.callers.gone, []
        for caller in gone:
            peer = self._by_key.get(PeerKey(caller.peer))
            if peer is None or peer.caller is not caller or not peer.is_accepted:
                continue
            if listener.has_input() or not self._lose_if_gone(peer):
                caller.probes += 1
                if caller.probes < PROBES_MAX:
                    listener.callers.gone.append(caller)
                    self.is_probing = True

    def _lose_if_gone(self, peer: Peer) -> bool:
        """Whether libzmq knew its connection no more; what came meanwhile is to be read before."""
        try:
            peer.listener.send(peer.routing_id, _HEARTBEAT)
        except zmq.ZMQError as failed:
            if peer.listener.has_input():
                return False
            self._lose_gone(peer, failed)
            return True
        return False

    def look(self, now: float, is_reading: bool) -> None:
        """Look who sends a frame without end."""
        self._arrivals.take_events()
        asked, is_growing, active = 0, False, list(self._arrivals.active.values())
        self.look_pause_s = max(LOOK_S, LOOK_S_PER_ACTIVE * len(active))
        for caller in active if is_reading else ():
            peer = self._by_key.get(PeerKey(caller.peer)) if caller.has_peer else None
            heard_at = NEVER if peer is None else peer.heard_at
            if caller.heard_at != heard_at:  # if more comes of it, the kernel tells
                caller.heard_at, caller.unheard_bytes = heard_at, 0
                self._arrivals.rest(caller)
            elif caller.look():
                is_growing = True
            else:
                self._arrivals.rest(caller)
            asked += caller.unheard_bytes != 0
            if caller.unheard_bytes <= BYTES_BEFORE_LOGIN:
                caller.suspicions = 0
            else:
                self._judge(caller, peer)
        pause_s = max(LOOK_S_MIN if is_growing else LOOK_S, LOOK_S_PER_CALLER * asked)
        self.look_at = now + pause_s if self._arrivals.active else FOREVER

    def _judge(self, caller: Caller, peer: Peer | None) -> None:
        """Cut one that has sent more than the largest frame since it was last heard.

        Unless frames of it may wait behind those of others: then the next look judges.
        """
        bytes_max = BYTES_BEFORE_LOGIN
        if peer is not None:
            bytes_max += self._limits.frame_bytes_max if peer.is_accepted else AUTH_BYTES
        if caller.unheard_bytes <= bytes_max:
            caller.suspicions = 0
            return
        caller.suspicions += 1
        why = f"it sent more than {bytes_max} bytes without completing a frame"
        if peer is None:
            if not caller.is_cut:
                self._on_cut(caller, None, why, ProtocolError)
            caller.cut()
        elif not peer.listener.has_input() or caller.suspicions > max(
            SUSPICIONS_MIN, len(self._by_key)
        ):
            self._on_cut(caller, peer, why, ProtocolError)
            caller.cut()
            self.lose(peer, why)

    def retry(self, now: float) -> bool:
        """Try to send what is kept, less often while nobody has room; tell whether some is left."""
        sent = sum([self.send_pending(peer, now) for peer in list(self.congested.values())])
        self._retry_s = RETRY_S_MIN if sent else min(RETRY_S_MAX, 2 * self._retry_s)
        self._retry_at = now + self._retry_s
        return bool(self.congested)

    def _await_room(self, peer: Peer, now: float) -> None:
        # libzmq tells for the whole socket only whether anybody has room: poll would never sleep
        if not self.congested:
            self._retry_s = RETRY_S_MIN
            self._retry_at = now + RETRY_S_MIN
        self.congested[peer.key] = peer

    def _lose_gone(self, peer: Peer, failed: zmq.ZMQError) -> None:
        expect_unreachable(failed)
        self.lose(peer, "the connection is gone")

    def _scan(self, now: float, is_reading: bool) -> None:
        """Send HEARTBEAT to those who heard nothing for long, and lose those who are gone.

        libzmq pings the peers and closes the connection of one that does not answer; the next
        frame for it says so. A peer whose program is busy is silent as well, and not lost. One
        that has taken nothing out for long is, as no ping reaches it.

        After a pause of the whole process everybody seems silent: then read first what they sent
        meanwhile and judge at the next scan.
        """
        idle_s = self._limits.heartbeat_s / HEARTBEATS_PER_PERIOD
        can_judge = is_reading and now - self._scan_at < idle_s
        self.start(now)
        for listener in self._by_pipe if can_judge else ():
            listener.callers.tend(now)
        for peer in list(self._by_key.values()):
            reason = self._why_lost(peer, now) if can_judge else ""
            if reason:
                if not peer.is_accepted:
                    self._on_cut(peer.caller, peer, reason, LoginRequired)
                self.lose(peer, reason)
            elif peer.is_accepted and now - peer.sent_at >= idle_s and not peer.pending:
                self.send(peer, _HEARTBEAT, now)
        self._arrivals.wake_some(LOOKS_PER_SCAN)
        self.look(now, is_reading)

    def _why_lost(self, peer: Peer, now: float) -> str:
        period_s = self._limits.heartbeat_s
        if peer.pending and now - max(peer.heard_at, peer.sent_at) > period_s:
            return f"nothing came or could be sent for {period_s:g} s"
        if not peer.is_accepted and now - peer.opened_at > period_s:
            return f"no login within {period_s:g} s"
        return ""
