"""Gossip: what a node tells the others of its global queues, and when.

Every GQINT what has changed since, and every twelfth time all of it, so that a word that was lost
does not leave a wrong picture for long.
"""

from collections.abc import Iterable, Sequence

from hms.engine.cluster.cluster_messages import Gossip, QueueState
from hms.engine.cluster.demand import figures_of
from hms.engine.cluster.peer_state import Peer
from hms.engine.cluster.planning import Figures
from hms.engine.cluster.target import why_full
from hms.engine.effects import Effects, ToNode
from hms.engine.queue.destinations import Queue

WHOLE_EVERY = 12


class Gossiping:
    """What was told so far. arrived: by queue, when messages came by a move; those are not pushed
    on within an interval."""

    def __init__(self, interval_ms: int) -> None:
        self.arrived: dict[str, dict[int, int]] = {}
        self._interval_ms = interval_ms
        self._next_ms = 0
        self._count = 0
        self._words = 0
        self._told: dict[str, QueueState] = {}
        self._sent_before: dict[str, tuple[int, int]] = {}
        self._rates: dict[str, int] = {}

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; then the next time is an interval later."""
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._interval_ms
        return True

    def soon(self) -> None:
        """What changed is worth a word of its own."""
        self._next_ms = 0

    def measure(self, queues: Sequence[Queue], now_ms: int) -> None:
        """How fast messages are sent to each queue."""
        since_ms = now_ms - self._interval_ms
        for queue in queues:
            sent = queue.line.counters.sent
            before, then_ms = self._sent_before.get(queue.name, (sent, now_ms))
            if now_ms > then_ms:
                self._rates[queue.name] = max(0, (sent - before) * 1000 // (now_ms - then_ms))
            self._sent_before[queue.name] = sent, now_ms
            arrived = self.arrived.get(queue.name)
            if arrived:
                kept = {id_: at_ms for id_, at_ms in arrived.items() if at_ms > since_ms}
                self.arrived[queue.name] = kept

    def tell(
        self, queues: Sequence[Queue], peers: Iterable[Peer], fx: Effects, *, is_drained: bool
    ) -> bool:
        """Tell every node what changed, now and then everything; whether it was everything."""
        self._count += 1
        rows = {queue.name: self._row(queue, is_drained=is_drained) for queue in queues}
        is_whole = self._count % WHOLE_EVERY == 0
        changed = [row for name, row in rows.items() if self._told.get(name) != row]
        said = list(rows.values()) if is_whole else changed
        self._told = rows
        for peer in peers:
            self._say(peer, said, fx, is_whole=is_whole, is_drained=is_drained)
        return is_whole

    def tell_all(
        self, queues: Sequence[Queue], peer: Peer, fx: Effects, *, is_drained: bool
    ) -> None:
        """Tell one that knows nothing yet."""
        rows = [self._row(queue, is_drained=is_drained) for queue in queues]
        self._say(peer, rows, fx, is_whole=True, is_drained=is_drained)

    def own(self, queue: Queue, *, is_drained: bool) -> Figures:
        """A queue of this node as the others learn it."""
        is_taking = not is_drained and why_full(queue, 1, 0) is None
        return figures_of(queue, self._rates.get(queue.name, 0), is_taking=is_taking)

    def _row(self, queue: Queue, *, is_drained: bool) -> QueueState:
        own = self.own(queue, is_drained=is_drained)
        return QueueState(queue.name, own.length, own.consumers, own.rate, own.bytes, own.is_taking)

    def _say(
        self,
        peer: Peer,
        rows: Sequence[QueueState],
        fx: Effects,
        *,
        is_whole: bool,
        is_drained: bool,
    ) -> None:
        self._words += 1
        word = Gossip(self._words, is_whole, peer.last_offer, rows, is_drained)
        fx.out.append(ToNode(peer.index, word))
