"""Relays: what has to go to other nodes, and what is wanted of them (relaying.py)."""

from collections.abc import Callable, Sequence

from hms.engine.cluster.cluster_messages import Interest, Wish
from hms.engine.cluster.demand import give, take_chunk
from hms.engine.cluster.peer_state import Peer
from hms.engine.cluster.relaying import relay_name, wishes
from hms.engine.effects import Effects, ToNode
from hms.engine.queue.destinations import Queue
from hms.engine.state import State


class Relays:
    """The relays of one node, and what it told of its own subscribers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._version = -1
        self._wishes: list[Wish] = []

    def feeder(self, peer: Peer, relay: Queue) -> Callable[[Effects], None]:
        """Called when something came into the relay."""

        def feed(fx: Effects) -> None:
            if relay.line.waiting_count:
                self.relay(peer, fx)

        return feed

    def relay(self, peer: Peer, fx: Effects) -> None:
        """One offer after the other, so that no refusal changes the order."""
        name = relay_name(peer.index)
        relay, offers = self._state.queues.get(name), self._state.moves.peer(peer.index).offers
        is_paused = peer.pause_ms.get(name, 0) > self._state.now_ms
        if relay is None or not relay.line.waiting_count or not peer.is_up or is_paused:
            return
        if not any(made.place is relay for made in offers.values()):
            give(self._state, peer, relay, take_chunk(self._state, relay, fx), fx)

    def tell_wishes(self, peers: Sequence[Peer], fx: Effects) -> None:
        """Subscribers came or went."""
        version = self._state.space.version
        if version == self._version:
            return
        self._version = version
        said = wishes(self._state) if self._state.global_topics else []
        if said != self._wishes:
            self._wishes = said
            for peer in peers:
                fx.out.append(ToNode(peer.index, Interest(said)))
