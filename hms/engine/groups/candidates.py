"""Candidates: what waits in a queue and matches one consumer's selector, in the queue's order.

A message that somebody else takes is noticed when its turn comes; then it is dropped here. What is
offered is looked at immediately as far as the steps of this moment go, else later (scan_slices.py).
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from hms.engine.effects import Reply
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.groups.message_sort import Entry, MessageSort
from hms.engine.groups.scan_slices import ScanSlices
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.selector.selector_cost import Price

_STALE_MAX = 1024
_AT_ONCE = 256
"""The price of so many is reckoned together."""
_seq = attrgetter("seq")


class SelectedLine(Protocol):
    """The messages that selectors choose from; see queue/pending_list.py."""

    waiting_count: int
    tracks: MessageGroups | None

    @property
    def sort(self) -> MessageSort | None:
        """What orders the messages beside their arrival."""

    def entry(self, message: StoredMessage) -> Entry:
        """Where a message has its place."""

    def open_index(self) -> dict[int, StoredMessage]:
        """Waiting messages by id."""


class SelectedQueue(Protocol):
    """The queue of these messages."""

    @property
    def line(self) -> SelectedLine:
        """What waits in it."""


class Candidates:
    """Of one consumer; every step costs O(log n)."""

    def __init__(
        self, queue: SelectedQueue, consumer: ConsumerView, looking: "ScanSlices[Candidates]"
    ) -> None:
        self.queue = queue
        self._line = queue.line
        self._wants = consumer.wants
        selector = consumer.selector
        self._price = Price() if selector is None else selector.price
        self._looking = looking
        self._heap: list[Entry] = []
        self._unseen: deque[Sequence[StoredMessage]] = deque()
        """What it has not looked at, in lists by seq; of the first one from _at on."""
        self._at = self._unseen_count = self._floor = 0
        self.replies: list[Reply] = []
        """To polls that are answered when it has looked at everything."""

    @property
    def is_behind(self) -> bool:
        """Whether there is something that it has not looked at."""
        return bool(self._unseen)

    def offer(self, messages: Sequence[StoredMessage]) -> None:
        """Messages begin to wait, or wait again."""
        if not self._unseen:
            messages = self._look_now(messages)
        if messages:
            self._look_later(messages)

    def close(self) -> None:
        """Its consumer goes."""
        self._unseen.clear()

    def first(self) -> Entry | None:
        """The first that still waits, and that anybody may take."""
        line, heap = self._line, self._heap
        index, tracks = line.open_index(), line.tracks
        while heap:
            message = _message_of(heap[0])
            if index.get(message.id) is message and (tracks is None or tracks.is_free(message)):
                return None if self._unseen and self._may_overtake(message) else heap[0]
            heapq.heappop(heap)
        return None

    def go_on(self, steps: int) -> None:
        """Look at more of what it has not looked at, for so many steps at most, and at one message
        at least."""
        looking, index = self._looking, self._line.open_index()
        until = looking.steps_left - steps
        matching: list[StoredMessage] = []
        while self._unseen and looking.steps_left > max(0, until):
            message = self._next_unseen()
            if index.get(message.id) is message:
                if self._wants(message):
                    matching.append(message)
                looking.steps_left -= self._price.of(1, message.head_bytes)
        self._add(matching)
        self._floor = self._lowest_unseen()

    # inside

    def _look_now(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """As far as the steps go; the rest."""
        looking = self._looking
        for start in range(0, len(messages), _AT_ONCE):
            some = messages[start : start + _AT_ONCE]
            steps = self._price.of(len(some), sum([m.head_bytes for m in some]))
            if steps > looking.steps_left:
                return messages[start:]
            looking.steps_left -= steps
            self._add([m for m in some if self._wants(m)])
        return ()

    def _look_later(self, messages: Sequence[StoredMessage]) -> None:
        if not self._unseen:
            self._at = self._unseen_count = 0
            self._looking.add(self)
        self._append(sorted(messages, key=_seq))
        if self._unseen_count > 2 * self._line.waiting_count + _STALE_MAX:  # most of it has left
            self._unseen.clear()
            self._at = self._unseen_count = 0
            self._append(sorted(self._line.open_index().values(), key=_seq))
        self._floor = self._lowest_unseen()

    def _append(self, messages: list[StoredMessage]) -> None:
        if messages:
            self._unseen.append(messages)
            self._unseen_count += len(messages)

    def _next_unseen(self) -> StoredMessage:
        first = self._unseen[0]
        message = first[self._at]
        self._at += 1
        self._unseen_count -= 1
        if self._at == len(first):
            self._unseen.popleft()
            self._at = 0
        return message

    def _lowest_unseen(self) -> int:
        firsts = [messages[0].seq for messages in self._unseen]
        if firsts:
            firsts[0] = self._unseen[0][self._at].seq
        return min(firsts, default=0)

    def _may_overtake(self, message: StoredMessage) -> bool:
        """Whether something that it has not looked at may stand before the message."""
        return self._line.sort is not None or message.seq >= self._floor

    def _add(self, messages: Iterable[StoredMessage]) -> None:
        heap, line = self._heap, self._line
        for message in messages:
            heapq.heappush(heap, line.entry(message))
        if len(heap) > 2 * line.waiting_count + _STALE_MAX:
            index = line.open_index()
            kept = {e[-1].id: e for e in heap if index.get(e[-1].id) is _message_of(e)}
            self._heap = list(kept.values())
            heapq.heapify(self._heap)


def _message_of(entry: Entry) -> StoredMessage:
    message: StoredMessage = entry[-1]
    return message
