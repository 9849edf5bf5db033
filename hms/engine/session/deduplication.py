"""Numbers that must never be given twice, and repeats that must be recognised.

Message ids come from ranges that the log reserves before they are used, so that also an id of a
non-persistent message is not given again after a crash. Producers number their messages; a batch
that comes again after a reconnect is answered as it was, not stored twice (F-D9).
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from operator import lt

import msgspec

from hms.errors.catalogue import NodeFailed
from hms.records import Memory, ProducerTaken
from hms.wire.packed_messages import ID_COUNTER_BITS
from hms.wire.record_runs import SingleSends

_Key = tuple[int, int]
RESERVE_IDS = 1 << 20
COMMITS_SKIPPED = 64
"""So many commits of a session that took no effect, before one that did, are remembered."""
SEQUENCE_MAX = (1 << 63) - 1
"""No sequence number above is told again, whatever a log has: it would not fit into a record."""


class MessageIds:
    """Ids of one node: its index in the upper 8 bits, a counter in the lower 40 (F-D5)."""

    def __init__(self, node_index: int) -> None:
        self._base = node_index << ID_COUNTER_BITS
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
        below = self.next_id + count + RESERVE_IDS
        if below >= self._base + (1 << ID_COUNTER_BITS):
            raise NodeFailed(detail="all message ids of this HMSINDEX are used; set another one")
        self.safe_below = self.reserved_below
        self.reserved(below)
        return below

    def take(self, count: int) -> int:
        """The first of count consecutive ids; they were reserved."""
        first = self.next_id
        self.next_id += count
        assert self.next_id <= self.reserved_below
        return first

    def was_given(self, message_id: int) -> bool:
        """Not to be given again: an id of another node, or one behind the next."""
        is_own = message_id >> ID_COUNTER_BITS == self._base >> ID_COUNTER_BITS
        return not is_own or self._base < message_id < self.next_id

    def reserved(self, below: int) -> None:
        """The log says that ids below this one may be in use."""
        if below >> ID_COUNTER_BITS == self._base >> ID_COUNTER_BITS:
            self.reserved_below = max(self.reserved_below, below)

    def taken_over(self) -> None:
        """The log was read: none of those is given again."""
        self.next_id = self.reserved_below


class Taken(msgspec.Struct, frozen=True, gc=False):
    """How a batch was confirmed; with the id 0 it was withdrawn, and is never stored."""

    first_message_id: int
    timestamp_ms: int
    message_count: int


WITHDRAWN = 0
"""The message id of a batch that was withdrawn before it arrived."""
TAKEN_BYTES = 40
"""What a batch takes in RecentBatches, with what its arrays have in reserve."""
IDLE_BYTES = 600
"""What a producer that nobody has open takes beside its batches."""
IDLE_BYTES_MAX = 48 << 20
"""10,000 of them with 64 batches each take 31 MB."""


class RecentBatches:
    """How the last batches of a producer were confirmed, by their first numbers, lowest first: four
    numbers of 8 bytes each. As objects in a dict 64 of them took 12.8 KB, and 10,000 producers that
    may come back 128 MB."""

    __slots__ = ("_firsts", "_rest")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._rest = array("Q")

    def __len__(self) -> int:
        return len(self._firsts)

    def get(self, first_sequence: int) -> Taken | None:
        """How the batch that begins with that number was confirmed."""
        firsts = self._firsts
        if not firsts or first_sequence > firsts[-1]:
            return None
        at = bisect_left(firsts, first_sequence)
        if firsts[at] != first_sequence:
            return None
        return Taken(*self._rest[3 * at : 3 * at + 3])

    def __contains__(self, first_sequence: int) -> bool:
        return self.get(first_sequence) is not None

    @property
    def first(self) -> int:
        """The lowest number, of which there is one."""
        return self._firsts[0]

    def put(self, first_sequence: int, taken: Taken) -> int:
        """Note how it was confirmed; how many are known then."""
        firsts, rest = self._firsts, self._rest
        row = array("Q", (taken.first_message_id, taken.timestamp_ms, taken.message_count))
        if not firsts or first_sequence > firsts[-1]:  # as almost all
            firsts.append(first_sequence)
            rest.extend(row)
            return len(firsts)
        at = bisect_left(firsts, first_sequence)
        if firsts[at] == first_sequence:
            rest[3 * at : 3 * at + 3] = row
            return len(firsts)
        firsts.insert(at, first_sequence)
        rest[3 * at : 3 * at] = row
        return len(firsts)

    def pop_first(self) -> int:
        """Forget the lowest, of which there is one; its number."""
        del self._rest[:3]
        return self._firsts.pop(0)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """First number, first message id, time and count of each."""
        rest = iter(self._rest)
        return list(zip(self._firsts, rest, rest, rest, strict=True))


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
        self.recent = RecentBatches()

    @property
    def idle_bytes(self) -> int:
        """What it takes while nobody has it open."""
        return IDLE_BYTES + TAKEN_BYTES * len(self.recent)

    def remember(self, first_sequence: int, taken: Taken, batches_max: int) -> None:
        """A batch was taken."""
        recent = self.recent
        count = recent.put(first_sequence, taken)
        last = min(first_sequence + taken.message_count - 1, SEQUENCE_MAX)
        self.last_sequence = max(self.last_sequence, last)
        while count > batches_max:
            self.forgotten = max(self.forgotten, recent.pop_first())
            count -= 1


def _last(of_one: tuple[_Key, Sequence[int]]) -> int:
    return of_one[1][-1]


class DeduplicationState:
    """What is remembered of producers and of committed transactions, by client.

    Those of clients that are connected are always kept, and count in what these have open. Of the
    others entries_max of each kind are, and IDLE_BYTES_MAX of producers; the least recently used
    are forgotten first. has_forgotten: it happened, or may have before a boot. Then one that is not
    known is not new for certain, and a client that asks is told so.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._open: dict[_Key, ProducerMemory] = {}
        self._idle: OrderedDict[_Key, ProducerMemory] = OrderedDict()
        self._idle_bytes = 0
        self._open_commits: dict[_Key, int] = {}
        self._commits: OrderedDict[_Key, int] = OrderedDict()
        self.has_forgotten = False

    # producers

    def open_producer(self, client_uid: int, handle: int, sent_before: int) -> ProducerMemory:
        """The memory of a producer that is opened; sent_before: the last number that its client has
        used. When it is not known any more nobody can say which of those were taken."""
        key = (client_uid, handle)
        memory = self._take_idle(key)
        if memory is None:
            memory = ProducerMemory()
            if self.has_forgotten:
                memory.forgotten = sent_before
        self._open[key] = memory
        return memory

    def is_open(self, client_uid: int, handle: int) -> bool:
        """It is kept as long as its client is connected."""
        return (client_uid, handle) in self._open

    def close_producer(self, client_uid: int, handle: int) -> None:
        """Its client may come back."""
        memory = self._open.pop((client_uid, handle), None)
        if memory is not None and (memory.last_sequence or memory.forgotten):
            self._keep((client_uid, handle), memory)

    def forget_producer(self, client_uid: int, handle: int) -> None:
        """It was closed in order: nothing of it comes again."""
        self._open.pop((client_uid, handle), None)
        self._take_idle((client_uid, handle))

    def producer(self, client_uid: int, handle: int, first_sequence: int = 1) -> ProducerMemory:
        """The memory of a producer that is looked at, new if it is not known. first_sequence: of
        what it sends now; one that is not known any more may have sent what is before that."""
        key = (client_uid, handle)
        found = self._open.get(key) or self._idle.get(key)
        if found is None:
            found = ProducerMemory()
            if self.has_forgotten:
                found.forgotten = max(first_sequence - 1, 0)
            self._keep(key, found)
        elif key in self._idle:
            self._idle.move_to_end(key)
        return found

    def known(self, client_uid: int, handle: int) -> ProducerMemory | None:
        """The memory of a producer, None when there is none."""
        key = (client_uid, handle)
        return self._open.get(key) or self._idle.get(key)

    def remember(
        self, client_uid: int, handle: int, first_sequence: int, taken: Taken, batches_max: int
    ) -> None:
        """A batch of a producer was taken, that may be idle."""
        memory = self.producer(client_uid, handle, first_sequence)
        before = memory.idle_bytes
        memory.remember(first_sequence, taken, batches_max)
        self._has_grown((client_uid, handle), memory.idle_bytes - before)

    def remember_sends(self, sends: SingleSends, batches_max: int) -> dict[_Key, int]:
        """Messages that were sent one by one were taken, of producers that may be idle. Of each
        the last ones are put, as if all had been. By producer, the index of its last message."""
        columns, count = (sends.clients, sends.producers), len(sends.ids)
        of_each: dict[_Key, Sequence[int]] = {}
        if all(column.count(column[0]) == count for column in columns):
            of_each[columns[0][0], columns[1][0]] = range(count)
        else:
            indices_of: dict[_Key, list[int]] = {}
            for i, key in enumerate(zip(*columns, strict=True)):
                indices_of.setdefault(key, []).append(i)
            of_each.update(indices_of)
        for key, indices in sorted(of_each.items(), key=_last):
            numbered, firsts = indices, sends.sequences
            if len(indices) < count or 0 in firsts:
                numbered = [i for i in indices if firsts[i]]
                firsts = array("Q", [firsts[i] for i in numbered])
            if numbered and all(map(lt, firsts, firsts[1:])) and len(firsts) > batches_max:
                memory = self.producer(*key)
                memory.forgotten = max(memory.forgotten, firsts[-batches_max - 1])
                numbered = numbered[-batches_max:]
            for i in numbered:
                taken = Taken(sends.ids[i], sends.times_ms[i], 1)
                self.remember(*key, sends.sequences[i], taken, batches_max)
        return {key: indices[-1] for key, indices in of_each.items()}

    def used(self, keys: Iterable[_Key]) -> None:
        """These were used one after the other: the last of them is forgotten last."""
        for key in keys:
            if key in self._idle:
                self._idle.move_to_end(key)

    def _keep(self, key: _Key, memory: ProducerMemory) -> None:
        self._take_idle(key)
        self._idle[key] = memory
        self._has_grown(key, memory.idle_bytes)

    def _take_idle(self, key: _Key) -> ProducerMemory | None:
        memory = self._idle.pop(key, None)
        if memory is not None:
            self._idle_bytes -= memory.idle_bytes
        return memory

    def _has_grown(self, key: _Key, more: int) -> None:
        """What an idle one takes has changed."""
        if key not in self._idle:
            return
        self._idle_bytes += more
        while len(self._idle) > self._entries_max or (
            self._idle_bytes > IDLE_BYTES_MAX and len(self._idle) > 1
        ):
            _, forgotten = self._idle.popitem(last=False)
            self._idle_bytes -= forgotten.idle_bytes
            self.has_forgotten = True

    # commits

    def open_session(self, client_uid: int, session: int) -> bool:
        """Keep the number of a session that is opened; whether it is known for certain."""
        key = (client_uid, session)
        number = self._commits.pop(key, None)
        self._open_commits[key] = number or 0
        return number is not None or not self.has_forgotten

    def close_session(self, client_uid: int, session: int) -> None:
        """Its client may come back."""
        number = self._open_commits.pop((client_uid, session), 0)
        if number:
            self._keep_commit((client_uid, session), number)

    def last_commit(self, client_uid: int, session: int) -> int:
        """The number of the session's last commit that took effect; 0 for none."""
        key = (client_uid, session)
        return self._open_commits.get(key, 0) or self._commits.get(key, 0)

    def committed(self, client_uid: int, session: int, number: int) -> None:
        """A commit took effect."""
        key = (client_uid, session)
        if key in self._open_commits:
            self._open_commits[key] = number
        else:
            self._keep_commit(key, number)

    def skipped(
        self, client_uid: int, session: int, last: int, number: int, *, is_certain: bool
    ) -> bool:
        """Before a commit of that number, the one before being `last`: those in between took no
        effect, which is remembered like the batches of a producer. is_certain: `last` is known.
        Whether there are any."""
        if number <= last + 1:
            return False
        memory = self.producer(client_uid, session)
        known = max(last + 1, number - COMMITS_SKIPPED) if is_certain else number
        if known > last + 1:
            memory.forgotten = max(memory.forgotten, known - 1)
        for one in range(known, number):
            self.remember(client_uid, session, one, Taken(WITHDRAWN, 0, 1), COMMITS_SKIPPED)
        return True

    def _keep_commit(self, key: _Key, number: int) -> None:
        self._commits[key] = number
        self._commits.move_to_end(key)
        if len(self._commits) > self._entries_max:
            self._commits.popitem(last=False)
            self.has_forgotten = True

    # the log

    def keys(self) -> list[_Key]:
        """Client and handle of all that is remembered, least recently used first."""
        commits = [*self._commits, *self._open_commits]
        return list(dict.fromkeys([*self._idle, *self._open, *commits]))

    def producers_taken(self, keys: Iterable[_Key]) -> Iterator[ProducerTaken]:
        """What is remembered of producers."""
        for key in keys:
            memory = self._idle.get(key) or self._open.get(key)
            if memory is None or not (memory.recent or memory.forgotten):
                continue
            rows = memory.recent.rows()
            yield ProducerTaken(*key, memory.last_sequence, rows, memory.forgotten)

    def commits_taken(self, keys: Iterable[_Key]) -> list[tuple[int, int, int]]:
        """Client, session and number of the commits remembered."""
        known = ((key, self.last_commit(*key)) for key in keys)
        return [(*key, number) for key, number in known if number]

    def restore(self, remembered: Memory) -> None:
        """Take over what the log restated."""
        self.has_forgotten = self.has_forgotten or remembered.is_partial
        for producer in remembered.producers:
            memory = self.producer(producer.client_uid, producer.handle)
            before = memory.idle_bytes
            memory.last_sequence = producer.last_sequence
            memory.forgotten = producer.forgotten
            memory.recent = RecentBatches()
            for first, *rest in producer.recent:
                memory.recent.put(first, Taken(*rest))
            self._has_grown((producer.client_uid, producer.handle), memory.idle_bytes - before)
        for client_uid, session, number in remembered.commits:
            self.committed(client_uid, session, number)

    def restored(self) -> None:
        """The log is read. When as many are known as are kept, others may have been forgotten."""
        if max(len(self._idle), len(self._commits)) >= self._entries_max:
            self.has_forgotten = True
