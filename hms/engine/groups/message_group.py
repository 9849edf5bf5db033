"""Message group: messages of one line that go out in an order of their own (F-C16, F-C17).

Theory of operation. Of a group only the first message *stands*: in the line, where anybody may take
it, or on the shelf of the consumer that owns the group. The others wait behind it, so a group that
may not go on holds nobody up. When the first one is taken, settled or given back, it is decided
anew which one stands:

group    one consumer owns it from its first message on, until that consumer goes or the group
         ends. Then nothing of it goes out before all that was out is settled: no overlap
order    nothing goes out before the one that is out is settled, whichever consumer has it
gather   all members go out at once, to one consumer, when the last one is there

A message that failed and waits for its time holds its group up: what is behind it must not pass.
"""

import heapq
from typing import Any

from hms.engine.groups.group_marks import Mark
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.text_sizes import text_bytes

Key = tuple[str, str, int]
"""Kind and name; and a number, as a gathered group may begin again before the last one has left."""


GROUP_BYTES = 800


class MessageGroup:
    """A group of one consumer, JMSXGroupID (F-C17)."""

    __slots__ = ("_heap", "ends", "is_ending", "key", "late", "out", "owner", "ready", "waiting")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.waiting: dict[int, StoredMessage] = {}
        self.out: dict[int, None] = {}
        self.late: dict[int, None] = {}
        """Messages that failed and wait for their time."""
        self.ends: dict[int, None] = {}
        """Messages with which the group ends. An empty dict takes 64 bytes, a set 216."""
        self.is_ending = False
        self.owner: ConsumerView | None = None
        self.ready: StoredMessage | None = None
        self._heap: list[Any] = []

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory at most, beside its messages."""
        return GROUP_BYTES + text_bytes(self.key[1])

    @property
    def is_empty(self) -> bool:
        """Nothing of it is here."""
        return not (self.waiting or self.out or self.late)

    @property
    def is_held_up(self) -> bool:
        """Nothing may go out now."""
        return bool(self.late or (self.out and (self.owner is None or self.is_ending)))

    def add(self, message: StoredMessage, mark: Mark, entry: tuple[Any, ...]) -> None:
        """A message waits, or waits again; entry: its place in the line."""
        self.waiting[message.id] = message
        if mark.is_end:
            self.ends[message.id] = None
            self.is_ending = self.is_ending and not self.out.keys().isdisjoint(self.ends)
        heapq.heappush(self._heap, entry)

    def sort_anew(self, entries: list[tuple[Any, ...]]) -> None:
        """The places in the line of all that waits are these now."""
        heapq.heapify(entries)
        self._heap = entries

    def first(self) -> StoredMessage | None:
        """What should stand; None while nothing may go out."""
        if self.is_held_up:
            return None
        while self._heap and self._heap[0][-1].id not in self.waiting:
            heapq.heappop(self._heap)
        return self._heap[0][-1] if self._heap else None

    def with_first(self) -> list[StoredMessage]:
        """What goes out with the one that stands."""
        assert self.ready is not None
        return [self.ready]

    def gone_out(self, message: StoredMessage) -> None:
        """A waiting message is out."""
        del self.waiting[message.id]
        self.out[message.id] = None
        if message.id in self.ends:
            self.is_ending = True

    def left(self, message_id: int) -> None:
        """A message is here no more."""
        self.waiting.pop(message_id, None)
        self.out.pop(message_id, None)
        self.late.pop(message_id, None)
        self.ends.pop(message_id, None)

    def withdrawn(self, message_id: int) -> None:
        """A message that waits comes only later."""
        self.left(message_id)


class OrderGroup(MessageGroup):
    """A global order: one message after the other (F-C16), by the order's clock."""

    __slots__ = ()

    @property
    def is_held_up(self) -> bool:
        """Until what was taken is settled."""
        return bool(self.late or self.out)

    def add(self, message: StoredMessage, mark: Mark, entry: tuple[Any, ...]) -> None:  # noqa: ARG002
        """Priority and sort key do not count: they would change the order."""
        self.waiting[message.id] = message
        heapq.heappush(self._heap, (mark.number, message.seq, message))


class GatheredGroup(MessageGroup):
    """A group that is gathered: a list, whole or not at all (F-C17)."""

    __slots__ = ("count", "is_broken", "members", "since_ms")

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.members: dict[int, int] = {}
        """The messages' ids by their numbers, wherever they are."""
        self.count = 0
        """How many there will be; 0 before that is known."""
        self.is_broken = False
        """Something has left it alone: it can never be whole."""
        self.since_ms = 0

    def fits(self, mark: Mark) -> bool:
        """Whether a new message can be one of this list."""
        if self.is_broken or mark.number in self.members:
            return False
        if mark.is_end:
            return not self.count and mark.number >= max(self.members, default=0)
        return not self.count or mark.number < self.count

    @property
    def is_whole(self) -> bool:
        """Nothing is missing, wherever its messages are."""
        return self.count > 0 and len(self.members) == self.count and not self.is_broken

    @property
    def is_held_up(self) -> bool:
        """Until all members wait here."""
        return not self.is_whole or len(self.waiting) < self.count

    def add(self, message: StoredMessage, mark: Mark, entry: tuple[Any, ...]) -> None:  # noqa: ARG002
        """A member comes, or comes back."""
        if not self.members:
            self.since_ms = message.timestamp_ms
        self.waiting[message.id] = message
        self.members[mark.number] = message.id
        if mark.is_end:
            self.count = mark.number

    def first(self) -> StoredMessage | None:
        """Number one stands for all."""
        return None if self.is_held_up else self.waiting[self.members[1]]

    def with_first(self) -> list[StoredMessage]:
        """All, in the order of their numbers."""
        return [self.waiting[self.members[number]] for number in range(1, self.count + 1)]

    def left(self, message_id: int) -> None:
        """A list whose members wait, and of which one leaves, is broken."""
        is_alone = message_id not in self.out
        super().left(message_id)
        if (is_alone and not self.is_empty) or (self.waiting and not self.is_broken):
            self.is_broken = True

    def withdrawn(self, message_id: int) -> None:
        """The list is as if it had not come yet."""
        super().left(message_id)
        number = next(n for n, each in self.members.items() if each == message_id)
        del self.members[number]
        if number == self.count:
            self.count = 0
