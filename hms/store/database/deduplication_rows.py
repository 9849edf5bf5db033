"""Which batches and commits the tables keep, by the rule of the engine's memory.

Of each producer the last batches by their numbers, as many as may be unconfirmed; of producers and
sessions the ones used last. Only the keys stay in memory, the rest is in the tables.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from hms.records import Memory, ProducerTaken, Sent
from hms.store.database.rows import BatchRow, CommitRow, MemoryChanges

PER_RECORD = 256
"""So many producers or commits in one record of the recovery."""


class _Producer:
    """First numbers of the batches kept, ascending."""

    __slots__ = ("firsts", "forgotten", "rows", "used_lsn")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.forgotten = self.used_lsn = 0
        self.rows: dict[int, BatchRow | None] = {}
        """What is to be written: a row, or None for one that goes."""


class Remembered:
    """Keys of what is kept, and the rows that wait to be written."""

    def __init__(self, batches_max: int, entries_max: int) -> None:
        self._batches_max, self._entries_max = batches_max, entries_max
        self._producers: OrderedDict[tuple[int, int], _Producer] = OrderedDict()
        self._commits: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._changed: dict[tuple[int, int], _Producer] = {}
        self._commits_changed: dict[tuple[int, int], CommitRow | None] = {}
        self._has_forgotten = False
        """Producers, in this boot or before it."""

    # at boot

    def load(self, batches: Iterable[BatchRow], commits: Iterable[CommitRow]) -> Iterator[Memory]:
        """Take over what the tables have, oldest use first; the same for the engine, in chunks."""
        found: dict[tuple[int, int], list[BatchRow]] = {}
        for row in batches:
            found.setdefault((row.client_uid, row.producer), []).append(row)
        by_use = sorted(found, key=lambda key: max(row.lsn for row in found[key]))
        taken = [self._restored(key, found[key]) for key in by_use]
        self._has_forgotten = len(taken) >= self._entries_max
        last = sorted(commits, key=lambda row: row.lsn)
        self._commits.update(((row.client_uid, row.session), row.number) for row in last)
        numbers = [row[:3] for row in last]
        for at in range(0, max(len(taken), len(numbers)), PER_RECORD):
            until = at + PER_RECORD
            yield Memory(producers=taken[at:until], commits=numbers[at:until])

    def _restored(self, key: tuple[int, int], rows: list[BatchRow]) -> ProducerTaken:
        rows.sort(key=lambda row: row.first_sequence)
        producer = self._producers[key] = _Producer()
        producer.firsts = [row.first_sequence for row in rows]
        producer.forgotten = max(row.forgotten for row in rows)
        last = max(row.first_sequence + row.message_count - 1 for row in rows)
        return ProducerTaken(*key, last, [row[2:6] for row in rows], producer.forgotten)

    # records

    def sent(self, record: Sent, lsn: int) -> None:
        """A batch was taken."""
        key = (record.client_uid, record.producer)
        taken = (record.first_message_id, record.timestamp_ms, record.message_count)
        producer = self._producer(key, record.first_sequence)
        self._add(producer, BatchRow(*key, record.first_sequence, *taken, 0, lsn))
        while len(producer.firsts) > self._batches_max:
            first = producer.firsts.pop(0)
            producer.forgotten = max(producer.forgotten, first)
            producer.rows[first] = None

    def restated(self, memory: Memory, lsn: int) -> None:
        """A MEMORY record: what it says of a producer replaces what was known."""
        for taken in memory.producers:
            key = (taken.client_uid, taken.handle)
            producer = self._producer(key)
            producer.rows.update(dict.fromkeys(producer.firsts))
            producer.firsts, producer.forgotten = [], taken.forgotten
            for batch in taken.recent:
                self._add(producer, BatchRow(*key, *batch, 0, lsn))
        for client_uid, session, number in memory.commits:
            self.committed(client_uid, session, number, lsn)

    def committed(self, client_uid: int, session: int, number: int, lsn: int) -> None:
        """A commit took effect."""
        key = (client_uid, session)
        self._commits[key] = number
        self._commits.move_to_end(key)
        self._commits_changed[key] = CommitRow(client_uid, session, number, lsn)
        if len(self._commits) > self._entries_max:
            self._commits_changed[self._commits.popitem(last=False)[0]] = None

    def take_changes(self) -> MemoryChanges:
        """What is to be written, once."""
        rows: dict[tuple[int, int, int], BatchRow | None] = {}
        forgotten = []
        for key, producer in self._changed.items():
            for first, row in producer.rows.items():
                rows[(*key, first)] = row and row._replace(forgotten=producer.forgotten)
            if producer.firsts and not any(producer.rows.values()):
                forgotten.append((*key, producer.forgotten, producer.used_lsn))
            producer.rows = {}
        commits, self._commits_changed, self._changed = self._commits_changed, {}, {}
        return MemoryChanges(
            [key for key, row in rows.items() if row is None],
            [key for key, commit in commits.items() if commit is None],
            [row for row in rows.values() if row is not None],
            [commit for commit in commits.values() if commit is not None],
            forgotten,
        )

    def _producer(self, key: tuple[int, int], first_sequence: int = 1) -> _Producer:
        """Known or new, used last now; one that may have been forgotten may have sent what is
        before that number."""
        producer = self._producers.get(key)
        if producer is None:
            producer = self._producers[key] = _Producer()
            if self._has_forgotten:
                producer.forgotten = max(first_sequence - 1, 0)
            if key in self._changed:  # forgotten a moment ago: its rows go nevertheless
                producer.rows = self._changed[key].rows
            if len(self._producers) > self._entries_max:
                self._evict()
        else:
            self._producers.move_to_end(key)
        self._changed[key] = producer
        return producer

    def _evict(self) -> None:
        key, oldest = self._producers.popitem(last=False)
        oldest.rows.update(dict.fromkeys(oldest.firsts))
        self._changed[key] = oldest
        self._has_forgotten = True

    @staticmethod
    def _add(producer: _Producer, row: BatchRow) -> None:
        firsts, first = producer.firsts, row.first_sequence
        at = bisect_left(firsts, first)
        if firsts[at : at + 1] != [first]:
            firsts.insert(at, first)
        producer.rows[first] = row
        producer.used_lsn = row.lsn
