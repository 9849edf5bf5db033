"""Link receiver: the socket that other nodes connect to, and what comes through it.

A node speaks through the pipe of its last hello. Whatever comes costs at most the link: garbage is
counted, named in the log and in the status, and answered with REFUSED; a flood cuts the link for a
while.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import zmq

from hms.engine.cluster.members import (
    NOT_HEARD,
    Change,
    Hello,
    Incarnation,
    Members,
    PeerState,
    Presence,
)
from hms.errors.catalogue import MemberRefused
from hms.errors.tree import HmsError
from hms.server.address_faults import rebind, unusable
from hms.server.links.key_guard import LISTENER, Guard
from hms.server.links.keys import KeyPair
from hms.server.links.link_frames import (
    HelloBody,
    LinkEnvelope,
    LinkKind,
    decode_hello,
    decode_link,
    link_frame,
)
from hms.server.links.link_settings import FRAMES_PER_S_MAX, Heard, LinkSettings
from hms.server.logins.callers import UNKNOWN, Caller
from hms.server.refused_connections import RefusedConnections, why_of

log = logging.getLogger("hms.links")

HELLO_BACK_S = 0.05
"""A node that is heard but not up yet is answered so soon."""
READS_PER_TURN = 256
LOGS_PER_S = 5
HANDSHAKE_MS = 2000


class Owner(Protocol):
    """Who is notified of what is heard."""

    def changed(self, changes: Sequence[Change]) -> None:
        """Nodes came or went."""

    def cut(self, index: int, reason: str, now: float) -> None:
        """A node is to be failed for what it does."""

    def hello_soon(self, at: float) -> None:
        """Somebody waits for a hello."""


class LinkReceiver:
    """What comes in. on_word: see Links."""

    def __init__(
        self,
        settings: LinkSettings,
        members: Members,
        owner: Owner,
        on_word: Callable[[int, list[tuple[Incarnation, bytes]]], bool],
        on_key_learned: Callable[[str, str], None],
        refused: RefusedConnections,
        clock_ms: Callable[[], int],
    ) -> None:
        self._refused = refused
        self._settings, self.members = settings, members
        self._clock_ms = clock_ms
        self._on_key_learned = on_key_learned
        self._owner, self._on_word = owner, on_word
        self.heard = {peer.index: Heard() for peer in settings.peers}
        self.faults = 0
        self.last_fault = ""
        self.guard: Guard | None = None
        self.listener: zmq.Socket[bytes]
        self._budget_at = 0.0
        self._log_room = LOGS_PER_S

    def open(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Listen; with keys only to whom the guard lets in."""
        if self._settings.keys is not None:
            names = {peer.key: peer.name for peer in self._settings.peers}
            self.guard = Guard(context, self._settings.keys, names, self._refused)
            for peer in self._settings.peers:
                self.guard.learn(peer.name, peer.next_key)
        self.listener = self._listen(context)

    def close(self) -> None:
        """Hear nobody any more."""
        self.listener.close(0)
        if self.guard is not None:
            self.guard.zap.close()

    def forget(self, index: int) -> None:
        """What a node has said so far does not count."""
        self.heard[index].received.clear()

    def take_turn(self, now: float) -> None:
        """Answer the guard's questions, read some frames, hand the words on."""
        self._allow(now)
        if self.guard is not None:
            self.guard.zap.answer()
        self._read(now)

    def _listen(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
        listener = context.socket(zmq.ROUTER)
        listener.setsockopt(zmq.LINGER, 0)
        listener.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        listener.setsockopt(zmq.MAXMSGSIZE, self._settings.frame_bytes_max)
        listener.setsockopt(zmq.RCVHWM, READS_PER_TURN)
        if self.guard is not None:
            self.guard.protect(listener)
        try:
            listener.bind(self._settings.address)
        except zmq.ZMQError as fault:
            listener.close(0)
            if self.guard is not None:
                self.guard.zap.close()
            raise unusable(self._settings.address, fault, "HMSPORT or link_host") from fault
        return listener

    def rekey(self, keys: KeyPair) -> None:
        """Show another key. Who is connected is cut, and comes back if it knows it."""
        assert self.guard is not None
        self.guard.own = keys
        self.listener.curve_secretkey = keys.secret
        rebind(self.listener, self._settings.address, "HMSPORT or link_host")

    def _allow(self, now: float) -> None:
        """A new second, new budgets."""
        if now - self._budget_at >= 1:
            self._budget_at, self._log_room = now, LOGS_PER_S
            for heard in self.heard.values():
                heard.budget = FRAMES_PER_S_MAX

    def _read(self, now: float) -> None:
        for _ in range(READS_PER_TURN):
            try:
                pipe, *parts = self.listener.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            self._take(pipe.bytes, parts, now)
        for index, heard in self.heard.items():
            if heard.received:
                received, heard.received = heard.received, []
                if not self._on_word(index, received):
                    self._owner.cut(index, "more came than this node can take", now)

    def _take(self, pipe: bytes, parts: "Sequence[zmq.Frame]", now: float) -> None:
        """One frame; what is wrong with it is answered, counted and named."""
        try:
            data = [part.bytes for part in parts]
            envelope = decode_link(data, self._settings.frame_bytes_max)
            self._apply(pipe, envelope, data[1], _told(parts, "User-Id") if self.guard else "", now)
        except HmsError as fault:
            if isinstance(fault, MemberRefused):
                who = Caller(LISTENER, _told(parts, "Peer-Address") or UNKNOWN)
                name = _told(parts, "User-Id") if self.guard else ""
                self._refused.note(who, why_of(fault), fault.number or 0, name)
            self._refuse(pipe, fault)

    def _apply(
        self, pipe: bytes, envelope: LinkEnvelope, payload: bytes, key_name: str, now: float
    ) -> None:
        now_ms, kind = round(now * 1000), envelope.kind
        if kind is LinkKind.HELLO:
            self._greet(pipe, envelope, decode_hello(payload), key_name, now)
        else:
            self.members.known(envelope.node, envelope.state, pipe)
        heard = self.heard[envelope.node]
        heard.frames += 1
        heard.size_bytes += len(payload)
        heard.budget -= 1
        if heard.budget < 0:
            heard.shunned_until = now + self._settings.heartbeat_s
            self._owner.cut(envelope.node, f"above {FRAMES_PER_S_MAX} frames came in a second", now)
            return
        if kind is LinkKind.GOODBYE:
            reason = payload[:200].decode(errors="replace") or "it said good-bye"
            self._owner.changed(self.members.gone(envelope.node, reason))
            return
        self._owner.changed(
            self.members.heard(envelope.node, envelope.state, envelope.hears, now_ms)
        )
        life = envelope.state.life
        if kind is LinkKind.WORD and self.members.is_welcome(envelope.node, life):
            heard.received.append((life, payload))

    def _greet(
        self, pipe: bytes, envelope: LinkEnvelope, body: HelloBody, key_name: str, now: float
    ) -> None:
        """A hello: who speaks through this pipe from now on."""
        (life, epoch), node = envelope.state, envelope.node
        said = Hello(body.cluster, body.name, node, life, envelope.version, key_name, epoch)
        known = self.heard.get(envelope.node)
        if known is not None and now < known.shunned_until:
            raise MemberRefused(node=body.name, detail="it sent too much just now")
        self._owner.changed(self.members.hello(said, pipe, round(now * 1000)))
        if self.members.members[envelope.node].presence is Presence.HEARD:
            self._owner.hello_soon(now + HELLO_BACK_S)
        heard = self.heard[envelope.node]
        heard.addresses = tuple(body.addresses)
        if body.clock_ms:
            heard.clocks_ms.append(body.clock_ms - self._clock_ms())
        if body.next_key and self.guard is not None and self.guard.learn(key_name, body.next_key):
            log.warning("node %s is going to show the key %s", key_name, body.next_key)
            self._on_key_learned(key_name, body.next_key)

    def _refuse(self, pipe: bytes, fault: HmsError) -> None:
        self.faults += 1
        self.last_fault = str(fault)
        for index, member in self.members.members.items():
            if member.pipe == pipe:
                self.heard[index].refused += 1
        if self._log_room > 0:
            self._log_room -= 1
            log.warning("refused on a link: %s", fault)
        own, said = self.members.own, str(fault).encode()[:1000]
        frame = link_frame(LinkKind.REFUSED, own.node, PeerState(own.life, 0), NOT_HEARD, said)
        try:
            self.listener.send_multipart([pipe, *frame], zmq.NOBLOCK)
        except zmq.ZMQError:
            return  # it is gone, or does not read


def _told(parts: "Sequence[zmq.Frame]", what: str) -> str:
    """What libzmq knows of a peer: whose key it has shown, and where it is."""
    try:
        return str(parts[0].get(what)) if parts else ""
    except zmq.ZMQError:
        return ""
