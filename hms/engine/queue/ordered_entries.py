"""Ordered entries: places of messages in a line, in order, from any of which one can go on.

They lie in chunks, so that every step costs O(log n), and a page what it shows. A heap is as fast
to fill and to empty, but for a page all of it was sorted: 200,000 messages of groups took 160 ms.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from hms.engine.groups.message_sort import Entry
from hms.engine.messages import StoredMessage

__all__ = ["LAST_PLACE", "OrderedEntries", "arrival", "one_of_each"]

LAST_PLACE: Entry = (math.inf,)
"""Behind all of them."""
_CHUNK = 512
_first, _message = itemgetter(0), itemgetter(-1)


def arrival(message: StoredMessage) -> Entry:
    """The place of a message by its priority and its arrival, which no keys decide."""
    return -message.priority, message.seq, message


class OrderedEntries:
    """No two have the same place. A place is an entry without its message, or the beginning of one:
    it stands before all that begin like it."""

    __slots__ = ("_count", "chunks")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        every = sorted(entries)
        self.chunks = [every[at : at + _CHUNK] for at in range(0, len(every), _CHUNK)]
        """None of them is empty."""
        self._count = len(every)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(self.chunks)

    def add(self, entry: Entry) -> None:
        """One more."""
        self._count += 1
        chunks = self.chunks
        if not chunks or entry > chunks[-1][-1]:
            if chunks and len(chunks[-1]) < _CHUNK:
                chunks[-1].append(entry)
            else:
                chunks.append([entry])
            return
        at, index = self._find(entry)
        chunk = chunks[at]
        chunk.insert(index, entry)
        if len(chunk) >= 2 * _CHUNK:
            chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]

    def remove(self, place: Entry) -> None:
        """One that is there leaves."""
        assert self.discard(place) is not None, "nothing stands in that place"

    def discard(self, place: Entry) -> Entry | None:
        """The one in that place leaves, if there is one; it."""
        if not self.chunks:
            return None
        at, index = self._find(place)
        chunk = self.chunks[at]
        if index == len(chunk) or chunk[index][: len(place)] != place:
            return None
        entry = chunk.pop(index)
        self._count -= 1
        if not chunk:
            del self.chunks[at]
        return entry

    def pop(self) -> Entry:
        """The smallest one leaves; there is one."""
        chunks = self.chunks
        first = chunks[0]
        entry = first.pop(0)
        self._count -= 1
        if not first:
            del chunks[0]
        return entry

    def onwards(self, place: Entry, end: Entry | None = None) -> Iterator[Entry]:
        """Those behind a place, up to another one; nothing may come or go meanwhile."""
        if not self.chunks:
            return
        first, index = self._find(place)
        for at in range(first, len(self.chunks)):
            chunk = self.chunks[at]
            stop = len(chunk)
            if end is not None and chunk[-1] > end:
                stop = bisect_left(chunk, end)
            for i in range(index, stop):
                yield chunk[i]
            if stop < len(chunk):
                return
            index = 0

    def backwards(self, place: Entry, end: Entry | None = None) -> Iterator[Entry]:
        """Those before a place, the largest first, down to another one; nothing may come or go
        meanwhile."""
        if not self.chunks:
            return
        first, index = self._find(place)
        for at in range(first, -1, -1):
            chunk = self.chunks[at]
            stop = 0
            if end is not None and chunk[0] < end:
                stop = bisect_left(chunk, end)
            for i in range(index - 1, stop - 1, -1):
                yield chunk[i]
            if stop:
                return
            index = len(self.chunks[at - 1])

    def has(self, place: Entry) -> bool:
        """Whether an entry begins like this."""
        found = next(self.onwards(place), None)
        return found is not None and found[: len(place)] == place

    def snapshot(self) -> list[Entry]:
        """All of them as they are now, in order."""
        return list(chain.from_iterable(self.chunks))

    def walk(self) -> Iterator[Entry]:
        """All of them in order, whatever comes and goes meanwhile: what comes before the place that
        is reached is not among them."""
        place: Entry = ()
        while some := list(islice(self.onwards(place), _CHUNK)):
            yield from some
            place = (*some[-1][:-2], some[-1][-2] + 1)

    # where the places are those of a line that is not sorted: -priority and seq

    def of_priority(
        self, priority: int, after: int, *, is_newest_first: bool
    ) -> Iterator[StoredMessage]:
        """Those of a priority behind a place in the order of arrival, 0: all of them."""
        begin, end = (-priority,), (1 - priority,)
        if is_newest_first:
            run = self.backwards((-priority, after) if after else end, begin)
        else:
            run = self.onwards((-priority, after + 1), end)
        return map(_message, run)

    def arrivals(self, after: int, *, is_newest_first: bool) -> list[Iterator[StoredMessage]]:
        """For each priority those that arrived after a place in the order of arrival, or before it,
        as they arrived."""
        return [
            self.of_priority(priority, after, is_newest_first=is_newest_first)
            for priority in range(10 if self.chunks else 0)
        ]

    # inside

    def _find(self, place: Any) -> tuple[int, int]:
        """The chunk, and the index in it, of the first one that is not before a place; there is a
        chunk."""
        at = max(0, bisect_left(self.chunks, place, key=_first) - 1)
        index = bisect_left(self.chunks[at], place)
        if index == len(self.chunks[at]) and at + 1 < len(self.chunks):
            return at + 1, 0
        return at, index


def one_of_each(messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
    """Of what two sources of one order have, where each that both have stands beside itself."""
    last = -1
    for message in messages:
        if message.seq != last:
            last = message.seq
            yield message
