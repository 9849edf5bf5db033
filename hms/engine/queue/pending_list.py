"""Pending list: where messages wait for consumers: a queue, or one subscription of a topic.

Theory of operation. A message is WAITING, DELAYED (it waits, but not before its time) or OUT
(delivered, not settled); it leaves by being acknowledged or discarded. Waiting messages stand in
their order (ready_queue.py), or their group or global order holds them back (hms/engine/groups/).
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter

from hms.engine.admin.counters import COUNTED, Counters, Totals
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.groups.message_sort import Entry, MessageSort
from hms.engine.groups.scan_order import ScanOrder
from hms.engine.log.live_index import left_by
from hms.engine.log.packed_block import PackedBlock
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage, length_of, sizes_of
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.queue.delays import Delayed
from hms.engine.queue.delivery_sample import DeliverySample
from hms.engine.queue.expiry_index import ExpiryIndex
from hms.engine.queue.incoming import EXPIRING, FILES, HEADS, ORDERED
from hms.engine.queue.ordered_entries import OrderedEntries, arrival, one_of_each
from hms.engine.queue.ready_queue import ReadyQueue
from hms.wire.frames import as_ranges
from hms.wire.packed_messages import KIND_FILE

_seq = attrgetter("seq")
_ALL = 1 << 62
INDEXED_AT_ONCE = 5000
"""Messages by their ids: 5 ms."""


class PendingList:
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
        self.has_files = False
        """Messages that name files came here: they are told when they leave."""
        self.counters = Counters()
        self.totals = Totals()
        """Its own until it counts in those of a node."""
        self.delivered_ms = 0
        """When something went out last; 0: not since the boot."""
        self.sample: DeliverySample | None = None
        """Times a message now and then, while somebody looks at it."""
        self.history: dict[int, tuple[int, int]] = {}
        """(deliveries, failed attempts) of messages that came back, by id."""
        self._ready = ReadyQueue()
        self._expiring = ExpiryIndex()
        self._index: dict[int, StoredMessage] | None = None
        self._is_indexed = False
        """Somebody looks for messages by their ids."""
        self._unindexed: Iterator[StoredMessage] | None = None
        """What is not in the index yet."""
        self._left = set[int]()
        """The ids of what has left since the index was begun."""
        self._scan: ScanOrder | None = None
        self._delayed = Delayed()
        self._arrived: OrderedEntries | None = None
        """All that waits, by priority and arrival, where keys decide the order."""
        self.groups: MessageGroups | None = None
        """Groups and global orders, where there can be some (F-C16, F-C17)."""

    # adding

    def add(self, messages: list[StoredMessage], size_bytes: int = -1, uses: int = -1) -> None:
        """New messages, younger than all that ever came. size_bytes: what they count in quotas;
        uses: the features of incoming.py that some of them use; -1: nobody knows."""
        count = len(messages)
        size_bytes = size_bytes if size_bytes >= 0 else sizes_of(messages)
        self.waiting_count += count
        self.size_bytes += size_bytes
        counters, totals = self.counters, self.totals
        counters.sent += count
        totals.sent += count
        totals.messages += count
        totals.bytes += size_bytes
        counters.count_high = max(counters.count_high, self.waiting_count + self.out_count)
        counters.bytes_high = max(counters.bytes_high, self.size_bytes)
        rest = messages
        if uses:
            if uses & FILES:
                for message in [m for m in messages if m.kind == KIND_FILE]:
                    self.has_files = True
                    message.came()
            if self.groups is not None and uses & (HEADS | ORDERED):
                rest = self.groups.arrived(messages)
            if uses & EXPIRING:
                for message in [m for m in messages if m.expires_at_ms]:
                    self._expiring.add(message)
        self._ready.add(rest)
        if self._index is not None or self._arrived is not None:
            self._note(messages)

    def recovered(self, messages: list[StoredMessage], packed: Sequence[PackedBlock]) -> None:
        """All that a boot found here, in any order: messages, and batches as they lie in the log.
        Nothing was here before."""
        messages.sort(key=_seq)
        start = count = size_bytes = 0
        add_packed = self._ready.add_packed
        for block in sorted(packed, key=attrgetter("first_seq")):
            if start < len(messages) and messages[start].seq < block.first_seq:
                end = bisect_left(messages, block.first_seq, lo=start, key=_seq)
                self.add(messages[start:end])
                start = end
            add_packed(block)
            count += block.count
            size_bytes += block.size_bytes
        self.waiting_count += count
        self.size_bytes += size_bytes
        self.totals.messages += count
        self.totals.bytes += size_bytes
        self.add(messages[start:])

    def put_back(self, message: StoredMessage, deliveries: int, attempts: int) -> None:
        """A message that was out waits again, in its old place."""
        self._move_out(-1)
        self._move_waiting(1)
        if deliveries:
            self.history[message.id] = (deliveries, attempts)
        if self.groups is None or not self.groups.came_back(message):
            self._ready.enter(message)
        if message.expires_at_ms:
            self._expiring.add(message)
        if self._index is not None or self._arrived is not None:
            self._note((message,))

    def put_back_later(
        self, message: StoredMessage, deliveries: int, attempts: int, due_ms: int
    ) -> None:
        """A message that was out waits again from due_ms on, then in its old place."""
        self._move_out(-1)
        self.history[message.id] = (deliveries, attempts)
        self._delayed.add(message, due_ms)
        self.totals.delayed += 1
        if self.groups is not None:
            self.groups.comes_later(message)

    def delay(self, message: StoredMessage, due_ms: int) -> None:
        """A waiting message waits on, but not before due_ms."""
        has_failed = self.attempts(message) > 0
        if self.groups is None or not self.groups.delayed(message, has_failed=has_failed):
            self._skip(message)
        self._forget_waiting(message)
        self._delayed.add(message, due_ms)
        self.totals.delayed += 1

    def release_due(self, now_ms: int, count_max: int) -> list[StoredMessage]:
        """Delayed messages whose time has come wait now, so many at once."""
        due = self._delayed.pop_due(now_ms, count_max)
        self.totals.delayed -= len(due)
        for message in due:
            self._move_out(1)
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

    # its order

    @property
    def sort(self) -> MessageSort | None:
        """What orders the messages beside their arrival (F-C15)."""
        return self._ready.sort

    def sort_by(self, sort: MessageSort | None) -> None:
        """What waits is ordered by other keys from now on."""
        arrived = None if sort is None else OrderedEntries(map(arrival, self.in_order()))
        self._ready.sort_by(sort)
        self._arrived = arrived
        if self.groups is not None:
            self.groups.sort_anew()

    def count_keys(self, on_memory: Callable[[int], None]) -> None:
        """Told how many bytes more, or less, the keys take by which messages are ordered."""
        self._ready.on_memory = on_memory

    def entry(self, message: StoredMessage) -> Entry:
        """Where a message has its place; the smallest entry is the first."""
        return self._ready.entry(message)

    # what its groups and global orders do

    def stand(self, message: StoredMessage) -> None:
        """A waiting message may be taken from here."""
        self.held_count -= 1
        self._ready.enter(message)

    def unstand(self, message: StoredMessage) -> None:
        """A waiting message may not be taken from here."""
        self.held_count += 1
        self._skip(message)

    def take_with(self, message: StoredMessage, consumer: ConsumerView) -> list[StoredMessage]:
        """A message that stands goes out to a consumer, with those that belong to it."""
        goes = [message]
        if self.groups is not None and self.groups.knows(message):
            goes = self.groups.take(message, consumer)
        else:
            self._skip(message)
        for each in goes:
            self._forget_waiting(each)
        self._move_out(len(goes))
        return goes

    # taking

    def first(self) -> Entry | None:
        """The place of the message that take() would give; None when there is none."""
        if self.waiting_count == self.held_count:
            return None
        return self._ready.first()

    def take(
        self,
        count: int,
        bytes_max: int,
        now_ms: int,
        expired: list[StoredMessage],
        expired_max: int = _ALL,
    ) -> list[StoredMessage]:
        """Up to count messages go out, and no more once bytes_max are reached; those whose time is
        over leave into `expired` instead, until so many are in it."""
        if bytes_max <= 0 or self.waiting_count <= self.held_count:
            return []
        ready, totals = self._ready, self.totals
        is_plain = not self._expiring.messages and self._index is None
        run = ready.pop_run(count, bytes_max) if is_plain else None
        if run is not None:
            gone = len(run)
            self.waiting_count -= gone
            self.out_count += gone
            totals.messages -= gone  # as _move_waiting() and _move_out() do, without two calls
            totals.in_flight += gone
            return run
        taken: list[StoredMessage] = []
        room = bytes_max
        while len(taken) < count and room > 0 and self.waiting_count > self.held_count:
            if len(expired) >= expired_max:
                break
            message = ready.pop()
            self._forget_waiting(message)
            is_over = 0 < message.expires_at_ms <= now_ms
            if self.groups is not None:
                (self.groups.left if is_over else self.groups.picked)(message)
                ready.has_left(message)
            if is_over:
                self._leave(message)
                expired.append(message)
            else:
                taken.append(message)
                room -= message.length
        self._move_out(len(taken))
        return taken

    def take_one(self, message: StoredMessage) -> None:
        """One waiting message, from wherever it stands, goes out."""
        if self.groups is None or not self.groups.picked(message):
            self._skip(message)
        self._forget_waiting(message)
        self._move_out(1)

    def remove(self, message: StoredMessage) -> None:
        """A waiting or delayed message leaves for good."""
        is_grouped = self.groups is not None and self.groups.left(message)
        if self._delayed.remove(message.id):
            self.totals.delayed -= 1
            self._leave(message)
            return
        if not is_grouped:
            self._skip(message)
        self._forget_waiting(message)
        self._leave(message)

    def remove_everything(self) -> list[StoredMessage]:
        """All that waits or is delayed leaves for good; one by one it took ten times as long."""
        messages = self.everything()
        has_grouped = self.groups is not None and self.groups.waiting_count > 0
        if self._delayed or self.history or has_grouped or self.has_files:
            for message in messages:
                self.remove(message)
            if not self.waiting_count:
                self._ready.clear()  # of what is only noted as gone
            return messages
        self._move_waiting(-len(messages))
        size_bytes = sizes_of(messages)
        self.size_bytes -= size_bytes
        self.totals.bytes -= size_bytes
        self._ready.clear()
        self._expiring = ExpiryIndex()
        if self._arrived is not None:
            self._arrived = OrderedEntries()
        if self._index is not None:
            self._index.clear()
            self._unindexed = None
            if self._scan is not None:
                self._scan.clear()
        if self.number:
            left_by(messages, self.number)
        return messages

    def remove_held(self) -> StoredMessage:
        """Some message that its group holds up leaves for good; there is one."""
        assert self.groups is not None, f"{self.name} has no groups"
        message = next(self.groups.held())
        self.remove(message)
        return message

    def settle(self, message: StoredMessage) -> None:
        """A message that was out leaves for good."""
        self._move_out(-1)
        if self.groups is not None:
            self.groups.left(message)
        self._leave(message)

    def settle_all(self, messages: list[StoredMessage]) -> int:
        """Messages that were out leave for good; what they counted in quotas."""
        count, totals = len(messages), self.totals
        size_bytes = sum(map(length_of, messages)) + OVERHEAD_BYTES * count  # sizes_of(), in place
        self.out_count -= count  # count_settled(), in place
        self.size_bytes -= size_bytes
        totals.in_flight -= count
        totals.bytes -= size_bytes
        self.forget_settled(messages)
        return size_bytes

    def count_settled(self, count: int, size_bytes: int) -> None:
        """So many messages that were out count no more; forget_settled() follows."""
        self.out_count -= count
        self.size_bytes -= size_bytes
        self.totals.in_flight -= count
        self.totals.bytes -= size_bytes

    def forget_settled(self, messages: list[StoredMessage]) -> None:
        """What is known of messages that count no more."""
        if self.groups is not None and self.groups.grouped:
            for message in messages:
                self.groups.left(message)
        if self.number and len(messages) == 1:
            if messages[0].block is not None:
                messages[0].block.left_by(messages, self.number)
        elif self.number:
            left_by(messages, self.number)
        if self.history:
            for message in messages:
                self.history.pop(message.id, None)
        if self.has_files:
            for message in messages:
                message.went()

    def due(self, now_ms: int, count_max: int) -> list[StoredMessage]:
        """Waiting messages whose time is over, so many at once; they still wait until they are
        removed."""
        return self._expiring.pop_due(now_ms, count_max)

    # looking

    @property
    def has_delayed(self) -> bool:
        """Something waits for its time."""
        return bool(self._delayed)

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
        return self.page(is_newest_first=False) if self.held_count else self._ready.in_order()

    def arrivals(
        self, after: int, others: Iterable[StoredMessage], *, is_newest_first: bool
    ) -> Iterator[StoredMessage]:
        """All that waits, is held back or delayed, and those others, as they arrived: those after a
        place in that order, or before it. Nothing may come or go meanwhile."""
        more = list(others)
        if is_newest_first:
            more = [m for m in more if m.seq < after]
        else:
            more = [m for m in more if m.seq > after]
        more.sort(key=_seq, reverse=is_newest_first)
        grouped: Sequence[OrderedEntries] = ()
        if self._arrived is not None:
            runs = self._arrived.arrivals(after, is_newest_first=is_newest_first)
        else:
            runs = self._ready.arrivals(after, is_newest_first=is_newest_first)
            grouped = self._grouped()
            for each in grouped:
                runs += each.arrivals(after, is_newest_first=is_newest_first)
        delayed = self._delayed.arrivals(after, is_newest_first=is_newest_first)
        merged = heapq.merge(*runs, delayed, more, key=_seq, reverse=is_newest_first)
        return one_of_each(merged) if grouped else merged

    def page(
        self,
        after: int = 0,
        others: Iterable[StoredMessage] = (),
        place: Entry | None = None,
        *,
        is_newest_first: bool,
    ) -> Iterator[StoredMessage]:
        """What waits, and those others, in order or in the opposite one, behind a message; all of
        it without one. after, place: of the message, in the order of arrival and by place_of();
        where no keys decide the order, None for one that is gone: then behind that place in each
        priority. Nothing may come or go meanwhile."""
        more = self._grouped()
        if others:
            more = [*more, OrderedEntries(map(self.entry, others))]
        return self._ready.page(after, more, place, is_newest_first=is_newest_first)

    def place_of(self, seq: int, others: Iterable[StoredMessage] = ()) -> Entry | None:
        """The place of a message that waits or is one of those others, by its place in the order of
        arrival; None when there is no such message, or no keys decide the order."""
        if self._arrived is None:
            return None
        runs = self._arrived.arrivals(seq - 1, is_newest_first=False)
        firsts = (next(run, None) for run in runs)
        found = (m for m in chain(firsts, others) if m is not None and m.seq == seq)
        return next((self.entry(message)[:-1] for message in found), None)

    def _grouped(self) -> Sequence[OrderedEntries]:
        """What waits and belongs to groups and orders, where some of it does not stand."""
        return [self.groups.waiting] if self.held_count and self.groups is not None else ()

    def firsts(self) -> list[StoredMessage]:
        """Of each priority the oldest that waits, without looking at others."""
        if self._arrived is None:
            return self._ready.firsts(self._grouped())
        firsts = [next(run, None) for run in self._arrived.arrivals(0, is_newest_first=False)]
        return [message for message in firsts if message is not None]

    @property
    def stays_count(self) -> int:
        """How many are here and not out: waiting and delayed."""
        return self.waiting_count + len(self._delayed)

    def everything(self) -> list[StoredMessage]:
        """All that is here and not out: waiting and delayed."""
        return [*self.in_order(), *self._delayed]

    @property
    def is_index_far(self) -> bool:
        """The ids of what waits are not known yet, and to learn them takes more than a slice."""
        if self.waiting_count <= INDEXED_AT_ONCE:
            return False
        if self._scan is not None:
            return not self._scan.is_grown
        return self._index is None or self._unindexed is not None

    def open_index(self) -> dict[int, StoredMessage]:
        """Waiting messages by id, all of them, kept from now on."""
        self.index_some(_ALL)
        assert self._index is not None, "it was made"
        return self._index

    def index_some(self, count: int) -> bool:
        """So many messages more are in the index; whether there are more."""
        self._is_indexed = True
        if self._scan is not None:
            return self._scan.grow(count) == count
        if self._index is None:
            self._index, self._left = {}, set()
            back, run = self._begun() if self._arrived is None else (self._arrived.walk(), ())
            self._unindexed = chain((entry[-1] for entry in back), run)
        if self._unindexed is None:
            return False
        some, left = list(islice(self._unindexed, count)), self._left
        self._index.update([(m.id, m) for m in some if m.id not in left])
        if len(some) == count:
            return True
        self._unindexed, self._left = None, set()
        return False

    def give_up_index(self) -> None:
        """Who had it made is gone: one that is not complete would keep what has left for ever."""
        if self._unindexed is not None:
            self._index = self._unindexed = None
            self._left = set()

    def open_scan(self) -> ScanOrder:
        """Waiting messages in their order, kept from now on; for selectors, who have it grow."""
        if self._scan is None:
            self._index, self._unindexed = {}, None
            self._scan = ScanOrder(self._index, self.sort, *self._begun())
        return self._scan

    def close_scan(self) -> ScanOrder | None:
        """The order is not needed any more, nor is the index, if nobody else needs it; what is to
        be released."""
        scan, self._scan = self._scan, None
        if scan is None or not (self._is_indexed and scan.is_grown):
            self._index = self._unindexed = None
        return scan

    def _begun(self) -> tuple[Iterator[Entry], Iterator[StoredMessage]]:
        """As ReadyQueue.begun(), with what groups hold back."""
        back, run = self._ready.begun()
        if self.groups is not None and self.groups.waiting_count:
            back = chain(self.groups.waiting.walk(), back)  # what stands may not stand any more
        return back, run

    # what is counted

    def count(self, what: str, count: int) -> None:
        """Something happened so often: one of COUNTED."""
        for sums in (self.counters, self.totals):
            setattr(sums, what, getattr(sums, what) + count)

    def count_letters(self, reason: str, count: int) -> None:
        """So many became dead letters."""
        self.count("dead_lettered", count)
        letters = self.totals.letters
        letters[reason] = letters.get(reason, 0) + count

    def count_in(self, totals: Totals) -> None:
        """What is here counts there from now on, and not where it did. What happened stays."""
        for sums, sign in ((self.totals, -1), (totals, 1)):
            sums.messages += sign * self.waiting_count
            sums.in_flight += sign * self.out_count
            sums.delayed += sign * len(self._delayed)
            sums.bytes += sign * self.size_bytes
        self.totals = totals

    def count_anew(self) -> None:
        """What happened until now is not counted."""
        for what in COUNTED:
            self.count(what, -getattr(self.counters, what))
        self.counters = Counters()

    # inside

    def _move_waiting(self, count: int) -> None:
        self.waiting_count += count
        self.totals.messages += count

    def _move_out(self, count: int) -> None:
        self.out_count += count
        self.totals.in_flight += count

    def _skip(self, message: StoredMessage) -> None:
        self._ready.skip(message, self.waiting_count)

    def _note(self, messages: Iterable[StoredMessage]) -> None:
        """Some more wait, where it is known beside their order which do."""
        for message in messages:
            if self._arrived is not None:
                self._arrived.add(arrival(message))
            if self._index is not None:
                self._index[message.id] = message
            if self._scan is not None:
                self._scan.add(message)

    def _forget_waiting(self, message: StoredMessage) -> None:
        self.waiting_count -= 1
        self.totals.messages -= 1
        if message.expires_at_ms:
            self._expiring.remove(message)
        if self._arrived is not None:
            self._arrived.remove((-message.priority, message.seq))
        if self._index is not None:
            self._index.pop(message.id, None)
            if self._unindexed is not None:
                self._left.add(message.id)
            if self._scan is not None:
                self._scan.remove(message)

    def _leave(self, message: StoredMessage) -> None:
        self.size_bytes -= message.size_bytes
        self.totals.bytes -= message.size_bytes
        if message.block is not None and self.number:
            message.block.left(message, self.number)
        if self.history:
            self.history.pop(message.id, None)
        if self.has_files:
            message.went()


DELIVERIES_TOLD_MAX = 1 << 30
"""Consumers are told in 32 bits how often a message was delivered; another node may say more."""


def told_counts(deliveries: int, attempts: int) -> tuple[int, int]:
    """How often a message was delivered and failed, as another node or an older log says it."""
    return min(deliveries, DELIVERIES_TOLD_MAX), min(attempts, DELIVERIES_TOLD_MAX)


RANGES_PER_RECORD = 1024
"""16 KiB: a record has to fit into the smallest segment."""


def ids_of(messages: Iterable[StoredMessage]) -> list[tuple[int, int]]:
    """The ids of messages, in the order given, as ranges of consecutive ones."""
    return as_ranges([message.id for message in messages])
