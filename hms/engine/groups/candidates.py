"""Candidates: what waits in a queue and matches one consumer's selector, in the queue's order.

A message that somebody else takes is noticed when its turn comes; then it is dropped here.
"""

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hms.engine.groups.message_sort import Entry
from hms.engine.messages import StoredMessage

if TYPE_CHECKING:
    from hms.engine.queue.pending_list import Line

_STALE_MAX = 1024


class Candidates:
    """Of one consumer; every step costs O(log n)."""

    def __init__(self, line: "Line") -> None:
        self._line = line
        self._heap: list[Entry] = []

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Messages that match begin to wait, or wait again."""
        heap, line = self._heap, self._line
        for message in messages:
            heapq.heappush(heap, line.entry(message))
        if len(heap) > 2 * line.waiting_count + _STALE_MAX:
            index = line.open_index()
            kept = {e[-1].id: e for e in heap if index.get(e[-1].id) is _message_of(e)}
            self._heap = list(kept.values())
            heapq.heapify(self._heap)

    def first(self) -> Entry | None:
        """The first that still waits, and that anybody may take."""
        line, heap = self._line, self._heap
        index, tracks = line.open_index(), line.tracks
        while heap:
            message = _message_of(heap[0])
            if index.get(message.id) is message and (tracks is None or tracks.is_free(message)):
                return heap[0]
            heapq.heappop(heap)
        return None


def _message_of(entry: Entry) -> StoredMessage:
    message: StoredMessage = entry[-1]
    return message
