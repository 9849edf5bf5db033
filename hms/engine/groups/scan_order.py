"""Scan order: what waits in a queue, in the queue's order, once for all consumers with selectors.

Each of them remembers how far it has looked, so what it keeps does not grow with what waits. Keys
end with the id of a message, not with the message: who still has a key of one that has left does
not keep its body in memory.

The order of a million messages takes two seconds to make, most of it for what a boot has not opened
yet. So it grows in slices, from the head of the queue, and who looks stops at the frontier.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from hms.engine.groups.message_sort import Entry, MessageSort
from hms.engine.messages import StoredMessage

__all__ = ["BEGINNING", "END", "Key", "LateOffers", "Offer", "ScanOrder", "behind"]

Key = tuple[Any, ...]
"""Where a message stands: smaller is nearer to the head; the last two items are seq and id."""
BEGINNING: Key = ()
"""Before all keys."""
END: Key = (math.inf,)
"""Behind all keys."""
_CHUNK = 512
_LATE_MAX = 1024
_first = itemgetter(0)


def behind(key: Key) -> Key:
    """The place immediately behind a key."""
    return (*key, 0)


class Offer:
    """Messages that begin to wait, or wait again, with their keys; first: the smallest of these.
    number: of the batch of late offers that they are, None as long as they are none."""

    __slots__ = ("first", "keyed", "number")

    def __init__(self, keyed: list[tuple[Key, StoredMessage]]) -> None:
        self.keyed = keyed
        self.first = min(keyed, key=_first)[0]
        self.number: int | None = None


class LateOffers:
    """What came before a place that some consumer had looked at already, and that it had no steps
    for: (seq, id) in batches, each by seq, until everybody who is late has looked at them."""

    def __init__(self, index: dict[int, StoredMessage]) -> None:
        self._index = index
        self._first = 0
        self._batches: list[list[tuple[int, int]]] = []
        self._count = self._readers = 0

    def __len__(self) -> int:
        return self._count

    def number_of(self, offer: Offer) -> int:
        """The number of the batch that an offer is, new when it was none before."""
        if offer.number is None:
            batch = sorted((m.seq, m.id) for _, m in offer.keyed)
            self._count += len(batch)
            if self._count > 2 * len(self._index) + _LATE_MAX:  # most of it has left
                return self._sweep(offer)
            self._batches.append(batch)
            offer.number = self._first + len(self._batches) - 1
        return offer.number

    def enter(self) -> None:
        """Somebody is late."""
        self._readers += 1

    def leave(self) -> None:
        """Somebody has looked at everything, or goes."""
        self._readers -= 1
        if not self._readers:
            self._first += len(self._batches)
            self._batches.clear()
            self._count = 0

    def next_at(self, number: int, at: int) -> tuple[int, int] | None:
        """Where the next one stands at or behind a place; None when there is none."""
        if number < self._first:
            number, at = self._first, 0
        batches = self._batches
        while number - self._first < len(batches):
            if at < len(batches[number - self._first]):
                return number, at
            number, at = number + 1, 0
        return None

    def get(self, number: int, at: int) -> tuple[int, int]:
        """Seq and id of the one that stands there."""
        return self._batches[number - self._first][at]

    def lowest_seq(self, number: int, at: int) -> int:
        """The lowest seq at and behind a place where something stands."""
        start = number - self._first
        seqs = [batch[0][0] for batch in self._batches[start + 1 :]]
        return min([self._batches[start][at][0], *seqs])

    def _sweep(self, offer: Offer) -> int:
        """One batch of what still waits; who is late begins with it anew."""
        waiting = {id_: seq for batch in self._batches for seq, id_ in batch if id_ in self._index}
        waiting.update((m.id, m.seq) for _, m in offer.keyed)
        self._first += len(self._batches)
        self._batches = [sorted((seq, id_) for id_, seq in waiting.items())]
        self._count = len(waiting)
        offer.number = self._first
        return self._first


class ScanOrder:
    """index: waiting messages by id, kept by the line; empty at first. sort: what orders them
    beside their arrival. back: the places of what waits and stands in no order; run: what else
    waits, in the queue's order. Both are what waits when the order is begun: what comes or goes
    while it grows is told by add() and remove()."""

    def __init__(
        self,
        index: dict[int, StoredMessage],
        sort: MessageSort | None = None,
        back: Iterable[Entry] = (),
        run: Iterable[StoredMessage] = (),
    ) -> None:
        self.index = index
        self.late = LateOffers(index)
        self.frontier: Key = BEGINNING
        """Everything before this place is in the order; END: everything is."""
        self._sort = sort
        self._chunks: list[list[Key]] = []
        self._back: Iterator[Entry] = iter(back)
        self._run: Iterator[StoredMessage] = iter(run)
        self._gone: set[int] = set()
        """The ids of what has left while the order grows."""

    def grow(self, count: int) -> int:
        """So many messages more are in the order; how many there were."""
        if self.frontier is END:
            return 0
        some = list(islice(self._back, count))
        for entry in some:
            message = entry[-1]
            self._enter(message, (*entry[:-1], message.id))
        if len(some) == count:
            return count
        more = list(islice(self._run, count - len(some)))
        for message in more:
            self._enter(message, self.key(message))
        if len(some) + len(more) < count:
            self._grown()
        else:
            self.frontier = behind(self.key(more[-1]))
        return len(some) + len(more)

    def _enter(self, message: StoredMessage, key: Key) -> None:
        if message.id not in self._gone and message.id not in self.index:
            self.index[message.id] = message
            self._add(key)

    def _grown(self) -> None:
        self.frontier, self._back, self._run = END, iter(()), iter(())
        self._gone.clear()

    def key(self, message: StoredMessage) -> Key:
        """Where a message stands."""
        if self._sort is None:
            return -message.priority, message.seq, message.id
        return (*self._sort.entry(message)[:-1], message.id)

    def offer(self, messages: Sequence[StoredMessage]) -> Offer:
        """Messages as they are shown to consumers; there is one."""
        return Offer([(self.key(m), m) for m in messages])

    def add(self, message: StoredMessage) -> None:
        """A message begins to wait."""
        self._add(self.key(message))

    def _add(self, key: Key) -> None:
        chunks = self._chunks
        if not chunks or key > chunks[-1][-1]:
            if chunks and len(chunks[-1]) < _CHUNK:
                chunks[-1].append(key)
            else:
                chunks.append([key])
            return
        at = self._chunk_of(key)
        chunk = chunks[at]
        chunk.insert(bisect_left(chunk, key), key)
        if len(chunk) >= 2 * _CHUNK:
            chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]

    def remove(self, message: StoredMessage) -> None:
        """A message waits no more."""
        if self.frontier is not END:
            self._gone.add(message.id)  # it may still be to come in what was begun with
        if not self._chunks:
            return
        key = self.key(message)
        at = self._chunk_of(key)
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place < len(chunk) and chunk[place] == key:
            del chunk[place]
            if not chunk:
                del self._chunks[at]

    @property
    def is_grown(self) -> bool:
        """Everything is in the order."""
        return self.frontier is END

    def release(self, count: int) -> bool:
        """Nobody needs it any more: it lets go of so many keys, or a little more; whether there are
        more. To let go of a million at once took 0.3 s."""
        self._back, self._run = iter(()), iter(())
        while count > 0 and self._chunks:
            count -= len(self._chunks.pop())
        return bool(self._chunks)

    def clear(self) -> None:
        """Nothing waits."""
        self._chunks.clear()
        self._grown()

    def onwards(self, place: Key) -> Iterator[Key]:
        """The keys at and behind a place and before the frontier, in order; nothing may come or go
        meanwhile."""
        if not self._chunks:
            return
        at, frontier = self._chunk_of(place), self.frontier
        chunk = self._chunks[at]
        for keys in chain([chunk[bisect_left(chunk, place) :]], self._chunks[at + 1 :]):
            if keys and keys[-1] > frontier:
                yield from keys[: bisect_left(keys, frontier)]
                return
            yield from keys

    def _chunk_of(self, key: Key) -> int:
        """The chunk that a key belongs to; there is one."""
        return max(0, bisect_right(self._chunks, key, key=_first) - 1)
