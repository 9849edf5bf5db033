"""A place as the log has it: what waits there, what is out, and how often it was delivered."""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from hms.engine.log.live_index import hold, left_by
from hms.engine.log.packed_block import PackedBlock
from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import told_counts
from hms.records import Stay
from hms.records.message_states import Step, Steps

__all__ = ["LoggedPlace", "Ranges", "Unopened"]

Ranges = Sequence[tuple[int, int]]
"""First and last ids, both included."""


class Unopened(Protocol):
    """A batch of which every message waits at one place, and of which none is made yet."""

    first_id: int

    @property
    def last_id(self) -> int:
        """Of its last message."""

    def opened(self) -> Sequence[StoredMessage]:
        """Its messages, which know that the place holds them."""

    def left_whole(self) -> None:
        """Nobody needs a message of it."""


class LoggedPlace:
    """A queue or durable subscription by its number.

    It has no order, no groups and no limits: those are of today's configuration, and the log may
    have been written under another one. waiting and out: by id; history: (deliveries, failed
    attempts) of messages that came back; due: when those are due that wait for a time. Batches of
    which every message waits may stand beside `waiting`, unopened.
    """

    __slots__ = ("_below", "_firsts", "_packed", "due", "history", "number", "out", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self._packed: dict[int, Unopened] = {}
        self._firsts: list[int] = []
        """Their first ids, by which they are found; in order. No two reach into one another."""
        self._below = 0
        """All ids of unopened batches are lower."""
        self.waiting: dict[int, StoredMessage] = {}
        self.out: dict[int, StoredMessage] = {}
        self.history: dict[int, tuple[int, int]] = {}
        self.due: dict[int, int] = {}

    def hold(self, messages: Sequence[StoredMessage], due: Mapping[int, int]) -> None:
        """New messages wait here, some of them for their time."""
        hold(messages, self.number)
        self.waiting.update([(m.id, m) for m in messages])
        if due:
            self.due.update((m.id, due[m.id]) for m in messages if m.id in due)

    def hold_packed(self, block: Unopened) -> None:
        """A new batch waits here. One that it reaches into is opened."""
        if block.first_id < self._below:
            self.open_in(((block.first_id, block.last_id),))
        self._below = max(self._below, block.last_id + 1)
        self._packed[block.first_id] = block
        insort(self._firsts, block.first_id)

    def unopened(self) -> list[Unopened]:
        """The batches that nobody has opened, in the order of their ids."""
        return [self._packed[first] for first in self._firsts]

    def packed(self) -> list[PackedBlock]:
        """Those of them that are blocks already. One in whose midst others of this place arrived
        is opened: in a line it stands as one."""
        blocks = [one for one in self.unopened() if isinstance(one, PackedBlock)]
        if [block for block in blocks if block.has_gaps]:
            self._open_interleaved(sorted(blocks, key=attrgetter("first_seq")))
            blocks = [one for one in self.unopened() if isinstance(one, PackedBlock)]
        return blocks

    def _open_interleaved(self, blocks: Sequence[PackedBlock]) -> None:
        last_seq, before = 0, None
        for block in blocks:
            if before is not None and block.first_seq < last_seq:
                for one in (before, block):
                    if one.has_gaps and one.first_id in self._packed:
                        self._open(one)
            if block.last_seq > last_seq:
                last_seq, before = block.last_seq, block
        seqs = sorted([m.seq for table in (self.waiting, self.out) for m in table.values()])
        for block in blocks:
            at = bisect_right(seqs, block.first_seq)
            if at < len(seqs) and seqs[at] < block.last_seq and block.first_id in self._packed:
                self._open(block)

    def has(self, block: Unopened) -> bool:
        """Whether it stands here, unopened."""
        return self._packed.get(block.first_id) is block

    def drop(self, block: Unopened) -> None:
        """An unopened batch gives way to what its messages are told as."""
        del self._packed[block.first_id]
        del self._firsts[bisect_right(self._firsts, block.first_id) - 1]

    def open_all(self) -> None:
        """All that waits stands in `waiting`."""
        for block in self.unopened():
            self._open(block)

    def open_in(self, ranges: Ranges) -> None:
        """Those in these ranges that wait stand in `waiting`."""
        for block, _ in self._packed_in(ranges):
            if block.first_id in self._packed:
                self._open(block)

    def _open(self, block: Unopened) -> None:
        self.drop(block)
        self.waiting.update([(m.id, m) for m in block.opened()])

    def _packed_in(self, ranges: Ranges) -> list[tuple[Unopened, bool]]:
        """Unopened batches of which messages are in these ranges of ids, and whether all are in
        one of them."""
        if not self._firsts:
            return []
        found = []
        for first, last in ranges:
            at = max(bisect_right(self._firsts, first) - 1, 0)
            for one in self._firsts[at : bisect_right(self._firsts, last)]:
                block = self._packed[one]
                if first <= block.last_id:
                    found.append((block, first <= one and block.last_id <= last))
        return found

    def stay(self, message: StoredMessage, stay: Stay) -> None:
        """A message is here, whatever was known of it before."""
        self.leave(((message.id, message.id),))
        hold([message], self.number)
        (self.out if stay.is_out else self.waiting)[message.id] = message
        if stay.deliveries or stay.attempts:
            self.count(message.id, stay.deliveries, stay.attempts)
        if stay.due_ms:
            self.due[message.id] = stay.due_ms

    def delay(self, ids: Sequence[int], due_ms: int) -> None:
        """Those of them that wait do so for their time; 0: it is over."""
        if not due_ms:
            for message_id in ids:
                self.due.pop(message_id, None)
            return
        self.open_in([(message_id, message_id) for message_id in ids])
        self.due.update((message_id, due_ms) for message_id in ids if message_id in self.waiting)

    def count(self, message_id: int, deliveries: int, attempts: int) -> None:
        """It was delivered so often before."""
        self.open_in(((message_id, message_id),))
        self.history[message_id] = told_counts(deliveries, attempts)

    def step(self, steps: Steps, ranges: Ranges, due_ms: int = 0) -> None:
        """Messages go out or come back, those of them that are here. due_ms: what comes back waits
        until then."""
        self.open_in(ranges)
        self.step_each(steps, _ids(ranges), due_ms)

    def step_each(self, steps: Steps, ids: Sequence[int], due_ms: int = 0) -> None:
        """The same for messages that are not in an unopened batch."""
        waiting, out = self.waiting, self.out
        were_waiting = [i for i in ids if i in waiting]
        were_out = [i for i in ids if i in out]
        if were_waiting:
            if steps[0].is_out:
                out.update([(i, waiting.pop(i)) for i in were_waiting])
            self._count(steps[0], were_waiting)
        if were_out:
            if not steps[1].is_out:
                waiting.update([(i, out.pop(i)) for i in were_out])
                if due_ms:
                    self.due.update(dict.fromkeys(were_out, due_ms))
            self._count(steps[1], were_out)

    def _count(self, step: Step, ids: Sequence[int]) -> None:
        if step.deliveries:
            for message_id in ids:
                deliveries, attempts = self.history.get(message_id, (0, 0))
                counts = deliveries + step.deliveries, attempts + step.attempts
                self.history[message_id] = counts
        if self.due and not step.keeps_due:
            for message_id in ids:
                self.due.pop(message_id, None)

    def leave(self, ranges: Ranges) -> None:
        """Messages are gone, those of them that are here."""
        for block, is_whole in self._packed_in(ranges):
            if block.first_id not in self._packed:
                continue
            if is_whole:
                self.drop(block)
                block.left_whole()
            else:
                self._open(block)
        ids = _ids(ranges)
        waiting, out = self.waiting, self.out
        gone = [out.pop(i) for i in ids if i in out]
        gone += [waiting.pop(i) for i in ids if i in waiting]
        left_by(gone, self.number)
        for counts in (self.history, self.due):
            if counts:
                for message in gone:
                    counts.pop(message.id, None)

    def end(self) -> None:
        """The place is gone with all that it holds."""
        for block in self.unopened():
            block.left_whole()
        left_by([*self.waiting.values(), *self.out.values()], self.number)


def _ids(ranges: Ranges) -> list[int]:
    return [message_id for first, last in ranges for message_id in range(first, last + 1)]
