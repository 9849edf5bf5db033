"""The links of a node: one socket that the others connect to, and one to each of them.

All of it runs in the main thread, which owns the sockets; it reads envelopes, keeps the members
(hms/engine/cluster/members.py) and hands words on. Each frame says whom its sender hears in which
epoch of the link, and a node's hello is said again as its heartbeat, three times in each
HMSHEARTBEAT. What was said in an epoch that is over is dropped.

    on_word(node, items)     words of a node that is up, with the life that said them; False: too
                             many wait, and the link is cut
    on_change(change)        a node came or went
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from hms.engine.cluster.members import (
    NOBODY,
    Change,
    Hello,
    Incarnation,
    Members,
    PeerState,
    Presence,
)
from hms.server.links.keys import KeyPair
from hms.server.links.link_frames import (
    LINK_VERSION,
    HelloBody,
    LinkKind,
    encode_hello,
    link_frame,
)
from hms.server.links.link_settings import LinkPeer, LinkSettings
from hms.server.links.link_status import describe_link
from hms.server.links.receiver import LinkReceiver
from hms.server.links.sender import LinkSender
from hms.server.refused_connections import RefusedConnections
from hms.workers.outbox import Outbox

log = logging.getLogger("hms.links")

HELLOS_PER_PERIOD = 3
RETRY_S = 0.05
"""A hello that found no connection is said again so soon, each time twice as late, at most a third
of HMSHEARTBEAT."""
ANSWERS_PER_TURN = 256
SENDS_PER_TURN = 512
PENDING_BYTES_MAX = 64 << 20
LINGER_MS = 200


class Links:
    """Sockets on one side, on_word, on_change and the outbox on the other."""

    def __init__(
        self,
        settings: LinkSettings,
        *,
        on_word: Callable[[int, list[tuple[Incarnation, bytes]]], bool],
        on_change: Callable[[Change], None],
        wake: Callable[[], None],
        on_key_learned: Callable[[str, str], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        refused: RefusedConnections | None = None,
        clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """refused: where it notes which nodes are not let in; clock_ms: the node's, which the
        others compare with theirs."""
        self._settings = settings
        self._refused = refused or RefusedConnections()
        self._on_word, self._on_change = on_word, on_change
        self._on_key_learned, self._wake = on_key_learned, wake
        self._next_key = ""
        self._rekeyed: deque[KeyPair] = deque()
        self._clock, self._clock_ms = clock, clock_ms
        self.outbox: Outbox[tuple[int, bytes]] = Outbox(wake)
        self.life = NOBODY
        self._names = {peer.index: peer.name for peer in settings.peers}
        self._senders: dict[int, LinkSender] = {}
        self._hearing: LinkReceiver
        self._hello_at = 0.0
        self._retry_s = RETRY_S
        self._turned_at = 0.0

    # life of the sockets

    def open(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Listen and connect; the life of this node is known, as it has booted."""
        settings = self._settings
        own = Hello(settings.cluster, settings.name, settings.index, self.life, LINK_VERSION)
        peers = [(peer.index, peer.name) for peer in settings.peers]
        self.members = Members(own, peers, round(settings.heartbeat_s * 1000))
        self._hearing = LinkReceiver(
            settings,
            self.members,
            self,
            self._on_word,
            self._on_key_learned,
            self._refused,
            self._clock_ms,
        )
        self._hearing.open(context)
        for peer in settings.peers:
            guard = self._hearing.guard
            sender = LinkSender(context, peer.address, guard, peer.key, PENDING_BYTES_MAX)
            self._senders[peer.index] = sender
        self._turned_at = self._hello_at = self._clock()

    def sockets(self) -> "list[zmq.Socket[bytes]]":
        """What the main loop has to watch."""
        guard = self._hearing.guard
        return (
            [self._hearing.listener]
            if guard is None
            else [self._hearing.listener, guard.zap.socket]
        )

    def close(self) -> None:
        """Say good-bye and close; what is not said stays undecided, which loses nothing."""
        if not self._senders:
            return  # they were never opened
        for index, sender in self._senders.items():
            sender.hint(self._frame(LinkKind.GOODBYE, index, b"the node stops"))
            sender.close(LINGER_MS)
        self._hearing.close()

    # another key of this node

    @property
    def key(self) -> str:
        """The public key that it shows; "" without keys."""
        guard = self._hearing.guard
        return "" if guard is None else guard.own.public.decode()

    def announce(self, key: str) -> None:
        """It is going to show this key: the others are told, over links that they trust. From any
        thread."""
        self._next_key = key

    def rekey(self, keys: KeyPair) -> None:
        """It shows another key soon. From any thread."""
        self._rekeyed.append(keys)
        self._wake()

    def _show_keys(self) -> None:
        while self._rekeyed:
            self._hearing.rekey(self._rekeyed.popleft())
            for sender in self._senders.values():
                sender.connect_again()
            self._hello_at = 0.0

    def _expect_keys(self) -> None:
        guard = self._hearing.guard
        if guard is not None:
            for peer in self._settings.peers:
                self._senders[peer.index].expect(guard.keys[peer.name])

    # the main thread's turn

    def due_at(self) -> float:
        """When take_turn() has something to do next."""
        waiting = any(sender.pending_bytes for sender in self._senders.values())
        return self._clock() + 0.005 if waiting else self._hello_at

    def take_turn(self) -> None:
        """Read, send, look who is silent; a pause of this node itself is nobody's silence."""
        now = self._clock()
        paused_s = now - self._turned_at
        self._turned_at = now
        if paused_s > self._settings.heartbeat_s / 2:
            self.members.paused(round(paused_s * 1000))
        self._show_keys()
        self._hearing.take_turn(now)
        self._expect_keys()
        self._send()
        self._tend(now)

    def cut(self, index: int, reason: str, now: float) -> None:
        """Fail a node for what it does; it may say hello again."""
        log.warning("link to %s is cut: %s", self._names[index], reason)
        self.members.members[index].last_error = reason
        heard = self._hearing.heard[index]
        heard.shunned_until = max(heard.shunned_until, now + 1)
        self._hearing.forget(index)
        self.changed(self.members.gone(index, reason))

    def hello_soon(self, at: float) -> None:
        """Somebody waits to be heard."""
        self._retry_s = RETRY_S
        self._hello_at = min(self._hello_at, at)

    def changed(self, changes: Sequence[Change]) -> None:
        """Tell that nodes came or went, behind what they said before."""
        for change in changes:
            heard = self._hearing.heard[change.node]
            if heard.received:
                said, heard.received = heard.received, []
                self._on_word(change.node, said)  # if there is no room, it is said again
            name = self._names[change.node]
            if change.is_up:
                log.info("node %s is up, life %d.%d", name, *change.life)
            else:
                log.warning("node %s is failed: %s", name, change.reason)
                heard.clocks_ms.clear()  # it may come back with another one
                self._senders[change.node].start_over(self.members.members[change.node].own_epoch)
            self._on_change(change)
            self._hello_at = 0.0  # the other one should know at once whom this one hears

    def _send(self) -> None:
        for index, word in self.outbox.drain(SENDS_PER_TURN):
            member = self.members.members.get(index)
            if member is None or member.presence is not Presence.UP:
                continue  # it is said again when the node is back
            sender = self._senders[index]
            if not sender.say(self._frame(LinkKind.WORD, index, word)):
                self.cut(index, f"it does not read: {sender.pending_bytes} bytes wait", 0.0)
        for sender in self._senders.values():
            if sender.pending_bytes:
                sender.flush()

    def _tend(self, now: float) -> None:
        """Say hello when it is time, fail the silent."""
        if now >= self._hello_at:
            is_said, settings = True, self._settings
            own = settings.cluster, settings.name, settings.clients, self._next_key
            body = HelloBody(*own, self._clock_ms())
            payload = encode_hello(body)
            deaf = self.members.deaf(round(now * 1000))
            for index, sender in self._senders.items():
                self._hear_why(index, sender)
                if index in deaf:
                    sender.connect_again()
                is_said &= sender.hint(self._frame(LinkKind.HELLO, index, payload))
            period_s = self._settings.heartbeat_s / HELLOS_PER_PERIOD
            self._hello_at = now + (period_s if is_said else min(self._retry_s, period_s))
            self._retry_s = RETRY_S if is_said else min(2 * self._retry_s, period_s)
        self.changed(self.members.tick(round(now * 1000)))

    def _hear_why(self, index: int, sender: LinkSender) -> None:
        """Why the other node refuses this one, if it does."""
        for _ in range(ANSWERS_PER_TURN):
            try:
                parts = sender.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) == 2:  # noqa: PLR2004 - envelope, payload
                reason = "".join(filter(str.isprintable, parts[1][:500].decode(errors="replace")))
                member = self.members.members[index]
                if member.last_error != reason:
                    member.last_error = reason
                    log.warning("node %s refuses this one: %s", self._names[index], reason)

    def _frame(self, kind: LinkKind, index: int, payload: bytes) -> tuple[bytes, bytes]:
        member = self.members.members[index]
        own = PeerState(self.life, member.own_epoch)
        return link_frame(kind, self._settings.index, own, member.state, payload)

    def clients(self) -> list[str]:
        """Where clients find the nodes that are up; from any thread."""
        members, heard = self.members.members, self._hearing.heard
        up = [index for index in members if members[index].presence is Presence.UP]
        return [address for index in up for address in heard[index].addresses]

    def describe(self) -> dict[str, Any]:
        """The links for `hms cluster status`; from any thread, so it may be a moment old."""
        hearing, guard = self._hearing, self._hearing.guard
        return {
            "encrypted": guard is not None,
            "refused_frames": hearing.faults,
            "refused_keys": guard.zap.refused if guard is not None else 0,
            "last_refusal": hearing.last_fault,
            "links": [self._describe(peer) for peer in self._settings.peers],
        }

    def _describe(self, peer: LinkPeer) -> dict[str, Any]:
        now, heard, guard = self._clock(), self._hearing.heard[peer.index], self._hearing.guard
        return describe_link(
            *(peer, self.members.members[peer.index], heard, self._senders[peer.index]),
            "" if guard is None else guard.next_keys.get(peer.name, ""),
            now,
        )
