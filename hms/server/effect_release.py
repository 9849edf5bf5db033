"""What goes into the log, what waits for that before it may be said (P1), and the one place where
it is let go.

Effects of one batch wait together, in the order in which the engine made them, until the log is
durable up to the batch's last record. Those that need no record go at once, in order too. How a
peer is notified of them is the concern of its door.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

import msgspec

from hms.engine.effects import Confirm, Deliver, Effects, FileDropped, PromptReply, Reply, ToNode
from hms.records import Record
from hms.server.doors.door import Door, Frame, PayloadsOf, Said, Words
from hms.server.doors.native_door import NativeDoor
from hms.server.histograms import SECONDS, Histogram
from hms.server.outgoing_frames import OutgoingFrames
from hms.store.interface import Store

PUT_BYTES = 4 << 20


def append_records(store: Store, records: Iterable[Record]) -> None:
    """Put records in line, in order, and tell their owners where they lie; under the engine's lock,
    or before anybody else is there."""
    for record in records:
        position = store.append(record.type, record.events, record.parts)
        for log_position, offset in record.log_positions:
            log_position.placed(position + offset)


class Outlet(Protocol):
    """What the broker needs of the gateway."""

    def put(self, items: Sequence[tuple[Any, Frame]]) -> None:
        """Frames for peers, in order."""

    def accept(self, peer: Any) -> None:
        """The peer said hello and was let in."""

    def forget(self, peer: Any) -> None:
        """The peer is not welcome any more."""


class ToPeer(msgspec.Struct, frozen=True, gc=False):
    """Effect: something for a peer that may have no connection (yet)."""

    peer: Hashable
    said: Said


class ToConnection(msgspec.Struct, frozen=True, gc=False):
    """Effect: words for a connection, if it is still there when they may go."""

    connection: int
    words: Words


class EffectRelease:
    """Effects on their way out. add() under the engine's lock, release() from any thread."""

    def __init__(
        self,
        payloads_of: PayloadsOf | None = None,
        drop_file: Callable[[str], None] = lambda _file: None,
    ) -> None:
        """payloads_of: reads bodies that are in the log only; drop_file: removes a file that no
        message names any more."""
        self.outlet: Outlet
        self.to_node: Callable[[ToNode, PayloadsOf | None], None] = lambda _word, _payloads: None
        """Says a word to another node of the cluster."""
        self.greedy: Container[Any] = ()
        """Peers that are about to be closed, because they read less than they ask for."""
        self.native = NativeDoor()
        self.doors: dict[Hashable, Door] = {}
        """Of peers that came through another door, put here before their first command."""
        self.peers: dict[int, Hashable] = {}
        """By connection."""
        self._payloads_of, self._drop_file = payloads_of, drop_file
        self._lock = threading.Lock()
        self._at_once: deque[tuple[int, list[Any]]] = deque()
        self._waiting: deque[tuple[int, list[Any], float]] = deque()
        self.confirmation = Histogram()
        """How long effects waited for the log, from when their batch was applied."""
        self._held: dict[int, int] = {}
        """By connection, the number of the last batch for it that had to wait."""
        self._added = self._released = 0

    def add(self, fx: Effects, last_lsn: int) -> bool:
        """The effects of a batch whose records end at last_lsn; whether they wait for the log. What
        needs no record waits too when something older for the same connection waits: messages must
        not overtake one another."""
        if not fx.out:
            return False
        must_wait = len(fx.records) > fx.unawaited or fx.must_wait
        is_any_waiting = self._held and self._released != self._added
        if not (must_wait or (is_any_waiting and self._is_behind(fx.out))):
            self._at_once.append((last_lsn, fx.out))
            return False
        if self._released == self._added:
            self._held.clear()
        self._added += 1
        for effect in fx.out:
            if not isinstance(effect, ToPeer):  # said to peers that have no connection (yet)
                self._held[effect.connection] = self._added
            if isinstance(effect, Deliver) and effect.is_recorded:
                effect.fencing_token = last_lsn  # of the batch, which is in the log as a whole
        self._waiting.append((last_lsn, fx.out, perf_counter()))
        return True

    def _is_behind(self, effects: list[Any]) -> bool:
        held, released = self._held, self._released
        return any(
            held.get(e.connection, 0) > released
            for e in effects
            if not isinstance(e, ToPeer | PromptReply)
        )

    def tick(self) -> None:
        """Now and then: what was kept to be shared is given up."""
        with self._lock:
            for door in (self.native, *self.doors.values()):
                door.forget()

    def say(self, peers: Iterable[Hashable], words: Words) -> None:
        """Tell peers at once, ahead of what waits for the log."""
        outgoing = OutgoingFrames(self.native, self.doors)
        for peer in peers:
            outgoing.tell(peer, words)
        self.outlet.put(outgoing.frames())

    def release(self, durable_lsn: int) -> list[tuple[Deliver, bytes]]:
        """Send what waited for no more than durable_lsn; the messages that are for listeners, each
        with head and body. Those are read here: once this is over their segment may go."""
        listeners: list[Deliver] = []
        with self._lock:
            outgoing = OutgoingFrames(self.native, self.doors, self._payloads_of)
            done = 0
            while self._at_once:
                outgoing = self._sort(self._at_once.popleft()[1], outgoing, listeners)
            while self._waiting and self._waiting[0][0] <= durable_lsn:
                _, effects, since = self._waiting.popleft()
                outgoing = self._sort(effects, outgoing, listeners)
                done += 1
                waited_s = perf_counter() - since  # Histogram.observe(), in place
                self.confirmation.counts[bisect_left(SECONDS, waited_s)] += 1
                self.confirmation.total += waited_s
            if outgoing.out:
                self.outlet.put(outgoing.frames())
            self._released += done
            if not listeners:
                return []
            assert self._payloads_of is not None, "who has listeners reads bodies"
            bodies = self._payloads_of([deliver.messages[0] for deliver in listeners])
        return list(zip(listeners, bodies, strict=True))

    def behind(self, durable_lsn: int) -> int:
        """Up to where the log is durable and no batch waits to go out: the body of a message that
        left before is read by nobody. Without the engine's lock: who reads bodies takes it."""
        with self._lock:
            firsts = [line[0][0] for line in (self._at_once, self._waiting) if line]
            return min([durable_lsn, *(lsn - 1 for lsn in firsts)])

    def _sort(
        self, effects: list[Any], outgoing: OutgoingFrames, listeners: list[Deliver]
    ) -> OutgoingFrames:
        """Put effects behind what is going out, and a good part of it on its way: what a batch
        asks for may be far more than its peer will read. What is going out now."""
        for effect in effects:
            if outgoing.size_bytes > PUT_BYTES:
                self.outlet.put(outgoing.frames())
                outgoing = OutgoingFrames(self.native, self.doors, self._payloads_of)
            if isinstance(effect, ToPeer):
                outgoing.tell(effect.peer, effect.said)
                continue
            if isinstance(effect, Deliver) and effect.listener:
                listeners.append(
                    effect
                )  # also of a connection that no peer has (configured_listeners.py)
                continue
            peer = self.peers.get(effect.connection)
            if peer is None:
                self._do(effect)
            elif peer in self.greedy:
                continue
            elif isinstance(effect, ToConnection):
                outgoing.tell(peer, effect.words)
            elif not isinstance(effect, Reply | Confirm) or effect.correlation:
                outgoing.tell(peer, effect)
        return outgoing

    def _do(self, effect: Any) -> None:
        """It is not for a connection, or for one that is gone: what that had out was given back."""
        if isinstance(effect, FileDropped):
            self._drop_file(effect.file)
        elif isinstance(effect, ToNode):
            self.to_node(effect, self._payloads_of)
