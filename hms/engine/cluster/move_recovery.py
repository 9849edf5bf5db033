"""What the log tells of moves, put together again at boot (moves.py)."""

from hms.engine.cluster.moves import Offer
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.state import State
from hms.records import Offered, OfferEnded, Stay

Key = tuple[int, int]
"""A node's index and the number of an offer to it."""


class OffersFound:
    """Offers without an answer so far, by the messages that are still there."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ids: dict[Key, dict[tuple[int, int], None]] = {}
        self.undecided: dict[tuple[int, int], Key] = {}
        """By the number of the place and the id of the message."""

    def offered(self, told: Offered, message_id: int) -> None:
        """A message is offered."""
        self._add(told.place, message_id, (told.peer, told.offer))

    def ended(self, told: OfferEnded) -> list[tuple[int, int]]:
        """An offer was answered: place and id of its messages."""
        known = list(self._ids.pop((told.peer, told.offer), ()))
        for one in known:
            del self.undecided[one]
        return known

    def stays(self, stay: Stay, message_id: int) -> None:
        """A later record has the message: offered by that number, or not any more."""
        before = self.undecided.pop((stay.number, message_id), None)
        if before is not None:
            del self._ids[before][stay.number, message_id]
        if stay.peer:
            self._add(stay.number, message_id, (stay.peer, stay.offer))

    def has(self, number: int, message_id: int) -> bool:
        """Whether a message that is out is offered."""
        return (number, message_id) in self.undecided

    def fill(self, place: Queue | Subscription, out: dict[int, StoredMessage]) -> None:
        """The messages of a place are in its line: take out again those that are offered."""
        found: dict[Key, list[StoredMessage]] = {}
        for message_id, message in out.items():
            key = self.undecided.get((place.number, message_id))
            if key is not None:
                place.line.take_one(message)
                found.setdefault(key, []).append(message)
        for (peer, number), messages in sorted(found.items()):
            assert isinstance(place, Queue)
            messages.sort(key=lambda m: m.seq)
            self._state.moves.add(Offer(peer, number, place, messages))

    def _add(self, place: int, message_id: int, key: Key) -> None:
        self._ids.setdefault(key, {})[place, message_id] = None
        self.undecided[place, message_id] = key
