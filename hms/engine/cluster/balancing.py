"""Balancing: the global queues of one node, asked for, served, pushed and drained (planning.py)."""

from collections.abc import Callable, Mapping

from hms.engine.cluster import planning
from hms.engine.cluster.cluster_messages import Ask
from hms.engine.cluster.cluster_settings import GlobalQueue
from hms.engine.cluster.demand import give, serve, take, take_last
from hms.engine.cluster.gossip import Gossiping
from hms.engine.cluster.peer_state import Asked, Peer
from hms.engine.cluster.planning import Figures
from hms.engine.cluster.source import room_for
from hms.engine.effects import Effects, ToNode
from hms.engine.queue.destinations import Queue
from hms.engine.state import State


class Balancing:
    """What is done with each global queue, by what its nodes tell of it."""

    def __init__(
        self, state: State, interval_ms: int, peers: Mapping[int, Peer], gossip: Gossiping
    ) -> None:
        self._state = state
        self._interval_ms = interval_ms
        self._peers = peers
        self._gossip = gossip

    @property
    def queues(self) -> list[Queue]:
        """The global queues here."""
        queues = self._state.queues
        return [queues[name] for name in self._state.global_queues if name in queues]

    @property
    def left(self) -> int:
        """Messages of global queues that are here, wherever they are on their way to."""
        lines = [queue.line for queue in self.queues]
        return sum(line.waiting_count + line.out_count + line.delayed_count for line in lines)

    def of(self, queue: Queue) -> GlobalQueue:
        """What hms.conf says of it."""
        return self._state.global_queues[queue.name]

    def feeder(self, queue: Queue) -> Callable[[Effects], None]:
        """Called when the queue was dispatched."""

        def feed(fx: Effects) -> None:
            if queue.line.waiting_count:
                self.serve(queue, fx)
            elif queue.consumers:
                self.ask(queue, fx)

        return feed

    def serve(self, queue: Queue, fx: Effects) -> None:
        """Give what other nodes asked for. A queue whose consumption is paused looks empty."""
        hungry = [peer for peer in self._up() if queue.name in peer.wanted]
        if (
            hungry
            and queue.line.waiting_count
            and not (queue.control.is_receiving_paused or queue.holds)
        ):
            serve(self._state, self.of(queue), queue, hungry, fx)

    def ask(self, queue: Queue, fx: Effects) -> None:
        """Ask for what is short, unless half of it was asked for just now."""
        settings, own = (
            self.of(queue),
            self._gossip.own(queue, is_drained=self._state.moves.is_closed),
        )
        missing = planning.buffer_of(settings, own.consumers) - own.length
        if missing <= 0:
            self._ask_no_more(queue, fx)
            return
        since_ms = self._state.now_ms - self._interval_ms
        asked = [p.asked[queue.name] for p in self._up() if queue.name in p.asked]
        rest = sum(one.rest(since_ms) for one in asked)
        if 2 * rest > missing:
            return
        wanted = {r.peer: r.most for r in planning.requests(settings, own, self._figures(queue))}
        selectors = _selectors(queue)
        for peer in self._up():
            count, before = wanted.get(peer.index, 0), peer.asked.get(queue.name)
            if count or (before is not None and before.rest(since_ms)):
                peer.asked[queue.name] = Asked(count, self._state.now_ms)
                peer.tally.asked += count
                word = Ask(queue.name, count, peer.last_offer, selectors)
                fx.out.append(ToNode(peer.index, word))

    def _ask_no_more(self, queue: Queue, fx: Effects) -> None:
        """Nobody here receives any more: what was asked for is not wanted."""
        for peer in () if queue.consumers else self._up():
            if peer.asked.pop(queue.name, None) is not None:
                fx.out.append(ToNode(peer.index, Ask(queue.name, 0, peer.last_offer)))

    def push(self, queue: Queue, fx: Effects) -> None:
        """Give to shorter queues what a full one has above the mean."""
        fixed = set(self._gossip.arrived.get(queue.name, ()))
        movable = queue.line.waiting_count - len(fixed)
        figures, own = (
            self._figures(queue),
            self._gossip.own(queue, is_drained=self._state.moves.is_closed),
        )
        found = planning.pushes(self.of(queue), own, figures, movable)
        for peer, count in found:
            give(
                self._state,
                self._peers[peer],
                queue,
                take_last(self._state, queue, count, fixed),
                fx,
            )

    def drain(self, queue: Queue, fx: Effects) -> None:
        """Give everything away."""
        most = self.of(queue).request_max
        for index, count in planning.drains(
            self._gossip.own(queue, is_drained=self._state.moves.is_closed),
            self._figures(queue),
            most,
        ):
            if room_for(self._state, index) > 0:
                messages = take(self._state, queue, count, fx)
                give(self._state, self._peers[index], queue, messages, fx)

    def _figures(self, queue: Queue) -> dict[int, Figures]:
        """What the nodes that are up tell of a queue."""
        now_ms = self._state.now_ms
        told = {p.index: p.figures_now(queue.name, now_ms) for p in self._up()}
        return {index: figures for index, figures in told.items() if figures is not None}

    def _up(self) -> list[Peer]:
        return [peer for peer in self._peers.values() if peer.is_up]


def _selectors(queue: Queue) -> list[str]:
    """What the consumers here choose; nothing when one of them takes all."""
    texts = [c.selector.text for c in queue.consumers if c.selector is not None]
    return sorted(set(texts)) if len(texts) == len(queue.consumers) else []
