"""The cluster as the engine sees it: words come in, words and records go out. Sans-IO.

Its driver tells which nodes come and go, what they say, and some times a second the time.
Every GQINT each node is told what changed at the global queues here, and now and then all of it. A
queue that is short asks others (planning.py), one that was asked gives (demand.py), and how a
message goes over without being lost or doubled stands in moves.py.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hms.engine.cluster.audit_heads import AuditHeads
from hms.engine.cluster.balancing import Balancing
from hms.engine.cluster.cluster_messages import (
    Answer,
    Ask,
    AuditAsk,
    AuditHead,
    AuditTold,
    ClusterMessage,
    Comparing,
    DirectoryEntries,
    Gossip,
    Interest,
    Offer,
    Policy,
)
from hms.engine.cluster.cluster_settings import ClusterSettings
from hms.engine.cluster.demand import serve
from hms.engine.cluster.directory import VERBS, Directory
from hms.engine.cluster.forward_names import forward_of
from hms.engine.cluster.forwarding import Forwards
from hms.engine.cluster.gossip import Gossiping
from hms.engine.cluster.master_node import check_master
from hms.engine.cluster.members import Incarnation
from hms.engine.cluster.moves import Offer as MadeOffer
from hms.engine.cluster.peer_state import Peer
from hms.engine.cluster.policy_exchange import PolicyExchange
from hms.engine.cluster.relay_state import Relays
from hms.engine.cluster.relaying import gone, interested, relay_name, wishes
from hms.engine.cluster.source import accepted, say, taken_back
from hms.engine.cluster.target import arrive
from hms.engine.effects import Effects, ToNode
from hms.engine.state import State
from hms.errors.catalogue import NodeNotUp, ProtocolError
from hms.wire.operations import Operation

ASK_LIFE = 3
"""An ask is forgotten after so many intervals."""


class Cluster:
    """Global queues of one node and what it knows of the others."""

    def __init__(self, state: State, settings: ClusterSettings) -> None:
        self._state = state
        self._settings = settings
        self.peers = {index: Peer(index, name) for index, name in settings.peers}
        self.describe_links: Callable[[], Mapping[str, Any]] = dict
        """What the links tell for the status."""
        self.directory = Directory(state)
        self.policy = PolicyExchange()
        self.audits = AuditHeads(state.audit)
        self._gossip = Gossiping(settings.interval_ms)
        self._balancing = Balancing(state, settings.interval_ms, self.peers, self._gossip)
        self._relays = Relays(state)
        self.forwards = Forwards(state)

    @property
    def is_drained(self) -> bool:
        """Whether this node gives everything away and takes nothing."""
        return self._state.moves.is_closed

    def attach(self, fx: Effects) -> None:
        """After boot: global queues and relays tell of what happens to them."""
        self.directory.reconcile(fx)
        for name in self._state.global_queues:
            queue = self._state.queues.get(name)
            if queue is not None:
                queue.feed = self._balancing.feeder(queue)
        self.forwards.attach(self.peers)
        for peer in self.peers.values():
            relay = self._state.queues.get(relay_name(peer.index))
            if relay is not None:
                relay.feed = self._relays.feeder(peer, relay)

    # nodes that come and go

    def up(self, index: int, life: Incarnation, now_ms: int, fx: Effects) -> None:
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
        self._gossip.tell_all(self._balancing.queues, peer, fx, is_drained=is_drained)
        self._tell_lasting(index, fx)
        self._relays.relay(peer, fx)
        self.forwards.flow(peer, fx)

    def _tell_lasting(self, index: int, fx: Effects) -> None:
        """What a node has to know for as long as it is up, of subscribers and of destinations."""
        self._say(index, Interest(wishes(self._state)), fx)
        for some in self.directory.all():
            self._say(index, DirectoryEntries(some), fx)
        if self.policy.own is not None:
            self._say(index, self.policy.own, fx)
        self._tell_audit(index, fx)

    def _compare(self, peer: Peer, word: Comparing) -> None:
        if isinstance(word, Policy):
            self.policy.told(peer.index, word)
        elif isinstance(word, AuditHead):
            self.audits.told(peer.index, peer.name, word)
        elif isinstance(word, AuditAsk):
            self.audits.questions[peer.index] = word
        else:
            self.audits.verdicts[peer.index] = word

    def ask_audits(self, number: int, fx: Effects) -> None:
        """Every other node that is up is to verify its audit."""
        for peer in self._up():
            self._say(peer.index, self.audits.question(peer.index, number), fx)

    def tell_audit(self, index: int, verdict: AuditTold, fx: Effects) -> None:
        """The answer to such a question."""
        if self.peers[index].is_up:
            self._say(index, verdict, fx)

    def _tell_audit(self, index: int, fx: Effects) -> None:
        """Behind its records: a crash must not take what another node remembers."""
        for head in self.audits.words(index):
            fx.must_wait = True
            self._say(index, head, fx)

    def tell_policy(self, policy: Policy, fx: Effects) -> None:
        """This node has another security document."""
        self.policy.own = policy
        for peer in self._up():
            self._say(peer.index, policy, fx)

    def down(self, index: int, reason: str, now_ms: int, fx: Effects) -> None:
        """A node is gone; what is offered to it waits for it."""
        self._state.at(now_ms)
        gone(self._state, index, fx)
        self.peers[index].forget()
        self.peers[index].last_error = reason

    # words

    def heard(
        self, index: int, word: ClusterMessage, payloads: Sequence[bytes], now_ms: int, fx: Effects
    ) -> None:
        """What a node says that is up."""
        self._state.at(now_ms)
        peer = self.peers[index]
        if not peer.is_up:
            return
        if isinstance(word, Gossip):
            peer.gossip(word)
            for queue in self._balancing.queues:
                self._balancing.ask(queue, fx)
        elif isinstance(word, Ask):
            self._asked(peer, word, fx)
        elif isinstance(word, DirectoryEntries):
            self.directory.told(word.entries, fx)
        elif isinstance(word, Comparing):
            self._compare(peer, word)
        elif isinstance(word, Interest):
            relay = interested(self._state, index, word, fx)
            if relay is not None:
                relay.feed = self._relays.feeder(peer, relay)
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
        serve(self._state, self._balancing.of(queue), queue, [peer], fx, is_scan=True)

    def _offered(self, peer: Peer, word: Offer, payloads: Sequence[bytes], fx: Effects) -> None:
        at = len(fx.out)
        arrive(self._state, peer.index, peer.life.store, word, payloads, fx)
        waiting = self._state.moves.arriving
        if waiting and waiting[-1].said is word:
            waiting[-1].on_taken = partial(peer.tally.moved_in_later, len(word.messages))
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
            self._balancing.ask(queue, fx)

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
            self._refused(peer, made, word.reason, fx)
        if self._state.is_global(made.place.name):
            self._balancing.serve(made.place, fx)
        else:
            self._relays.relay(peer, fx)
            self.forwards.flow(peer, fx)

    def _refused(self, peer: Peer, made: MadeOffer, reason: str, fx: Effects) -> None:
        if forward_of(made.place.name) is not None:
            self.forwards.refused(made, reason, fx)
            return
        peer.wanted.pop(made.place.name, None)
        peer.pause_ms[made.place.name] = self._state.now_ms + self._settings.interval_ms
        taken_back(self._state, made, fx)

    # time

    def tick(self, now_ms: int, fx: Effects) -> None:
        """Tell the others, push, ask again; some times a second."""
        self._state.at(now_ms)
        is_gossip = self._gossip.is_due(self._state.now_ms)
        if is_gossip:
            queues = self._balancing.queues
            self._gossip.measure(queues, self._state.now_ms)
            if self._gossip.tell(queues, self._up(), fx, is_drained=self.is_drained):
                for peer in self._up():  # a word may have been lost while the links came back
                    self._tell_lasting(peer.index, fx)
            if self.audits.is_news():
                for peer in self._up():
                    self._tell_audit(peer.index, fx)
            self._say_again(fx)
            self.directory.retry(fx)
        self._relays.tell_wishes(self._up(), fx)
        for peer in self._up():
            self._relays.relay(peer, fx)
        self.forwards.tick(self.peers, fx)
        for queue in self._balancing.queues:
            self._balancing.serve(queue, fx)
            self._balancing.ask(queue, fx)
            if self.is_drained:
                self._balancing.drain(queue, fx)
            elif is_gossip:
                self._balancing.push(queue, fx)

    def drain(self) -> int:
        """Give everything away and take nothing; how many messages are still here."""
        self._state.moves.is_closed = True
        self._gossip.soon()
        return self.left()

    def resume(self) -> None:
        """The end of drain()."""
        self._state.moves.is_closed = False
        self._gossip.soon()

    def left(self) -> int:
        """Messages of global queues that are here, wherever they are on their way to."""
        return self._balancing.left

    def node(self, name: str) -> Peer:
        """Another node by its name; NodeNotUp when there is none."""
        for peer in self.peers.values():
            if peer.name == name:
                return peer
        known = ", ".join(sorted(peer.name for peer in self.peers.values()))
        raise NodeNotUp(node=name, reason=f"the cluster's other nodes are {known}")

    def is_open(self, index: int, number: int) -> bool:
        """Whether an offer to a node waits for its answer."""
        return number in self._state.moves.peer(index).offers

    @property
    def config_master(self) -> str:
        """The node at which destinations are changed; "" for any."""
        return self._settings.config_master

    def check_command(self, verb: str, arguments: Operation) -> None:
        """NotConfigMaster for what is only done at another node."""
        check_master(self._state, self._settings, verb, arguments)

    def administered(self, verb: str, arguments: Operation, fx: Effects) -> None:
        """An operator's command was done here: others hear of what it changed."""
        entry = self.directory.changed(verb, arguments, fx) if verb in VERBS else None
        if entry is not None:
            for peer in self._up():
                fx.must_wait = True
                self._say(peer.index, DirectoryEntries([entry]), fx)

    def _say_again(self, fx: Effects) -> None:
        """Offers that were not answered for long: their word, or its answer, was lost."""
        until_ms = self._state.now_ms - 2 * self._settings.interval_ms
        for made in self._state.moves.offers():
            peer = self.peers.get(made.peer)
            if made.said_ms <= until_ms and peer is not None and peer.is_up:
                say(self._state, made, fx)

    def _up(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.is_up]

    @staticmethod
    def _say(index: int, word: ClusterMessage, fx: Effects) -> None:
        fx.out.append(ToNode(index, word))


__all__ = ["Cluster"]
