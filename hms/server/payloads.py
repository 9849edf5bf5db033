"""Payloads: head and body of a message, from memory or from the log."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hms.engine.messages import StoredMessage
from hms.store.interface import SegmentGoneError, Store

GAP_BYTES: Final = 4096
"""Two messages so close are read together: what lies between costs less than a second read."""
RUN_BYTES: Final = 1 << 20
ALONE_BYTES: Final = 32 * 1024
"""A message of this size is read alone: to copy it out of what was read together costs more than a
second read."""
Place = tuple[int, int, int]
"""Position, size, and which message it is."""
Positions = Callable[[Sequence[StoredMessage]], list[int]]
"""Where messages lie, asked under the engine's lock: one that is moved just then changes its block
and its slot, and half of either would be another message's body."""


IN_MEMORY: Final = -1
"""The position of a message whose body came back to memory, because it is moved."""


class Payloads:
    """Reads back what is not in memory; the reading itself without the engine's lock (P5)."""

    def __init__(self, store: Store, positions: Positions) -> None:
        self._store, self._positions = store, positions

    def of_all(self, messages: Sequence[StoredMessage]) -> list[bytes]:
        """Head and body of each; those that lie beside one another are read together."""
        try:
            return self._read_all(messages)
        except SegmentGoneError:  # some were moved in between
            return [self.of(message) for message in messages]

    def _read_all(self, messages: Sequence[StoredMessage]) -> list[bytes]:
        found = [m.payload for m in messages]
        paged = [i for i, m in enumerate(messages) if len(found[i]) != m.length]
        if not paged:
            return found
        positions = self._positions([messages[i] for i in paged])
        places = []
        for at, i in zip(positions, paged, strict=True):
            if at == IN_MEMORY:
                found[i] = self.of(messages[i])
            else:
                places.append((at, messages[i].length, i))
        for run in _runs(sorted(places)):
            start = run[0][0]
            last, length, _ = run[-1]
            data = self._store.read(start, last + length - start)
            for position, size, i in run:
                found[i] = data[position - start : position - start + size]
        return found

    def of(self, message: StoredMessage) -> bytes:
        """Head and body.

        A message that is moved while its old place is read is read again at its new one.
        """
        before = IN_MEMORY
        while len(payload := message.payload) != message.length:
            (position,) = self._positions([message])
            if position == IN_MEMORY:
                continue
            try:
                return self._store.read(position, message.length)
            except SegmentGoneError:
                if position == before:
                    raise
                before = position
        return payload


def _runs(places: list[Place]) -> Iterator[list[Place]]:
    """Places that one read covers, each run in order."""
    run: list[Place] = []
    for place in places:
        if run and (
            max(place[1], run[-1][1]) >= ALONE_BYTES
            or place[0] - (run[-1][0] + run[-1][1]) > GAP_BYTES
            or place[0] - run[0][0] > RUN_BYTES
        ):
            yield run
            run = []
        run.append(place)
    if run:
        yield run
