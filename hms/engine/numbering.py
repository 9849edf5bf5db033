"""Numbers that must never be given twice, and repeats that must be recognised.

Message ids come from ranges that the log reserves before they are used, so that also an id of a
non-persistent message is not given again after a crash. Producers number their messages; a batch
that comes again after a reconnect is answered as it was, not stored twice (F-D9).
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from field_buffer.catalogue import NodeFailed
from hms.records import Memory, ProducerTaken

COUNTER_BITS = 40
RESERVE_IDS = 1 << 20
SEQUENCE_MAX = (1 << 63) - 1
"""No sequence number above is told again, whatever a log has: it would not fit into a record."""


class MessageIds:
    """Ids of one node: its index in the upper 8 bits, a counter in the lower 40 (F-D5)."""

    def __init__(self, node_index: int) -> None:
        self._base = node_index << COUNTER_BITS
        self.next_id = self._base + 1
        self.reserved_below = self._base + 1
        self.safe_below = self._base + 1
        """Ids below were reserved long ago. What has a higher one, and is in no record, may
        not be seen before the log is durable: a crash would give the id again."""

    def reserve(self, count: int) -> int | None:
        """Make room for count more ids, half a range ahead; the new limit when the log has to know
        one."""
        if self.next_id + count <= self.reserved_below - RESERVE_IDS // 2:
            return None
        self.safe_below = self.reserved_below
        self.reserved_below = self.next_id + count + RESERVE_IDS
        if self.reserved_below >= self._base + (1 << COUNTER_BITS):
            raise NodeFailed(detail="all message ids of this HMSINDEX are used; set another one")
        return self.reserved_below

    def take(self, count: int) -> int:
        """The first of count consecutive ids; they were reserved."""
        first = self.next_id
        self.next_id += count
        assert self.next_id <= self.reserved_below
        return first

    def recovered(self, below: int) -> None:
        """Ids below this one may be in use."""
        if below >> COUNTER_BITS == self._base >> COUNTER_BITS:
            self.next_id = max(self.next_id, below)
            self.reserved_below = max(self.reserved_below, self.next_id)


class Taken(NamedTuple):
    """How a batch was confirmed."""

    first_message_id: int
    timestamp_ms: int
    message_count: int


class ProducerMemory:
    """What is remembered of a producer: its last batches, as many as may be unconfirmed.

    The last by their numbers, not those taken last: a batch that a crash has lost is sent again
    after later ones that it has not, and is confirmed before them. forgotten: the highest first
    number of what is not remembered any more.
    """

    __slots__ = ("forgotten", "last_sequence", "recent")

    def __init__(self) -> None:
        self.forgotten = 0
        self.last_sequence = 0
        self.recent: OrderedDict[int, Taken] = OrderedDict()

    def remember(self, first_sequence: int, taken: Taken, batches_max: int) -> None:
        """A batch was taken."""
        recent, is_late = self.recent, first_sequence < self.last_sequence
        recent[first_sequence] = taken
        if is_late:
            self.recent = recent = OrderedDict(sorted(recent.items()))
        last = min(first_sequence + taken.message_count - 1, SEQUENCE_MAX)
        self.last_sequence = max(self.last_sequence, last)
        while len(recent) > batches_max:
            self.forgotten = max(self.forgotten, recent.popitem(last=False)[0])


class Memories:
    """Producers and committed transactions by client, the least recently used forgotten first."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._producers: OrderedDict[tuple[int, int], ProducerMemory] = OrderedDict()
        self._commits: OrderedDict[tuple[int, int], int] = OrderedDict()

    def producer(self, client_uid: int, handle: int) -> ProducerMemory:
        """The memory of a producer, new if it is not known."""
        key = (client_uid, handle)
        found = self._producers.get(key)
        if found is None:
            found = self._producers[key] = ProducerMemory()
            if len(self._producers) > self._entries_max:
                self._producers.popitem(last=False)
        else:
            self._producers.move_to_end(key)
        return found

    def forget_producer(self, client_uid: int, handle: int) -> None:
        """It was closed in order: nothing of it comes again."""
        self._producers.pop((client_uid, handle), None)

    def last_commit(self, client_uid: int, session: int) -> int:
        """The number of the session's last commit that took effect; 0 for none."""
        return self._commits.get((client_uid, session), 0)

    def committed(self, client_uid: int, session: int, number: int) -> None:
        """A commit took effect."""
        self._commits[client_uid, session] = number
        self._commits.move_to_end((client_uid, session))
        if len(self._commits) > self._entries_max:
            self._commits.popitem(last=False)

    def keys(self) -> list[tuple[int, int]]:
        """Client and handle of all that is remembered, least recently used first."""
        return list(dict.fromkeys([*self._producers, *self._commits]))

    def producers_taken(self, keys: Iterable[tuple[int, int]]) -> Iterator[ProducerTaken]:
        """What is remembered of producers."""
        for client_uid, handle in keys:
            memory = self._producers.get((client_uid, handle))
            if memory is None:
                continue
            recent = [(first, *taken) for first, taken in memory.recent.items()]
            last, forgotten = memory.last_sequence, memory.forgotten
            yield ProducerTaken(client_uid, handle, last, recent, forgotten)

    def commits_taken(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Client, session and number of the commits remembered."""
        return [(*key, self._commits[key]) for key in keys if key in self._commits]

    def restore(self, remembered: Memory) -> None:
        """Take over what the log restated."""
        for producer in remembered.producers:
            memory = self.producer(producer.client_uid, producer.handle)
            memory.last_sequence = producer.last_sequence
            memory.forgotten = producer.forgotten
            memory.recent = OrderedDict((first, Taken(*rest)) for first, *rest in producer.recent)
        for client_uid, session, number in remembered.commits:
            self.committed(client_uid, session, number)
