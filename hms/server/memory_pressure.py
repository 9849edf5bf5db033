"""Pressure: what happens when more bytes are held for peers than there is room for.

The ledger knows what is on lanes and in the outbox. What libzmq holds, frames that are not complete
and frames that nobody reads, the kernel can be asked for, connection by connection. That is done
while the process is large or grows, and then for all of them. The peer for which most is held is
closed, with an error if it reads, and the next one, until there is room again.
"""

import os
import resource
from collections.abc import Callable
from functools import cache

from hms.errors.catalogue import TooManyRequests
from hms.server.byte_ledger import Ledger
from hms.server.peers import Peer, PeerKey, PeerTable

__all__ = ["Pressure", "resident_bytes"]

LOOK_S = 0.1
LOOK_S_MIN = 0.02
LOOK_S_PER_PEER = 0.0001
"""A look costs 6 microseconds a peer: one part in 20 of the time at most."""
GROWN_BYTES = 16 << 20
IDLE_S = 3600.0
WORD_S = 0.05
"""How long a peer that was told why it is closed has for reading that."""

_PAGE_BYTES = resource.getpagesize()


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(os.pread(_statm(), 64, 0).split()[1]) * _PAGE_BYTES


@cache
def _statm() -> int:
    """Open for good: when strangers have taken every descriptor, this is asked too."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


class Pressure:
    """Called by the main thread alone. on_dropped empties the lane of a peer; measure: what the
    process has in memory."""

    def __init__(
        self,
        peers: PeerTable,
        ledger: Ledger,
        on_dropped: Callable[[PeerKey], None],
        ping_s: float,
        clock: Callable[[], float],
        measure: Callable[[], int] = resident_bytes,
    ) -> None:
        self._peers = peers
        self._ledger = ledger
        self._on_dropped = on_dropped
        self._ping_s = ping_s
        self._measure = measure
        self._look_at = 0.0
        self._size = measure()
        self._clock = clock
        self._parting: list[tuple[float, Peer]] = []
        self.closed = 0
        """So many peers were given up so far."""
        peers.on_gone = ledger.gone

    def due_at(self) -> float:
        """When tend() has something to do next."""
        if self._parting:
            return min(self._look_at, self._parting[0][0])
        return self._look_at if len(self._peers) else self._clock() + IDLE_S

    def tend(self, now: float) -> None:
        """Look at everybody when the process has grown; cut those who have been told why."""
        pending_bytes = self._peers.pending_bytes if self._peers.congested else 0
        if self._ledger.total + pending_bytes > self._ledger.bytes_max:
            self.relieve()
        while self._parting and self._parting[0][0] <= now:
            self._parting.pop(0)[1].caller.cut()
        if now < self._look_at:
            return
        size, pause_s = self._measure(), LOOK_S
        if size > self._size + GROWN_BYTES or size > self._ledger.process_bytes:
            self.relieve()
            pause_s = LOOK_S_MIN + LOOK_S_PER_PEER * len(self._peers)
        self._size = size
        self._look_at = now + pause_s

    def relieve(self) -> None:
        """Close those for whom most is held, until what is held for the others has room."""
        held = {peer: self._held_for(peer) for peer in self._peers}
        over = sum(held.values()) - self._ledger.bytes_max
        for stray in self._ledger.without({peer.key for peer in held}) if self._is_full() else ():
            self._on_dropped(stray)  # it left, and what it sent before is not applied yet
        for peer in sorted(held, key=held.__getitem__, reverse=True):
            if over <= 0:
                break
            over -= held[peer]
            self.close(peer)

    def close(self, peer: Peer) -> None:
        """Give a peer up for what is held for it; what it sent, and is not applied, is dropped."""
        count = self._held_for(peer)
        self.closed += 1
        fault = TooManyRequests(
            what="bytes of one connection", count=count, limit=self._ledger.share
        )
        if peer.waiting_bytes or 2 * self._unfinished(peer) > count:
            peer.caller.cut()  # it does not read, or libzmq has most of it: no time for words
        else:
            peer.listener.refuse(peer.routing_id, fault)
            self._parting.append((self._clock() + WORD_S, peer))
        self._peers.lose(peer, str(fault))
        self._on_dropped(peer.key)

    def _is_full(self) -> bool:
        return self._ledger.total > self._ledger.bytes_max

    def _held_for(self, peer: Peer) -> int:
        ours = self._ledger.held_for(peer.key) + peer.waiting_bytes
        return ours + self._unfinished(peer)

    def _unfinished(self, peer: Peer) -> int:
        since = peer.caller.greeted_at or peer.opened_at
        return peer.caller.unfinished_bytes(self._clock() - since, self._ping_s)
