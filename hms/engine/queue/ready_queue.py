"""Ready queue: the order of the messages that wait at a line.

Theory of operation. Messages stand in one deque per priority, in order of arrival. Those that come
back stand in an order of their own beside it (ordered_entries.py) and are older than what follows
them, so the next message is the smaller of the two heads. A message taken from the middle of a
deque (by a selector, by expiry) is only noted as gone and skipped when its turn comes; so every
step costs O(1) or O(log n). In a line that is sorted all of them stand in that order, by their
keys. What a boot found stands behind its deque in chunks (waiting_chunks.py), and moves up one
chunk at a time.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import attrgetter, itemgetter

from hms.engine.groups.message_sort import Entry, MessageSort, entry_bytes
from hms.engine.log.packed_block import PackedBlock
from hms.engine.messages import StoredMessage
from hms.engine.queue.ordered_entries import LAST_PLACE, OrderedEntries, one_of_each
from hms.engine.queue.waiting_chunks import WaitingChunks

_GONE_MAX = 1024
_GONE_BYTES_MAX, _BYTES_PER_WAITING = 1 << 16, 64
"""To sweep costs a step for each that waits: so many bytes have to go for each of them."""
_seq = attrgetter("seq")
_place = itemgetter(slice(-1))
_LAST = 1 << 64
_NONE: deque[StoredMessage] = deque(maxlen=0)
"""In place of a level where nothing ever stood; an empty deque takes 760 bytes."""


def _no_levels() -> list[deque[StoredMessage]]:
    return [_NONE] * 10


class ReadyQueue:
    """See the module."""

    __slots__ = ("_back", "_gone", "_gone_bytes", "_later", "_levels", "_top", "on_memory", "sort")

    def __init__(self) -> None:
        self.sort: MessageSort | None = None
        """Then its keys decide (F-C15)."""
        self.on_memory: Callable[[int], None] = lambda _: None
        """Told how many bytes more, or less, the keys take."""
        self._levels = _no_levels()
        self._later: dict[int, WaitingChunks] = {}
        """By priority; behind all that stands in the deque of that priority."""
        self._top = -1
        self._back = OrderedEntries()
        self._gone: set[int] = set()
        self._gone_bytes = 0
        """Of those that were noted as gone since all of these were swept; they stay in memory."""

    def add(self, messages: list[StoredMessage]) -> None:
        """New ones, younger than all that ever came."""
        if self.sort is not None:
            for message in messages:
                self._push(self.sort.entry(message))
            return
        if self._later:
            self._add_behind(messages)
            return
        if len(messages) == 1:
            priority = messages[0].priority
            level = self._levels[priority]
            if level is _NONE or priority > self._top:
                level = self._level(priority)
            level.append(messages[0])
            return
        for priority in {m.priority for m in messages}:
            self._level(priority).extend([m for m in messages if m.priority == priority])

    def add_packed(self, block: PackedBlock) -> None:
        """The same for a batch as it lies in the log; not in a line that is sorted."""
        self._level(block.priority)
        self._later.setdefault(block.priority, WaitingChunks()).add_packed(block)

    def _add_behind(self, messages: list[StoredMessage]) -> None:
        for message in messages:
            later = self._later.get(message.priority)
            (self._level(message.priority) if later is None else later).append(message)

    def _advance(self) -> None:
        """The highest priority of which something stands in its deque, if there is one; the next
        chunk moves up where a deque is empty."""
        while self._top >= 0 and not self._levels[self._top]:
            if self._top in self._later:
                self._move_up(self._top)
            else:
                self._top -= 1

    def _move_up(self, priority: int) -> None:
        """The next chunk stands in its deque."""
        later = self._later[priority]
        self._levels[priority].extend(later.pop())
        if not later:
            del self._later[priority]

    def _level(self, priority: int) -> deque[StoredMessage]:
        """Where messages of a priority stand, one of which comes now."""
        self._top = max(self._top, priority)
        level = self._levels[priority]
        if level is _NONE:
            level = self._levels[priority] = deque()
        return level

    def enter(self, message: StoredMessage) -> None:
        """It stands in its place again."""
        if message.seq in self._gone:  # it never left it, it was only skipped
            self._gone.discard(message.seq)
        else:
            self._push(self.entry(message))

    def _push(self, entry: Entry) -> None:
        self._back.add(entry)
        if self.sort is not None:
            self.on_memory(entry_bytes(entry))

    def _replace(self, back: list[Entry]) -> None:
        """The order of those that came back, or are sorted, is made anew of these."""
        if self.sort is not None:
            self.on_memory(_bytes_of(back) - _bytes_of(self._back))
        self._back = OrderedEntries(back)

    def skip(self, message: StoredMessage, count: int) -> None:
        """It is not here any more; what stands in a deque is only noted as gone, and swept when
        most of that is, or takes memory. count: how many wait."""
        if self._back.chunks:
            entry = self._back.discard(self.entry(message)[:-1])
            if entry is not None and self.sort is not None:
                self.on_memory(-entry_bytes(entry))
            if entry is not None:
                return
        if self.sort is not None:
            return  # it was popped before
        gone = self._gone
        gone.add(message.seq)
        self._gone_bytes += len(message.payload)
        self._trim(self._levels[message.priority])
        if (
            len(gone) > count + _GONE_MAX
            or self._gone_bytes > _GONE_BYTES_MAX + _BYTES_PER_WAITING * count
        ):
            self._sweep()

    def _trim(self, level: deque[StoredMessage]) -> None:
        """What is gone leaves the front: of messages that expire in their order nothing is ever
        swept. Of 1,000,000 that was one tick of 59 ms."""
        gone = self._gone
        while level and level[0].seq in gone:
            message = level.popleft()
            gone.discard(message.seq)
            self._gone_bytes -= len(message.payload)

    def _sweep(self) -> None:
        """What is gone leaves."""
        gone = self._gone
        for i, level in enumerate(self._levels):
            if level:
                self._levels[i] = deque([m for m in level if m.seq not in gone])
        for later in self._later.values():
            later.sweep(gone)
        gone.clear()
        self._gone_bytes = 0

    def has_left(self, message: StoredMessage) -> None:
        """It was popped, and then noted as skipped."""
        self._gone.discard(message.seq)

    def entry(self, message: StoredMessage) -> Entry:
        """Where a message has its place; the smallest entry is the first."""
        if self.sort is not None:
            return self.sort.entry(message)
        return -message.priority, message.seq, message

    def first(self) -> Entry:
        """The place of the first one; there is one."""
        entry = self.entry(self.pop())
        self._push(entry)
        return entry

    def pop(self) -> StoredMessage:
        """The first one leaves; there is one."""
        while True:
            if self._top >= 0 and not self._levels[self._top]:
                self._advance()
            back = self._back.chunks
            level = self._levels[self._top] if self._top >= 0 else None
            if back and (level is None or back[0][0][:2] < (-self._top, level[0].seq)):
                entry = self._back.pop()
                if self.sort is not None:
                    self.on_memory(-entry_bytes(entry))
                found: StoredMessage = entry[-1]
                return found
            assert level is not None, "messages are counted, and none is there"
            message = level.popleft()
            if not self._gone or message.seq not in self._gone:
                return message
            self._gone.discard(message.seq)

    def pop_run(self, count: int, bytes_max: int) -> list[StoredMessage] | None:
        """What stands in front, all of one priority; a run costs a third of as many single steps.
        There is one. None where they have to be looked at one by one: not all stand in their
        deques, or some are gone."""
        if self._back.chunks or self._gone:
            return None
        if not self._levels[self._top]:
            self._advance()
        level = self._levels[self._top]
        while self._top in self._later and len(level) < count:
            self._move_up(self._top)
        pop = level.popleft
        if count == 1 or len(level) == 1:
            return [pop()]
        taken = [pop() for _ in range(min(count, len(level)))]
        if sum([m.length for m in taken]) > bytes_max:
            ends = accumulate([m.length for m in taken])
            fitting = 1 + sum(1 for end in ends if end < bytes_max)
            level.extendleft(reversed(taken[fitting:]))
            del taken[fitting:]
        return taken

    def sort_by(self, sort: MessageSort | None) -> None:
        """Other keys decide from now on."""
        ordered = list(self.in_order())
        self._replace([])
        self.sort = sort
        self._gone.clear()
        self._levels = _no_levels()
        self._later = {}
        self._replace([self.entry(message) for message in ordered])

    def in_order(self) -> Iterator[StoredMessage]:
        """All of them, in order, at the cost of those that are taken; changes nothing, and nothing
        may come or go meanwhile."""
        gone = self._gone
        if self.sort is not None:
            yield from (entry[-1] for entry in self._back)
            return
        for priority in range(len(self._levels) - 1, -1, -1):
            run = self._whole_level(priority)
            if self._back.chunks:
                back = self._back.of_priority(priority, 0, is_newest_first=False)
                run = heapq.merge(back, run, key=_seq)
            yield from (m for m in run if m.seq not in gone) if gone else run

    def _whole_level(self, priority: int) -> Iterable[StoredMessage]:
        """All of one priority that came and never went out, as they arrived."""
        level, later = self._levels[priority], self._later.get(priority)
        return level if later is None else chain(level, later)

    def begun(self) -> tuple[Iterator[Entry], Iterator[StoredMessage]]:
        """The places of those that stand in no order, and the others in order; what stands here now
        is among them, and others may come or go until both end."""
        gone = frozenset(self._gone)
        runs: list[Iterable[StoredMessage]] = []
        for priority in range(len(self._levels) - 1, -1, -1):
            runs.append(list(self._levels[priority]))
            if priority in self._later:
                runs.append(self._later[priority].begun())
        return self._back.walk(), (m for m in chain.from_iterable(runs) if m.seq not in gone)

    def arrivals(self, after: int, *, is_newest_first: bool) -> list[Iterator[StoredMessage]]:
        """Runs of all that arrived after a place in the order of arrival, or before it, each run in
        that order; found by halving, so that a page costs what it shows. Where no keys decide the
        order; nothing may come or go meanwhile."""
        gone = self._gone
        runs = self._back.arrivals(after, is_newest_first=is_newest_first)
        for level in self._levels:
            if level and is_newest_first:
                beyond = len(level) - bisect_left(level, after, key=_seq)
                runs.append(islice(reversed(level), beyond, None))
            elif level:
                runs.append(islice(level, bisect_right(level, after, key=_seq), None))
        runs += [
            later.arrivals(after, is_newest_first=is_newest_first) for later in self._later.values()
        ]
        return [(m for m in run if m.seq not in gone) for run in runs] if gone else runs

    def page(
        self,
        after: int,
        others: Sequence[OrderedEntries],
        place: Entry | None,
        *,
        is_newest_first: bool,
    ) -> Iterator[StoredMessage]:
        """All of them and those others, of which some may be here, in order or in the opposite one,
        behind a message that has or had this place, and that one in the order of arrival; 0 and
        None: all. Where no keys decide the order it may be None for a message that is gone: then
        behind that place in each priority. Nothing may come or go meanwhile."""
        if self.sort is not None:
            return self._sorted_page(others, place, is_newest_first=is_newest_first)
        return self._plain_page(after, others, place, is_newest_first=is_newest_first)

    def _plain_page(
        self,
        after: int,
        others: Sequence[OrderedEntries],
        place: Entry | None,
        *,
        is_newest_first: bool,
    ) -> Iterator[StoredMessage]:
        start = self._priority_of(after, others) if after else None
        if place is not None:
            start = -place[0]
        order = range(10) if is_newest_first else range(9, -1, -1)
        if start is not None:
            order = order[order.index(start) :]
        for priority in order:
            bound = after if start in (None, priority) else 0
            run = self._run(priority, bound, is_newest_first=is_newest_first)
            if others:
                runs = [
                    more.of_priority(priority, bound, is_newest_first=is_newest_first)
                    for more in others
                ]
                run = one_of_each(heapq.merge(run, *runs, key=_seq, reverse=is_newest_first))
            yield from run

    def _sorted_page(
        self, others: Sequence[OrderedEntries], place: Entry | None, *, is_newest_first: bool
    ) -> Iterator[StoredMessage]:
        if is_newest_first:
            end = LAST_PLACE if place is None else place
            runs = [entries.backwards(end) for entries in (self._back, *others)]
        else:
            begin = () if place is None else (*place[:-1], place[-1] + 1)
            runs = [entries.onwards(begin) for entries in (self._back, *others)]
        if others:
            runs = [heapq.merge(*runs, key=_place, reverse=is_newest_first)]
        return one_of_each(entry[-1] for entry in runs[0])

    def _run(self, priority: int, after: int, *, is_newest_first: bool) -> Iterator[StoredMessage]:
        """Those of a priority behind a place in the order of arrival, 0: all of them; of a line
        that is not sorted."""
        bound = after or (_LAST if is_newest_first else 0)
        level, gone = self._levels[priority], self._gone
        runs = [self._back.of_priority(priority, after, is_newest_first=is_newest_first)]
        if is_newest_first:
            beyond = len(level) - bisect_left(level, bound, key=_seq)
            runs.append(islice(reversed(level), beyond, None))
        else:
            runs.append(islice(level, bisect_right(level, bound, key=_seq), None))
        later = self._later.get(priority)
        if later is not None:
            runs.append(later.arrivals(bound, is_newest_first=is_newest_first))
        merged = heapq.merge(*runs, key=_seq, reverse=is_newest_first)
        return (m for m in merged if m.seq not in gone) if gone else merged

    def _priority_of(self, seq: int, others: Sequence[OrderedEntries]) -> int | None:
        """That of the message with this place in the order of arrival; None when it is gone."""
        is_gone = seq in self._gone
        for priority in range(10):
            if any(more.has((-priority, seq)) for more in others):
                return priority
            if not is_gone:
                first = next(self._run(priority, seq - 1, is_newest_first=False), None)
                if first is not None and first.seq == seq:
                    return priority
        return None

    def clear(self) -> None:
        """Nobody stands here any more."""
        self._levels = _no_levels()
        self._later = {}
        self._top = -1
        self._replace([])
        self._gone.clear()

    def firsts(self, others: Sequence[OrderedEntries]) -> list[StoredMessage]:
        """Of each priority the oldest, of these and those others, without looking at those behind
        it; where no keys decide the order."""
        found: dict[int, StoredMessage] = {}
        for priority, level in enumerate(self._levels):
            while True:
                while level and level[0].seq in self._gone:
                    self._gone.discard(level.popleft().seq)
                if level or priority not in self._later:
                    break
                self._move_up(priority)
            runs: list[Iterable[StoredMessage]] = [level]
            runs += [
                more.of_priority(priority, 0, is_newest_first=False)
                for more in (self._back, *others)
            ]
            firsts = [next(iter(run), None) for run in runs]
            oldest = min((m for m in firsts if m is not None), key=_seq, default=None)
            if oldest is not None:
                found[priority] = oldest
        return list(found.values())


def _bytes_of(entries: Iterable[Entry]) -> int:
    return sum([entry_bytes(entry) for entry in entries])
