"""The gateway: the main thread, which alone owns the sockets and does nothing but move frames.

A turn: sleep until a socket, the doorbell or a heartbeat is due; read a bounded number of frames,
look at their envelopes only and hand each peer's batch to its lane; send what the workers have put
into the outbox; now and then look who is silent. Whatever a peer sends costs at most the peer:

    no HELLO first, own routing id, table full     ERROR, not remembered
    bad envelope, kind of the node's, lane full    ERROR, forgotten, on_lost
    too many bytes held for it (byte_ledger.py)         ERROR, forgotten, on_lost, cut
    does not read, silent, gone, no login in time  forgotten, on_lost

accept() and forget() travel through the outbox, so that they take place between the frames that
were put before and after them.
"""

import enum
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from threading import get_ident
from typing import Any, Protocol

import zmq

from hms.errors.catalogue import ProtocolError, TooManyRequests
from hms.errors.tree import HmsError
from hms.server import accept_guard
from hms.server.accepted_sockets import Arrivals, Callers
from hms.server.accepted_sockets import Caller as Accepted
from hms.server.byte_ledger import FRAME_BYTES, Ledger
from hms.server.listening_sockets import (
    LINGER_MS,
    FrameParts,
    GatewayLimits,
    ListenAt,
    Listener,
    check_zeromq,
    io_threads_for,
    is_chosen_by_peer,
)
from hms.server.logins.callers import Caller
from hms.server.logins.client_guard import ClientGuard
from hms.server.memory_pressure import Pressure
from hms.server.peers import FOREVER, LOOK_S, OnLost, Peer, PeerKey, PeerTable
from hms.server.refused_connections import RefusedConnections, why_of
from hms.wire.frames import CLIENT_KINDS, Envelope, Kind, decode_envelope
from hms.workers.outbox import Doorbell, Outbox

__all__ = ["Gateway", "GatewayLimits", "PeerKey"]

OnFrames = Callable[[PeerKey, list[tuple[Envelope, bytes | memoryview]]], bool]
OnAlone = Callable[[PeerKey, tuple[Envelope, bytes | memoryview]], bool]

log = logging.getLogger("hms.gateway")
SENDS_PER_TURN = 1024
SENDS_AT_ONCE = 16
"""So many frames that came of one applied here leave at once, not by way of the outbox."""
TURN_BYTES_MAX = 8 << 20  # then see first whether there is room for more
PART_BYTES = 256
FRAME_HEADERS = 2 + 16 + 2
LONG_HEADERS = 2 + 16 + 9
"""What ZeroMQ sends with a payload, the envelope included; 9 instead of 2 from PART_BYTES on."""
PROBE_MS = 5
"""How soon a peer is looked at again whose connection was closed."""
LOOK_MS = 1 + int(LOOK_S * 1000)
DROP_S = 0.02
"""Time between two filters for the kernel: one takes 0.6 ms with as many addresses as it holds."""
SLEEP_MS_MAX = 1000  # a signal that came just before the poll is noticed after it


class _Mark(enum.Enum):
    """What the outbox carries besides frames."""

    ACCEPT = enum.auto()
    FORGET = enum.auto()
    CLOSE = enum.auto()


class NodeSockets(Protocol):
    """The sockets to other nodes, whose frames the same thread moves in turns of their own."""

    outbox: Outbox[tuple[int, bytes]]

    def open(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Listen and connect."""

    def sockets(self) -> "list[zmq.Socket[bytes]]":
        """What wakes the thread."""

    def take_turn(self) -> None:
        """Read and send."""

    def due_at(self) -> float:
        """When there is something to do, if nothing comes."""

    def close(self) -> None:
        """Say good-bye and close, where they were opened."""


class Gateway:
    """Sockets on one side; on_frames, on_lost and the outbox on the other.

    on_frames(peer, frames) takes a batch to the peer's lane, False when the lane is full; HEARTBEAT
    is not passed on. on_alone(peer, frame) is asked before, of the only frame of a turn: whether it
    has been applied, for which no other thread was needed. on_lost(peer, reason) is called once for
    a peer that the gateway gives up, never for one that forget() named; on_dropped(peer) when its
    lane is to be emptied, behind that. All are called in the thread that runs run(). refused: where
    it notes who is not let in, or is cut for what it sends; user_of(peer): who has logged in there.
    """

    def __init__(
        self,
        addresses: Sequence[str | ListenAt],
        *,
        on_frames: OnFrames,
        on_lost: OnLost,
        limits: GatewayLimits,
        ledger: Ledger | None = None,
        on_dropped: Callable[[PeerKey], None] = lambda _peer: None,
        on_alone: OnAlone = lambda _peer, _frame: False,
        known_keys: Callable[[], Container[str]] = tuple,
        refused: RefusedConnections | None = None,
        user_of: Callable[[PeerKey], str] = lambda _peer: "",
        clock: Callable[[], float] = time.monotonic,
        links: NodeSockets | None = None,
    ) -> None:
        self._links = links
        self._link_context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._addresses = [ListenAt(at) if isinstance(at, str) else at for at in addresses]
        self._known_keys = known_keys
        self._guard: ClientGuard | None = None
        self._refused = refused or RefusedConnections()
        self._user_of = user_of
        self._on_frames = on_frames
        self._on_alone = on_alone
        self._limits = limits
        self._clock = clock
        self._doorbell = Doorbell()
        self.outbox: Outbox[tuple[PeerKey, FrameParts | _Mark]] = Outbox(self._doorbell.ring)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._listeners: dict[object, Listener] = {}
        self._monitors: dict[object, Callable[[], object]] = {}
        """What to do when one of them tells something of connections; true: there may be more."""
        self._unread: list[Callable[[], object]] = []
        """Those of which a turn has not taken all, or none yet: they tell only what comes then."""
        self._poller = zmq.Poller()
        self._deaf_poller = zmq.Poller()
        self._finders: dict[Listener, Callable[[bytes], Peer | None]] = {}
        self._reads_per_listener = max(1, limits.frames_per_turn // max(1, len(self._addresses)))
        self._arrivals = Arrivals()
        self._peers = PeerTable(limits, on_lost, self._arrivals, self._on_cut)
        self._locked: tuple[str, ...] = ()
        self._dropped: tuple[str, ...] = self._locked
        self._drop_at = 0.0
        self._rekeyed: deque[tuple[str, tuple[bytes, bytes]]] = deque()
        self.ledger = ledger or Ledger(limits.frame_bytes_max)
        self._pressure = Pressure(self._peers, self.ledger, on_dropped, limits.ping_s, clock)
        self._due_at = 0.0
        """When peers and pressure have to be looked at; at once when something changes there."""
        self._is_reading = True
        self._is_running = True
        self._applying_in = 0
        """The thread of run() while on_alone() is asked, else none."""
        self.turns = 0
        """So many turns were taken: it grows at least once in SLEEP_MS_MAX."""
        self._slowest_s = 0.0

    def bind(self) -> list[str]:
        """Listen at all addresses and tell the real ones; InvalidArgument when one is not free."""
        check_zeromq()
        _guard_accept()
        self._context = zmq.Context(io_threads_for(self._addresses))
        self._poller.register(self._arrivals.at, zmq.POLLIN)  # first, so that it is told first
        for poller in (self._poller, self._deaf_poller):
            poller.register(self._doorbell.fileno(), zmq.POLLIN)
        everywhere: list[Callers] = []
        try:
            if any(at.keys is not None for at in self._addresses):
                self._guard = ClientGuard(
                    *(self._context, self._addresses, self._known_keys),
                    *(self._refused, self._clock),
                )
                self._monitors[self._guard.zap.socket] = self._guard.zap.answer
                for poller in (self._poller, self._deaf_poller):
                    poller.register(self._guard.zap.socket, zmq.POLLIN)
            for address in self._addresses:
                listener = Listener(
                    *(self._context, address, self._limits, everywhere, self._arrivals),
                    self._on_idle_cut,
                )
                self._listeners[listener.socket] = listener
                self._poller.register(listener.socket, zmq.POLLIN)
                self._monitors[listener.callers.monitor_fd] = listener.callers.take_events
                self._unread.append(listener.callers.take_events)
                self._finders[listener] = self._peers.behind(listener).get
                for poller in (self._poller, self._deaf_poller):
                    poller.register(listener.callers.monitor_fd, zmq.POLLIN)
            if self._links is not None:
                if self._guard is not None:  # a context asks one guard only
                    self._link_context = zmq.Context()
                self._links.open(self._link_context or self._context)
                for socket in self._links.sockets():
                    self._poller.register(socket, zmq.POLLIN)
        except BaseException:
            self._close()
            raise
        return [listener.endpoint for listener in self._listeners.values()]

    def run(self) -> None:
        """Move frames until stop(); then send what is left and close the sockets."""
        self._peers.start(self._clock())
        try:
            while self._is_running:
                self._take_turn()
                if self._links is not None:
                    self._links.outbox.rouse()
                    if self._is_reading:
                        self._links.take_turn()
                self.turns += 1
            self._send_rest()
        finally:
            self._close()

    def put(self, items: Sequence[tuple[PeerKey, FrameParts]]) -> None:
        """Frames for peers, in order; a peer with too many unread is closed. From any thread."""
        is_here = self._applying_in == get_ident() and not self.outbox.batches
        if is_here and len(items) <= SENDS_AT_ONCE:
            now = self._clock()
            for key, parts in items:
                if (peer := self._peers.find(key)) is not None:
                    self._peers.send(peer, parts, now)
            return
        greedy = self.ledger.put(items)
        self.outbox.put_many(items)
        if greedy:
            self.outbox.put_many([(peer, _Mark.CLOSE) for peer in greedy])

    def caller_of(self, peer_key: PeerKey) -> Caller | None:
        """What the transport proves of a peer; None when it is gone. From any thread."""
        peer = self._peers.find(peer_key)
        return None if peer is None else peer.who

    def about(self, peer_key: PeerKey) -> dict[str, Any]:
        """Where a peer comes from, how long it has been silent, what it was sent since it came,
        and what waits to be read by it. From any thread."""
        peer = self._peers.find(peer_key)
        if peer is None:
            return {}
        who = peer.who
        return {
            "address": "" if who is None else who.address,
            "uid": -1 if who is None else who.uid,
            "listener": "" if who is None else who.listener,
            "idle_s": round(max(0.0, self._clock() - peer.heard_at), 1),
            "bytes_out": peer.sent_bytes,
            "pending_bytes": peer.pending_bytes,
        }

    def accept(self, peer_key: PeerKey) -> None:
        """The peer has logged in: it gets heartbeats from now on. From any thread."""
        self.outbox.put_many([(peer_key, _Mark.ACCEPT)])

    def forget(self, peer_key: PeerKey) -> None:
        """Send what was put for the peer and then know it no more. From any thread."""
        self.outbox.put_many([(peer_key, _Mark.FORGET)])

    def rekey(self, name: str, keys: tuple[bytes, bytes]) -> None:
        """The listener of that name shows another key soon; who is connected
        there is cut, and comes back if it expects the key. From any thread."""
        self._rekeyed.append((name, keys))
        self._due_at = 0.0
        self._doorbell.ring()

    def wake(self) -> None:
        """Have the loop turn once. From any thread or signal handler."""
        self._doorbell.ring()

    def stop_reading(self) -> None:
        """Take no more frames and lose nobody for silence, but go on sending. From any thread."""
        self._is_reading = False
        self._doorbell.ring()

    def stop(self) -> None:
        """End run() after this turn. From any thread or signal handler."""
        self._is_running = False
        self._doorbell.ring()

    def drop(self, sources: tuple[str, ...]) -> None:
        """New connections of these addresses are dropped, of others not. From any thread."""
        if set(sources) != set(self._locked):
            self._locked = sources
            self._due_at = 0.0
            self._doorbell.ring()

    def _take_turn(self) -> None:  # noqa: C901 - a call each is paid for every message
        peers, sleep_ms = self._peers, self._sleep_ms()
        if self._links is not None:
            sleep_ms = min(sleep_ms, self._links_sleep_ms(self._links))
        sleep_ms = 0 if self._unread else sleep_ms
        sockets = self._poller.sockets if self._is_reading else self._deaf_poller.sockets
        if self._is_reading and peers.look_at != FOREVER:
            sockets = sockets[1:]  # that something arrives is known
        ready = zmq.zmq_poll(sockets, sleep_ms)
        if ready and ready[0][0] == self._arrivals.at:
            # Mostly libzmq has the frame in a moment: that is waited for, for no turn of its own.
            peers.look_at = self._clock() + peers.look_pause_s
            ready = zmq.zmq_poll(sockets[1:], min(sleep_ms, LOOK_MS))
        self.outbox.is_awake = True  # for whatever reason: that spares the producers the wake-up
        now = self._clock()
        told = self._unread
        for source, _ in ready:
            if source in self._monitors:
                told.append(self._monitors[source])
        if told:
            self._unread = [take for take in told if take()]
            self._due_at = now
        for source, _ in ready:
            listener = self._listeners.get(source)
            if listener is not None:
                self._read(listener, now)
            elif source not in self._monitors:
                self._doorbell.silence()
        if self.outbox.batches:
            self._send_outbox(now, SENDS_PER_TURN)
        if now >= peers.look_at:
            peers.look(now, self._is_reading)
        if (
            now >= self._due_at
            or peers.congested
            or peers.is_probing
            or self.ledger.total > self.ledger.own_bytes
        ):
            self._tend(now)
        took_s = self._clock() - now
        self._slowest_s = max(self._slowest_s, took_s)

    def closed_for_memory(self) -> int:
        """How many peers were given up so far for what was held for them; from any thread."""
        return self._pressure.closed

    def slowest_turn_s(self) -> float:
        """How long the slowest turn took since this was asked, without its waiting. From another
        thread: one of the same moment may be missed."""
        slowest_s, self._slowest_s = self._slowest_s, 0.0
        return slowest_s

    def _tend(self, now: float) -> None:
        self._peers.tend(now, self._is_reading)
        self._show_keys()
        if self._dropped is not self._locked and now >= self._drop_at:
            self._dropped, self._drop_at = self._locked, now + DROP_S
            for listener in self._listeners.values():
                listener.callers.drop(self._dropped)
        self._pressure.tend(now)
        self._due_at = min(self._peers.due_at(), self._pressure.due_at())
        if self._dropped is not self._locked:
            self._due_at = min(self._due_at, self._drop_at)

    def _show_keys(self) -> None:
        while self._rekeyed:
            name, keys = self._rekeyed.popleft()
            for listener in self._listeners.values():
                if listener.name == name:
                    listener.rekey(keys)

    def _sleep_ms(self) -> int:
        """How long the poll may sleep: not at all while the outbox holds something."""
        outbox = self.outbox
        outbox.is_awake = False  # Outbox.rest(), in place
        if outbox.batches:
            outbox.is_awake = True
            return 0
        due_at = min(self._due_at, self._peers.look_at)
        left_ms = int((due_at - self._clock()) * 1000) + 1
        most_ms = PROBE_MS if self._peers.is_probing else SLEEP_MS_MAX
        return min(most_ms, max(0, left_ms))

    def _links_sleep_ms(self, links: NodeSockets) -> int:
        if not links.outbox.rest():
            return 0
        return max(0, int((links.due_at() - self._clock()) * 1000) + 1)

    def _read(self, listener: Listener, now: float) -> None:
        """Read a bounded number of frames and hand on each peer's batch."""
        receive, find, bytes_max = (
            listener.receive,
            self._finders[listener],
            self._limits.frame_bytes_max,
        )
        touched: list[Peer] = []
        room = TURN_BYTES_MAX
        for nth in range(self._reads_per_listener):
            if nth and (room < 0 or not listener.has_input()):
                break
            try:
                routing_id, parts = receive()
            except zmq.Again:
                break
            peer = find(routing_id)
            correlation = 0
            try:
                envelope, payload = decode_envelope(parts, bytes_max, CLIENT_KINDS), parts[1]
                if peer is None:
                    correlation = envelope.correlation
                    peer = self._greet(listener, routing_id, envelope, now)
            except HmsError as fault:
                size = len(parts[1]) if parts else 0
                self._refuse(listener, routing_id, peer, fault, correlation, size)
                room -= size
                continue
            peer.heard_at = now
            size = len(payload)
            room -= size
            peer.caller.taken_bytes += size + (FRAME_HEADERS if size < PART_BYTES else LONG_HEADERS)
            if envelope.kind is not Kind.HEARTBEAT:
                touched.append(peer)
                peer.received.append((envelope, payload))
                peer.received_bytes += size + FRAME_BYTES
        is_alone = len(touched) == 1
        for peer in touched:
            self._pass_on(peer, is_alone=is_alone)

    def _greet(self, listener: Listener, routing_id: bytes, hello: Envelope, now: float) -> Peer:
        """Remember a new peer, or raise why not."""
        if is_chosen_by_peer(routing_id):
            raise ProtocolError(detail="a client sets no routing id of its own")
        if hello.kind is not Kind.HELLO:
            raise ProtocolError(detail=f"the first frame is HELLO, not {hello.kind.name}")
        self._due_at = now
        return self._peers.add(listener, routing_id, now)

    def _refuse(
        self,
        listener: Listener,
        routing_id: bytes,
        peer: Peer | None,
        fault: HmsError,
        correlation: int,
        size: int,
    ) -> None:
        """Answer a bad frame; a peer that was known is lost, after what it sent before."""
        if peer is not None:
            self._pass_on(peer)
        if peer is None or not peer.is_accepted:
            self._refused.note(listener.who(), why_of(fault), fault.number or 0)
        listener.refuse(routing_id, fault, correlation)
        if peer is not None:
            self._peers.lose(peer, str(fault))
        else:
            listener.callers.strayed(listener.descriptor(), size)

    def _on_cut(self, caller: Accepted, peer: Peer | None, why: str, error: type[HmsError]) -> None:
        """A connection is cut for what it sends; the key of one that sends a frame without end is
        not let in for a while."""
        who = caller.who() if peer is None or peer.who is None else peer.who
        user = "" if peer is None else self._user_of(peer.key)
        self._refused.note(who, why, error.number or 0, user)
        if self._guard is not None and error is ProtocolError:
            self._guard.shun(who)

    def _on_idle_cut(self, caller: Accepted, why: str) -> None:
        """A connection is cut that has said no HELLO: of a port scan, or of a health check."""
        self._refused.note(caller.who(), why)

    def _pass_on(self, peer: Peer, *, is_alone: bool = False) -> None:
        if batch := peer.received:
            size = peer.received_bytes
            peer.received, peer.received_bytes = [], 0
            if is_alone:
                self._applying_in = get_ident()
                is_applied = self._on_alone(peer.key, batch[0])
                self._applying_in = 0
                if is_applied:
                    return
            ledger = self.ledger
            if not ledger.came(peer.key, size):
                self._close_peer(peer)
            elif not self._on_frames(peer.key, batch) and self._is_reading:
                ledger.handled(peer.key, size)
                fault = TooManyRequests(
                    what="frames of one connection", count=len(batch), limit="told in the WELCOME"
                )
                peer.listener.refuse(peer.routing_id, fault)
                self._peers.lose(peer, str(fault))
            elif ledger.total > ledger.own_bytes and ledger.total > ledger.bytes_max:
                self._pressure.relieve()
                self._due_at = 0.0

    def _close_peer(self, peer: Peer) -> None:
        """Too much is held for it."""
        self._pressure.close(peer)
        self._due_at = 0.0

    def _send_outbox(self, now: float, items_max: int) -> None:
        peers = self._peers
        items = self.outbox.drain(items_max)
        sizes: dict[PeerKey, int] = {}  # the outbox holds them no more
        for key, parts in items:
            if not isinstance(parts, _Mark):
                sizes[key] = sizes.get(key, 0) + len(parts[1]) + FRAME_BYTES
        if sizes:
            self.ledger.taken(sizes)
        for key, parts in items:
            peer = peers.find(key)
            if peer is None:  # forgotten since a worker put this
                continue
            if not isinstance(parts, _Mark):
                peers.send(peer, parts, now)
            elif parts is _Mark.ACCEPT:
                peer.is_accepted = True
            elif parts is _Mark.CLOSE:
                self._close_peer(peer)
            else:
                peers.send_pending(peer, now)
                peers.remove(peer)

    def _send_rest(self) -> None:
        """The last frames: all that the workers have put, and a little time for the congested."""
        now = self._clock()
        self._send_outbox(now, sys.maxsize)
        self._doorbell.silence()
        for _ in range(LINGER_MS):
            if not self._peers.retry(now):
                break
            self._deaf_poller.poll(1)

    def _close(self) -> None:
        if self._links is not None:
            self._links.close()
        if self._link_context is not None:
            self._link_context.term()
        for listener in self._listeners.values():
            listener.close(is_drained=not self._is_reading)
        self._arrivals.close()
        if self._guard is not None:
            self._guard.zap.close()
        if self._context is not None:
            self._context.term()


def _guard_accept() -> None:
    if accept_guard.is_built and not accept_guard.install():
        log.warning("accept() is not guarded: a crowd at a local socket may end the node")
