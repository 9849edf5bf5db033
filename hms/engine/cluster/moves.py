"""Moves: messages that are on their way to another node, seen from the node that gives them.

Theory of operation. A move has three records (F-J8, P6):

    here   OFFERED      the messages leave the line; from now on nobody here is given them
    there  ARRIVED      the other node has them, or refuses them for good; its answer is final
    here   OFFER_ENDED  what was accepted is forgotten, what was refused waits again as before

Each side says something only when its record is durable, and says it again after a crash or a cut
until it is answered. Offers to a node are numbered without a gap, so the other side knows one that
comes again by its number; it remembers its answers until an offer tells, by its floor, that they
have arrived. A message whose offer has no answer stays *undecided*: it counts as out, it is
carried on when the log is cleaned, and it is told again to the other node when that is back.

An offer is meant for one store. When the other node comes back with a new one, nobody knows what
became of its messages: they come again, and say that they may have been delivered.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hms.records import Entry, PeerMemory, Peers

if TYPE_CHECKING:
    from hms.engine.messages import StoredMessage
    from hms.engine.queue.destinations import Queue

DECIDED_MAX = 1024
"""More answers that did not arrive yet than a node has offers out."""


@dataclass(slots=True, eq=False)
class Offer:
    """Messages of a queue that are offered to a node."""

    peer: int
    number: int
    place: "Queue"
    messages: "list[StoredMessage]"
    said_ms: int = 0


@dataclass(slots=True)
class PeerMoves:
    """What is moved to and from one node."""

    next_offer: int = 1
    offers: dict[int, Offer] = field(default_factory=dict)
    target: int = 0
    """The life of its store, for which the offers are meant."""
    store: int = 0
    """The life of its store, of whose offers the rest speaks."""
    floor: int = 1
    decided: dict[int, bool] = field(default_factory=dict)

    @property
    def own_floor(self) -> int:
        """All offers to it below this number are answered."""
        return min(self.offers, default=self.next_offer)

    def forget_below(self, floor: int) -> None:
        """The other node needs no answer below that number any more."""
        if floor > self.floor:
            self.floor = floor
            self.decided = {n: said for n, said in self.decided.items() if n >= floor}


class Moves:
    """All that the log knows of moves. life: when this node's store came to be; incarnation: how
    often it was booted."""

    def __init__(self) -> None:
        self.life = 0
        self.incarnation = 0
        self.is_closed = False
        """Nothing is taken from other nodes any more: this one is drained, or stops."""
        self.arriving: deque[Any] = deque()
        """Publications that wait for what selectors say of them; see target.py."""
        self.directory: dict[tuple[str, str], Entry] = {}
        """What was created, altered and deleted at run time anywhere; see directory.py."""
        self.peers: dict[int, PeerMoves] = {}
        self.undecided: dict[tuple[int, int], Offer] = {}
        """By the number of the place and the id of the message."""

    def peer(self, index: int) -> PeerMoves:
        """What is moved to and from a node."""
        found = self.peers.get(index)
        if found is None:
            found = self.peers[index] = PeerMoves()
        return found

    def add(self, offer: Offer) -> None:
        """An offer without an answer."""
        peer = self.peer(offer.peer)
        peer.offers[offer.number] = offer
        peer.next_offer = max(peer.next_offer, offer.number + 1)
        for message in offer.messages:
            self.undecided[offer.place.number, message.id] = offer

    def end(self, offer: Offer) -> None:
        """An offer is answered."""
        del self.peer(offer.peer).offers[offer.number]
        for message in offer.messages:
            del self.undecided[offer.place.number, message.id]

    def offers(self) -> Iterable[Offer]:
        """All that are not answered, in the order of their numbers for each node."""
        for _, peer in sorted(self.peers.items()):
            yield from [peer.offers[number] for number in sorted(peer.offers)]

    def memory(self) -> Peers:
        """What a log whose beginning is retired would not know."""
        return Peers(
            self.life,
            self.incarnation,
            [
                PeerMemory(
                    index,
                    peer.next_offer,
                    peer.target,
                    peer.store,
                    peer.floor,
                    sorted(peer.decided.items()),
                )
                for index, peer in sorted(self.peers.items())
            ],
        )

    def restore(self, told: Peers) -> None:
        """Take over what a log tells."""
        self.life, self.incarnation = told.life, told.incarnation
        for one in told.peers:
            peer = self.peer(one.peer)
            peer.next_offer = max(peer.next_offer, one.next_offer)
            peer.target = one.target
            peer.store, peer.floor, peer.decided = one.store, one.floor, dict(one.decided)

    def numbered(self, index: int, store: int, number: int) -> None:
        """The number of an offer to a node is used, whatever was in it, and for which store."""
        peer = self.peer(index)
        peer.next_offer = max(peer.next_offer, number + 1)
        peer.target = store

    def answered(self, index: int, store: int, number: int, *, is_accepted: bool) -> None:
        """An offer of another node was taken or refused. A new store counts anew."""
        peer = self.peer(index)
        if peer.store != store:
            peer.store, peer.floor, peer.decided = store, 1, {}
        peer.decided[number] = is_accepted
