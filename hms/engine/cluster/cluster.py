"""The cluster as the engine sees it: words come in, words and records go out. Sans-IO.

Whoever drives it tells which nodes come and go, what they say, and some times a second the time.
Every GQINT each node is told what changed at the global queues here, and now and then all of it. A
queue that is short asks others (planning.py), one that was asked gives (appetite.py), and how a
message goes over without being lost or doubled stands in moves.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from field_buffer.catalogue import ProtocolError
from hms.engine.cluster import planning
from hms.engine.cluster.appetite import give, serve, take, take_chunk, take_last
from hms.engine.cluster.arriving import arrive
from hms.engine.cluster.directory import VERBS, Directory
from hms.engine.cluster.giving import accepted, room_for, say, taken_back
from hms.engine.cluster.gossip import Gossiping
from hms.engine.cluster.members import Life
from hms.engine.cluster.peers import Asked, Peer
from hms.engine.cluster.planning import Figures
from hms.engine.cluster.relaying import gone, interested, relay_name, wishes
from hms.engine.cluster.settings import ClusterSettings, GlobalQueue
from hms.engine.cluster.words import Answer, Ask, Gossip, Interest, News, Offer, Wish, Word
from hms.engine.effects import Effects, ToNode
from hms.engine.places import Queue
from hms.engine.state import State

ASK_LIFE = 3
"""An ask is forgotten after so many intervals."""


class Cluster:
    """Global queues of one node and what it knows of the others."""

    def __init__(self, state: State, settings: ClusterSettings) -> None:
        self._state = state
        self._settings = settings
        self.peers = {index: Peer(index, name) for index, name in settings.peers}
        self.is_drained = False
        self.describe_links: Callable[[], Mapping[str, Any]] = dict
        """What the links tell for the status."""
        self.directory = Directory(state)
        self._version = -1
        self._wishes: list[Wish] = []
        self._gossip = Gossiping(settings.interval_ms)

    def attach(self, fx: Effects) -> None:
        """After boot: global queues and relays tell of what happens to them."""
        self.directory.reconcile(fx)
        for name in self._state.global_queues:
            queue = self._state.queues.get(name)
            if queue is not None:
                queue.feed = self._feeder(queue)
        for peer in self.peers.values():
            relay = self._state.queues.get(relay_name(peer.index))
            if relay is not None:
                relay.feed = self._relayer(peer, relay)

    # nodes that come and go

    def up(self, index: int, life: Life, now_ms: int, fx: Effects) -> None:
        """A node is there: what has no answer is said again, or comes back from a store that is
        gone."""
        state = self._state
        state.at(now_ms)
        self.peers[index].came(life)
        moves = state.moves.peer(index)
        offers = [moves.offers[number] for number in sorted(moves.offers)]
        if moves.target != life.store:
            moves.target = life.store
            for made in offers:
                taken_back(state, made, fx, is_redelivered=True)
        else:
            for made in offers:
                say(state, made, fx)
        peer, is_drained = self.peers[index], self.is_drained
        self._gossip.tell_all(self._queues(), peer, fx, is_drained=is_drained)
        self._say(index, Interest(wishes(state)), fx)
        for some in self.directory.all():
            self._say(index, News(some), fx)
        self._relay(peer, fx)

    def down(self, index: int, reason: str, now_ms: int, fx: Effects) -> None:
        """A node is gone; what is offered to it waits for it."""
        self._state.at(now_ms)
        gone(self._state, index, fx)
        self.peers[index].forget()
        self.peers[index].last_error = reason

    # words

    def heard(
        self, index: int, word: Word, payloads: Sequence[bytes], now_ms: int, fx: Effects
    ) -> None:
        """What a node says that is up."""
        self._state.at(now_ms)
        peer = self.peers[index]
        if not peer.is_up:
            return
        if isinstance(word, Gossip):
            peer.gossip(word)
            for queue in self._queues():
                self._ask(queue, fx)
        elif isinstance(word, Ask):
            self._asked(peer, word, fx)
        elif isinstance(word, News):
            self.directory.told(word.entries, fx)
        elif isinstance(word, Interest):
            relay = interested(self._state, index, word, fx)
            if relay is not None:
                relay.feed = self._relayer(peer, relay)
        elif isinstance(word, Offer):
            self._offered(peer, word, payloads, fx)
        else:
            self._answered(peer, word, fx)

    def _asked(self, peer: Peer, word: Ask, fx: Effects) -> None:
        queue = self._state.queues.get(word.queue)
        if queue is None or not self._state.is_global(word.queue):
            raise ProtocolError(detail=f"{peer.name} asks for {word.queue!r}, no global queue")
        life_ms = ASK_LIFE * self._settings.interval_ms
        peer.wants(word, self._state.now_ms + life_ms)
        serve(self._state, self._of(queue), queue, [peer], fx, is_scan=True)

    def _offered(self, peer: Peer, word: Offer, payloads: Sequence[bytes], fx: Effects) -> None:
        at = len(fx.out)
        arrive(self._state, peer.index, peer.life.store, word, payloads, fx)
        answers = [e.word for e in fx.out[at:] if isinstance(e, ToNode)]
        is_new = any(isinstance(a, Answer) and a.is_accepted and not a.reason for a in answers)
        peer.last_offer = max(peer.last_offer, word.number)
        queue = self._state.queues.get(word.queue)
        if is_new and (queue is None or not self._state.is_global(word.queue)):
            peer.tally.moved_in += len(word.messages)
        elif is_new and queue is not None:
            count = len(word.messages)
            peer.tally.moved_in += count
            if word.queue in peer.asked:
                peer.asked[word.queue].came += count
            arrived = self._gossip.arrived.setdefault(word.queue, {})
            arrived.update((one.id, self._state.now_ms) for one in word.messages)
            self._ask(queue, fx)

    def _answered(self, peer: Peer, word: Answer, fx: Effects) -> None:
        made = self._state.moves.peer(peer.index).offers.get(word.number)
        if made is None:
            return  # it was answered before
        if word.is_accepted:
            peer.tally.moved_out += len(made.messages)
            accepted(self._state, made, fx)
        else:
            peer.tally.refused += len(made.messages)
            peer.given.pop(made.number, None)
            peer.last_error = word.reason
            peer.wanted.pop(made.place.name, None)
            peer.pause_ms[made.place.name] = self._state.now_ms + self._settings.interval_ms
            taken_back(self._state, made, fx)
        self._resume(peer, made.place, fx)

    # time

    def tick(self, now_ms: int, fx: Effects) -> None:
        """Tell the others, push, ask again; some times a second."""
        self._state.at(now_ms)
        is_gossip = self._gossip.is_due(self._state.now_ms)
        if is_gossip:
            queues = self._queues()
            self._gossip.measure(queues, self._state.now_ms)
            self._gossip.tell(queues, self._up(), fx, is_drained=self.is_drained)
            self._say_again(fx)
            self.directory.retry(fx)
        self._tell_wishes(fx)
        for peer in self._up():
            self._relay(peer, fx)
        for queue in self._queues():
            self._serve(queue, fx)
            self._ask(queue, fx)
            if self.is_drained:
                self._drain(queue, fx)
            elif is_gossip:
                self._push(queue, fx)

    def drain(self) -> int:
        """Give everything away and take nothing; how many messages are still here."""
        self.is_drained = self._state.moves.is_closed = True
        self._gossip.soon()
        return self.left()

    def resume(self) -> None:
        """The end of drain()."""
        self.is_drained = self._state.moves.is_closed = False
        self._gossip.soon()

    def left(self) -> int:
        """Messages of global queues that are here, wherever they are on their way to."""
        return sum(
            q.line.waiting_count + q.line.out_count + q.line.delayed_count for q in self._queues()
        )

    def administered(self, verb: str, arguments: Mapping[str, Any], fx: Effects) -> None:
        """An operator's command was done here: others hear of what it changed."""
        entry = self.directory.changed(verb, arguments, fx) if verb in VERBS else None
        if entry is not None:
            for peer in self._up():
                fx.must_wait = True
                self._say(peer.index, News([entry]), fx)

    def _say_again(self, fx: Effects) -> None:
        """Offers that were not answered for long: their word, or its answer, was lost."""
        until_ms = self._state.now_ms - 2 * self._settings.interval_ms
        for made in self._state.moves.offers():
            if made.said_ms <= until_ms and self.peers[made.peer].is_up:
                say(self._state, made, fx)

    # giving and asking

    def _serve(self, queue: Queue, fx: Effects) -> None:
        hungry = [peer for peer in self._up() if queue.name in peer.wanted]
        if hungry and queue.line.waiting_count:
            serve(self._state, self._of(queue), queue, hungry, fx)

    def _ask(self, queue: Queue, fx: Effects) -> None:
        """Ask for what is short, unless half of it was asked for just now."""
        settings, own = self._of(queue), self._gossip.own(queue, is_drained=self.is_drained)
        missing = planning.buffer_of(settings, own.consumers) - own.length
        if missing <= 0:
            self._ask_no_more(queue, fx)
            return
        since_ms = self._state.now_ms - self._settings.interval_ms
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
                self._say(peer.index, Ask(queue.name, count, peer.last_offer, selectors), fx)

    def _ask_no_more(self, queue: Queue, fx: Effects) -> None:
        """Nobody here receives any more: what was asked for is not wanted."""
        for peer in () if queue.consumers else self._up():
            if peer.asked.pop(queue.name, None) is not None:
                self._say(peer.index, Ask(queue.name, 0, peer.last_offer), fx)

    def _push(self, queue: Queue, fx: Effects) -> None:
        fixed = set(self._gossip.arrived.get(queue.name, ()))
        movable = queue.line.waiting_count - len(fixed)
        figures, own = self._figures(queue), self._gossip.own(queue, is_drained=self.is_drained)
        found = planning.pushes(self._of(queue), own, figures, movable)
        for peer, count in found:
            give(
                self._state,
                self.peers[peer],
                queue,
                take_last(self._state, queue, count, fixed),
                fx,
            )

    def _drain(self, queue: Queue, fx: Effects) -> None:
        most = self._of(queue).request_max
        for index, count in planning.drains(
            self._gossip.own(queue, is_drained=self.is_drained), self._figures(queue), most
        ):
            if room_for(self._state, index) > 0:
                messages = take(self._state, queue, count, fx)
                give(self._state, self.peers[index], queue, messages, fx)

    def _figures(self, queue: Queue) -> dict[int, Figures]:
        """What the nodes that are up tell of a queue."""
        now_ms = self._state.now_ms
        told = {p.index: p.figures_now(queue.name, now_ms) for p in self._up()}
        return {index: figures for index, figures in told.items() if figures is not None}

    # publications for other nodes

    def _relayer(self, peer: Peer, relay: Queue) -> Callable[[Effects], None]:
        def feed(fx: Effects) -> None:
            if relay.line.waiting_count:
                self._relay(peer, fx)

        return feed

    def _relay(self, peer: Peer, fx: Effects) -> None:
        """One offer after the other, so that no refusal changes the order."""
        name = relay_name(peer.index)
        relay, offers = self._state.queues.get(name), self._state.moves.peer(peer.index).offers
        is_paused = peer.pause_ms.get(name, 0) > self._state.now_ms
        if relay is None or not relay.line.waiting_count or not peer.is_up or is_paused:
            return
        if not any(made.place is relay for made in offers.values()):
            give(self._state, peer, relay, take_chunk(self._state, relay, fx), fx)

    def _tell_wishes(self, fx: Effects) -> None:
        """Subscribers came or went."""
        version = self._state.space.version
        if version == self._version:
            return
        self._version = version
        said = wishes(self._state) if self._state.global_topics else []
        if said != self._wishes:
            self._wishes = said
            for peer in self._up():
                self._say(peer.index, Interest(said), fx)

    def _resume(self, peer: Peer, place: Queue, fx: Effects) -> None:
        """An offer was answered: the next one may go."""
        if self._state.is_global(place.name):
            self._serve(place, fx)
        else:
            self._relay(peer, fx)

    # small things

    def _feeder(self, queue: Queue) -> Any:
        def feed(fx: Effects) -> None:
            if queue.line.waiting_count:
                self._serve(queue, fx)
            elif queue.consumers:
                self._ask(queue, fx)

        return feed

    def _queues(self) -> list[Queue]:
        queues = self._state.queues
        return [queues[name] for name in self._state.global_queues if name in queues]

    def _of(self, queue: Queue) -> GlobalQueue:
        return self._state.global_queues[queue.name]

    def _up(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.is_up]

    @staticmethod
    def _say(index: int, word: Word, fx: Effects) -> None:
        fx.out.append(ToNode(index, word))


def _selectors(queue: Queue) -> list[str]:
    """What the consumers here choose; nothing when one of them takes all."""
    texts = [c.selector.text for c in queue.consumers if c.selector is not None]
    return sorted(set(texts)) if len(texts) == len(queue.consumers) else []


__all__ = ["Cluster"]
