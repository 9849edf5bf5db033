"""Line: where messages wait for consumers: a queue, or one subscription of a topic.

Theory of operation. A message is WAITING, DELAYED (it waits, but not before its time) or OUT
(delivered, not settled); it leaves by being acknowledged or discarded. Waiting messages stand in
one deque per priority, in order of arrival. Those that come back stand in a heap beside it and are
older than what follows them, so the next message is the smaller of the two heads. A message taken
from the middle (by a selector, by expiry) is only noted in `_gone` and skipped when its turn comes;
so every step costs O(1) or O(log n).
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hms.engine.messages import StoredMessage


@dataclass(slots=True)
class Counters:
    """What happened at a line since the node booted (F-M5)."""

    sent: int = 0
    delivered: int = 0
    acknowledged: int = 0
    expired: int = 0
    dead_lettered: int = 0
    purged: int = 0
    redelivered: int = 0


class Line:
    """Messages in order, highest priority first, oldest first within one priority."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        """0: the log knows nothing of it."""
        self.name = name
        self.waiting_count = 0
        self.out_count = 0
        self.size_bytes = 0
        self.counters = Counters()
        self.history: dict[int, tuple[int, int]] = {}
        """(deliveries, failed attempts) of messages that came back, by id."""
        self._levels: list[deque[StoredMessage]] = [deque() for _ in range(10)]
        self._top = -1
        self._returned: list[tuple[int, int, StoredMessage]] = []
        self._gone: set[int] = set()
        self._mortal: dict[int, StoredMessage] = {}
        self._expiry: list[tuple[int, int]] = []
        self._index: dict[int, StoredMessage] | None = None
        self._delayed: dict[int, tuple[int, StoredMessage]] = {}

    # adding

    def add(self, messages: list[StoredMessage]) -> None:
        """New messages, younger than all that ever came."""
        self.waiting_count += len(messages)
        self.size_bytes += sum([m.size_bytes for m in messages])
        self.counters.sent += len(messages)
        for message in messages:
            self._levels[message.priority].append(message)
            self._top = max(self._top, message.priority)
            if message.expires_at_ms:
                self._watch_expiry(message)
        if self._index is not None:
            self._index.update((m.id, m) for m in messages)

    def put_back(self, message: StoredMessage, deliveries: int, attempts: int) -> None:
        """A message that was out waits again, in its old place."""
        self.out_count -= 1
        self.waiting_count += 1
        if deliveries:
            self.history[message.id] = (deliveries, attempts)
        if message.seq in self._gone:  # it never left its place, it was only skipped
            self._gone.discard(message.seq)
        else:
            heapq.heappush(self._returned, (-message.priority, message.seq, message))
        if message.expires_at_ms:
            self._watch_expiry(message)
        if self._index is not None:
            self._index[message.id] = message

    def put_back_later(
        self, message: StoredMessage, deliveries: int, attempts: int, due_ms: int
    ) -> None:
        """A message that was out waits again from due_ms on, then in its old place."""
        self.out_count -= 1
        self.history[message.id] = (deliveries, attempts)
        self._delayed[message.id] = (due_ms, message)

    def delay(self, message: StoredMessage, due_ms: int) -> None:
        """A waiting message waits on, but not before due_ms."""
        self._skip(message)
        self._forget_waiting(message)
        self._delayed[message.id] = (due_ms, message)

    def release_due(self, now_ms: int) -> list[StoredMessage]:
        """Delayed messages whose time has come wait now."""
        due = [m for due_ms, m in self._delayed.values() if due_ms <= now_ms]
        for message in due:
            del self._delayed[message.id]
            self.out_count += 1
            self.put_back(message, *self.history.get(message.id, (0, 0)))
        return due

    @property
    def delayed_count(self) -> int:
        """How many wait for their time."""
        return len(self._delayed)

    # taking

    def take(
        self, count: int, bytes_max: int, now_ms: int, expired: list[StoredMessage]
    ) -> list[StoredMessage]:
        """Up to count messages go out, and no more once bytes_max are reached; those whose time is
        over leave into `expired` instead."""
        taken: list[StoredMessage] = []
        room = bytes_max
        while len(taken) < count and room > 0 and self.waiting_count:
            message = self._pop_first()
            self._forget_waiting(message)
            if 0 < message.expires_at_ms <= now_ms:
                self._leave(message)
                expired.append(message)
            else:
                taken.append(message)
                room -= message.length
        self.out_count += len(taken)
        return taken

    def take_one(self, message: StoredMessage) -> None:
        """One waiting message, from wherever it stands, goes out."""
        self._skip(message)
        self._forget_waiting(message)
        self.out_count += 1

    def remove(self, message: StoredMessage) -> None:
        """A waiting or delayed message leaves for good."""
        if self._delayed.pop(message.id, None) is not None:
            self._leave(message)
            return
        self._skip(message)
        self._forget_waiting(message)
        self._leave(message)

    def settle(self, message: StoredMessage) -> None:
        """A message that was out leaves for good."""
        self.out_count -= 1
        self._leave(message)

    def due(self, now_ms: int) -> list[StoredMessage]:
        """Waiting messages whose time is over; they still wait until they are removed."""
        due = []
        while self._expiry and self._expiry[0][0] <= now_ms:
            # Popped: a message that came back stands in the heap once more for every return.
            message = self._mortal.pop(heapq.heappop(self._expiry)[1], None)
            if message is not None:
                due.append(message)
        return due

    # looking

    def due_ms(self, message: StoredMessage) -> int:
        """When a delayed message waits again; 0 for others."""
        found = self._delayed.get(message.id)
        return found[0] if found is not None else 0

    def deliveries(self, message: StoredMessage) -> int:
        """How often it was delivered before."""
        return self.history[message.id][0] if message.id in self.history else 0

    def attempts(self, message: StoredMessage) -> int:
        """How many of its deliveries failed."""
        return self.history[message.id][1] if message.id in self.history else 0

    def in_order(self) -> Iterator[StoredMessage]:
        """Waiting messages in the order in which they would be taken; changes nothing."""
        for priority in range(len(self._levels) - 1, -1, -1):
            returned = sorted(e for e in self._returned if e[0] == -priority)
            back = [m for _, seq, m in returned if seq not in self._gone]
            fresh = (m for m in self._levels[priority] if m.seq not in self._gone)
            yield from heapq.merge(back, fresh, key=lambda m: m.seq)

    def everything(self) -> list[StoredMessage]:
        """All that is here and not out: waiting and delayed."""
        return [*self.in_order(), *(message for _, message in self._delayed.values())]

    def open_index(self) -> dict[int, StoredMessage]:
        """Waiting messages by id, kept from now on; for selectors and for what is taken by id."""
        if self._index is None:
            self._index = {m.id: m for m in self.in_order()}
        return self._index

    def close_index(self) -> None:
        """The index is not needed any more."""
        self._index = None

    # inside

    def _pop_first(self) -> StoredMessage:
        """The first waiting message; there is one, as waiting_count says."""
        while True:
            while self._top >= 0 and not self._levels[self._top]:
                self._top -= 1
            returned = self._returned
            level = self._levels[self._top] if self._top >= 0 else None
            if returned and (level is None or returned[0][:2] < (-self._top, level[0].seq)):
                message = heapq.heappop(returned)[2]
            else:
                assert level is not None, f"{self.name} counts {self.waiting_count}, none is there"
                message = level.popleft()
            if not self._gone or message.seq not in self._gone:
                return message
            self._gone.discard(message.seq)

    def _skip(self, message: StoredMessage) -> None:
        """Note that it is not here any more; sweep when most of what stands here is not."""
        self._gone.add(message.seq)
        if len(self._gone) > self.waiting_count + 1024:
            self._returned = [e for e in self._returned if e[1] not in self._gone]
            heapq.heapify(self._returned)
            for i, level in enumerate(self._levels):
                self._levels[i] = deque(m for m in level if m.seq not in self._gone)
            self._gone.clear()

    def _forget_waiting(self, message: StoredMessage) -> None:
        self.waiting_count -= 1
        if message.expires_at_ms:
            self._mortal.pop(message.id, None)
        if self._index is not None:
            self._index.pop(message.id, None)

    def _leave(self, message: StoredMessage) -> None:
        self.size_bytes -= message.size_bytes
        if message.block is not None and self.number:
            message.block.left(message, self.number)
        if self.history:
            self.history.pop(message.id, None)

    def _watch_expiry(self, message: StoredMessage) -> None:
        self._mortal[message.id] = message
        heapq.heappush(self._expiry, (message.expires_at_ms, message.id))
        if len(self._expiry) > 2 * len(self._mortal) + 64:
            self._expiry = [(m.expires_at_ms, m.id) for m in self._mortal.values()]
            heapq.heapify(self._expiry)


def ids_of(messages: Iterable[StoredMessage]) -> list[tuple[int, int]]:
    """The ids of messages, in the order given, as ranges of consecutive ones."""
    ranges: list[tuple[int, int]] = []
    first = last = -2
    for message in messages:
        if message.id == last + 1:
            last = message.id
            continue
        if first >= 0:
            ranges.append((first, last))
        first = last = message.id
    if first >= 0:
        ranges.append((first, last))
    return ranges
