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
from itertools import accumulate
from typing import TYPE_CHECKING

from hms.engine.delays import Delayed
from hms.engine.messages import StoredMessage, sizes_of
from hms.engine.ordering.sort import Entry, MessageSort

if TYPE_CHECKING:
    from hms.engine.ordering.tracks import Tracks
    from hms.engine.sessions import Consumer


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
    moved_in: int = 0
    moved_out: int = 0
    removed: int = 0
    count_high: int = 0
    """The most that were here at once since then."""
    bytes_high: int = 0


class Line:
    """Messages in order, highest priority first, oldest first within one priority."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        """0: the log knows nothing of it."""
        self.name = name
        self.waiting_count = 0
        self.held_count = 0
        """Of those that wait: may not be taken from here now, as their group or order has them."""
        self.out_count = 0
        self.size_bytes = 0
        self.counters = Counters()
        self.history: dict[int, tuple[int, int]] = {}
        """(deliveries, failed attempts) of messages that came back, by id."""
        self._levels: list[deque[StoredMessage]] = [deque() for _ in range(10)]
        self._top = -1
        self._returned: list[Entry] = []
        self._gone: set[int] = set()
        self._mortal: dict[int, StoredMessage] = {}
        self._expiry: list[tuple[int, int]] = []
        self._index: dict[int, StoredMessage] | None = None
        self._delayed = Delayed()
        self.sort: MessageSort | None = None
        """Then all that waits stands in the heap, ordered by its keys (F-C15)."""
        self.tracks: Tracks | None = None
        """Groups and global orders, where there can be some (F-C16, F-C17)."""

    # adding

    def add(self, messages: list[StoredMessage]) -> None:
        """New messages, younger than all that ever came."""
        self.waiting_count += len(messages)
        self.size_bytes += sizes_of(messages)
        counters = self.counters
        counters.sent += len(messages)
        counters.count_high = max(counters.count_high, self.waiting_count + self.out_count)
        counters.bytes_high = max(counters.bytes_high, self.size_bytes)
        if StoredMessage.has_files:
            for message in messages:
                message.came()
        rest = messages if self.tracks is None else self.tracks.arrived(messages)
        if self.sort is not None:
            for message in rest:
                heapq.heappush(self._returned, self.entry(message))
        else:
            for priority in {m.priority for m in rest}:
                self._top = max(self._top, priority)
                self._levels[priority].extend([m for m in rest if m.priority == priority])
        for message in [m for m in messages if m.expires_at_ms]:
            self._watch_expiry(message)
        if self._index is not None:
            self._index.update((m.id, m) for m in messages)

    def put_back(self, message: StoredMessage, deliveries: int, attempts: int) -> None:
        """A message that was out waits again, in its old place."""
        self.out_count -= 1
        self.waiting_count += 1
        if deliveries:
            self.history[message.id] = (deliveries, attempts)
        if self.tracks is None or not self.tracks.came_back(message):
            self._enter(message)
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
        self._delayed.add(message, due_ms)
        if self.tracks is not None:
            self.tracks.comes_later(message)

    def delay(self, message: StoredMessage, due_ms: int) -> None:
        """A waiting message waits on, but not before due_ms."""
        has_failed = self.attempts(message) > 0
        if self.tracks is None or not self.tracks.delayed(message, has_failed=has_failed):
            self._skip(message)
        self._forget_waiting(message)
        self._delayed.add(message, due_ms)

    def release_due(self, now_ms: int, count_max: int) -> list[StoredMessage]:
        """Delayed messages whose time has come wait now, so many at once."""
        due = self._delayed.pop_due(now_ms, count_max)
        for message in due:
            self.out_count += 1
            self.put_back(message, *self.history.get(message.id, (0, 0)))
        return due

    @property
    def delayed(self) -> Delayed:
        """What waits for its time."""
        return self._delayed

    @property
    def delayed_count(self) -> int:
        """How many wait for their time."""
        return len(self._delayed)

    def sort_by(self, sort: MessageSort | None) -> None:
        """What waits is ordered by other keys from now on."""
        waiting = [m for m in self.in_order() if self.tracks is None or self.tracks.is_free(m)]
        self.sort = sort
        self._gone.clear()
        self._levels = [deque() for _ in range(10)]
        self._returned = [self.entry(message) for message in waiting]
        heapq.heapify(self._returned)

    # what its groups and global orders do

    def stand(self, message: StoredMessage) -> None:
        """A waiting message may be taken from here."""
        self.held_count -= 1
        self._enter(message)

    def unstand(self, message: StoredMessage) -> None:
        """A waiting message may not be taken from here."""
        self.held_count += 1
        self._skip(message)

    def take_with(self, message: StoredMessage, consumer: "Consumer") -> list[StoredMessage]:
        """A message that stands goes out to a consumer, with those that belong to it."""
        goes = [message]
        if self.tracks is not None and self.tracks.knows(message):
            goes = self.tracks.take(message, consumer)
        else:
            self._skip(message)
        for each in goes:
            self._forget_waiting(each)
        self.out_count += len(goes)
        return goes

    # taking

    def first(self) -> Entry | None:
        """The place of the message that take() would give; None when there is none."""
        if self.waiting_count == self.held_count:
            return None
        message = self._pop_first()
        entry = self.entry(message)
        heapq.heappush(self._returned, entry)
        return entry

    def take(
        self, count: int, bytes_max: int, now_ms: int, expired: list[StoredMessage]
    ) -> list[StoredMessage]:
        """Up to count messages go out, and no more once bytes_max are reached; those whose time is
        over leave into `expired` instead."""
        if not (self._returned or self._gone or self._mortal or self._index is not None):
            return self._take_run(count, bytes_max)
        taken: list[StoredMessage] = []
        room = bytes_max
        while len(taken) < count and room > 0 and self.waiting_count > self.held_count:
            message = self._pop_first()
            self._forget_waiting(message)
            is_over = 0 < message.expires_at_ms <= now_ms
            if self.tracks is not None:
                (self.tracks.left if is_over else self.tracks.picked)(message)
                self._gone.discard(message.seq)  # it has left its place, and was not skipped
            if is_over:
                self._leave(message)
                expired.append(message)
            else:
                taken.append(message)
                room -= message.length
        self.out_count += len(taken)
        return taken

    def _take_run(self, count: int, bytes_max: int) -> list[StoredMessage]:
        """What stands in front, all of one priority, where nothing has to be looked at one by one;
        a run costs a third of as many single steps."""
        if bytes_max <= 0 or self.waiting_count <= self.held_count:
            return []
        while not self._levels[self._top]:
            self._top -= 1
        level = self._levels[self._top]
        pop = level.popleft
        taken = [pop() for _ in range(min(count, len(level)))]
        if sum([m.length for m in taken]) > bytes_max:
            ends = accumulate([m.length for m in taken])
            fitting = 1 + sum(1 for end in ends if end < bytes_max)
            level.extendleft(reversed(taken[fitting:]))
            del taken[fitting:]
        self.waiting_count -= len(taken)
        self.out_count += len(taken)
        return taken

    def take_one(self, message: StoredMessage) -> None:
        """One waiting message, from wherever it stands, goes out."""
        if self.tracks is None or not self.tracks.picked(message):
            self._skip(message)
        self._forget_waiting(message)
        self.out_count += 1

    def remove(self, message: StoredMessage) -> None:
        """A waiting or delayed message leaves for good."""
        is_tracked = self.tracks is not None and self.tracks.left(message)
        if self._delayed.remove(message.id):
            self._leave(message)
            return
        if not is_tracked:
            self._skip(message)
        self._forget_waiting(message)
        self._leave(message)

    def remove_held(self) -> StoredMessage:
        """Some message that its group holds up leaves for good; there is one."""
        assert self.tracks is not None, f"{self.name} has no groups"
        message = next(self.tracks.held())
        self.remove(message)
        return message

    def settle(self, message: StoredMessage) -> None:
        """A message that was out leaves for good."""
        self.out_count -= 1
        if self.tracks is not None:
            self.tracks.left(message)
        self._leave(message)

    def settle_all(self, messages: list[StoredMessage]) -> None:
        """Messages that were out leave for good."""
        if self.number or self.history or self.tracks is not None or StoredMessage.has_files:
            for message in messages:
                self.settle(message)
            return
        self.out_count -= len(messages)
        self.size_bytes -= sizes_of(messages)

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
        return self._delayed.due_ms(message.id)

    def deliveries(self, message: StoredMessage) -> int:
        """How often it was delivered before."""
        return self.history[message.id][0] if message.id in self.history else 0

    def attempts(self, message: StoredMessage) -> int:
        """How many of its deliveries failed."""
        return self.history[message.id][1] if message.id in self.history else 0

    def in_order(self) -> Iterator[StoredMessage]:
        """Waiting messages in the order in which they would be taken; changes nothing."""
        if self.sort is not None or self.held_count:
            yield from self._in_sorted_order()
            return
        for priority in range(len(self._levels) - 1, -1, -1):
            returned = sorted(e for e in self._returned if e[0] == -priority)
            back = [e[-1] for e in returned if e[-1].seq not in self._gone]
            fresh = (m for m in self._levels[priority] if m.seq not in self._gone)
            yield from heapq.merge(back, fresh, key=lambda m: m.seq)

    def firsts(self) -> list[StoredMessage]:
        """Of each priority the oldest that waits, without looking at those behind it."""
        found: dict[int, StoredMessage] = {}
        if self.sort is not None or (self.tracks is not None and self.tracks.waiting_count):
            for message in sorted(self.in_order(), key=lambda m: m.seq):
                found.setdefault(message.priority, message)
            return list(found.values())
        for level in self._levels:
            while level and level[0].seq in self._gone:
                self._gone.discard(level.popleft().seq)
            if level:
                found[level[0].priority] = level[0]
        for _, seq, message in self._returned:
            first = found.get(message.priority)
            if seq not in self._gone and (first is None or seq < first.seq):
                found[message.priority] = message
        return list(found.values())

    def _in_sorted_order(self) -> Iterator[StoredMessage]:
        """The same where keys decide, or groups: what they hold up is shown in its place."""
        gone = self._gone
        entries = [e for e in self._returned if e[-1].seq not in gone]
        entries += [self.entry(m) for lv in self._levels for m in lv if m.seq not in gone]
        if self.tracks is not None:
            entries += [self.entry(m) for m in self.tracks.held()]
        yield from [entry[-1] for entry in sorted(entries)]

    def everything(self) -> list[StoredMessage]:
        """All that is here and not out: waiting and delayed."""
        return [*self.in_order(), *self._delayed]

    def open_index(self) -> dict[int, StoredMessage]:
        """Waiting messages by id, kept from now on; for selectors and for what is taken by id."""
        if self._index is None:
            self._index = {m.id: m for m in self.in_order()}
        return self._index

    def close_index(self) -> None:
        """The index is not needed any more."""
        self._index = None

    # inside

    def entry(self, message: StoredMessage) -> Entry:
        """Where a message has its place; the smallest entry is the first."""
        if self.sort is not None:
            return self.sort.entry(message)
        return -message.priority, message.seq, message

    def _enter(self, message: StoredMessage) -> None:
        """It stands in its place."""
        if message.seq in self._gone:  # it never left it, it was only skipped
            self._gone.discard(message.seq)
        else:
            heapq.heappush(self._returned, self.entry(message))

    def _pop_first(self) -> StoredMessage:
        """The first waiting message; there is one, as waiting_count says."""
        message: StoredMessage
        while True:
            while self._top >= 0 and not self._levels[self._top]:
                self._top -= 1
            returned = self._returned
            level = self._levels[self._top] if self._top >= 0 else None
            if returned and (level is None or returned[0][:2] < (-self._top, level[0].seq)):
                message = heapq.heappop(returned)[-1]
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
            self._returned = [e for e in self._returned if e[-1].seq not in self._gone]
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
        if StoredMessage.has_files:
            message.went()

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
