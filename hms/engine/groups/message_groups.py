"""Message groups: the groups and global orders of one line, and whose turn is whose (F-C16,
F-C17)."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from hms.engine.groups.assembly import GroupAssembly
from hms.engine.groups.group_marks import Mark, mark_of
from hms.engine.groups.message_group import GatheredGroup, Key, MessageGroup, OrderGroup
from hms.engine.groups.message_sort import Entry
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.queue.ordered_entries import OrderedEntries
from hms.wire.packed_messages import FLAG_LAST, FLAG_PART

GROUPS_REMEMBERED = 10_000
"""So many groups of which nothing is here keep their consumer; the least recently used first loses
it, so that a new name for every message does not fill the memory (P8)."""
REMEMBERED_BYTES_MAX = 16 << 20
"""And so much of them: a name may have 64 KiB."""
GROUPED_BYTES = 350
"""What a message takes here beside what it takes alone."""


class GroupedLine(Protocol):
    """The messages that groups and orders are made of; see queue/pending_list.py."""

    held_count: int

    def entry(self, message: StoredMessage) -> Entry:
        """Where a message has its place."""

    def stand(self, message: StoredMessage) -> None:
        """A waiting message may be taken from the line."""

    def unstand(self, message: StoredMessage) -> None:
        """A waiting message may not be taken from the line."""


class MessageGroups:
    """See message_group.py. The line's `held_count` is how many of these wait and do not stand
    there."""

    def __init__(self, line: GroupedLine) -> None:
        self._line = line
        self.gathering: GroupAssembly | None = None
        """Of a queue that gathers."""
        self.waiting_count = 0
        self.waiting = OrderedEntries()
        """All that waits here and belongs to a group or order, whether it stands or not."""
        self.is_woken = False
        """Something began to stand since somebody looked."""
        self.is_handing_out = False
        self.clock = 0
        """The highest clock of a global order that was seen here."""
        self.on_free: Callable[[StoredMessage], None] = lambda _: None
        """Told of a message that anybody may take now."""
        self._of: dict[int, MessageGroup] = {}
        self.grouped: Collection[int] = self._of
        """Ids of the messages here that belong to a group or an order."""
        self._groups: dict[Key, MessageGroup] = {}
        self._owned: dict[ConsumerView, dict[Key, MessageGroup]] = {}
        self._shelves: dict[ConsumerView, list[Entry]] = {}
        self._idle: OrderedDict[Key, MessageGroup] = OrderedDict()
        self._idle_bytes = 0
        self.on_memory: Callable[[int], None] = lambda _: None
        """Told how many bytes more, or less, its groups take, beside what messages take alone."""

    # what comes and goes at the line

    def arrived(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """New messages wait; those that belong to nothing are for the line alone."""
        if not sum([m.head_bytes for m in messages]):
            return messages
        return [m for m in messages if not m.head_bytes or not self._arrived(m)]

    def _arrived(self, message: StoredMessage) -> bool:
        mark = mark_of(message, gathers=self.gathering is not None)
        if mark is None:
            return False
        if mark.kind == "gather":
            assert self.gathering is not None, "only a queue that gathers has such marks"
            before = self.gathering.count
            group: MessageGroup = self.gathering.group_for(mark)
            if self.gathering.count > before:
                self.on_memory(group.memory_bytes)
        else:
            group = self._group(mark)
        self._of[message.id] = group
        self.on_memory(GROUPED_BYTES)
        self._wait(group, message, mark)
        return True

    def came_back(self, message: StoredMessage) -> bool:
        """A message that was out, or delayed, waits again; False: it is for the line alone."""
        group = self._of.get(message.id)
        if group is None:
            return bool(message.head_bytes) and self._arrived(message)
        mark = mark_of(message, gathers=self.gathering is not None)
        assert mark is not None, f"message {message.id:012x} had a group"
        group.out.pop(message.id, None)
        group.late.pop(message.id, None)
        self._wait(group, message, mark)
        return True

    def _wait(self, group: MessageGroup, message: StoredMessage, mark: Mark) -> None:
        self._line.held_count += 1
        self.waiting_count += 1
        if self._idle.pop(group.key, None) is not None:
            self._idle_bytes -= group.memory_bytes
        entry = self._line.entry(message)
        self.waiting.add(entry)
        group.add(message, mark, entry)
        if mark.kind == "order":
            self.clock = max(self.clock, mark.number)
        self._decide(group)

    def comes_later(self, message: StoredMessage) -> None:
        """A message that was out failed, and waits for its time."""
        group = self._of.get(message.id)
        if group is not None:
            group.out.pop(message.id, None)
            group.late[message.id] = None
            self._decide(group)

    def delayed(self, message: StoredMessage, *, has_failed: bool) -> bool:
        """A waiting message waits for its time; one that never was out has no place in its group
        before. False: it is none of ours."""
        group = self._of.get(message.id)
        if group is None:
            return False
        self._waits_no_more(group, message)
        if has_failed:
            del group.waiting[message.id]
            group.late[message.id] = None
        else:
            del self._of[message.id]
            self.on_memory(-GROUPED_BYTES)
            group.withdrawn(message.id)
        self._decide(group)
        return True

    def left(self, message: StoredMessage) -> bool:
        """A message is here no more; whether it was one of ours."""
        group = self._of.pop(message.id, None)
        if group is None:
            return False
        self.on_memory(-GROUPED_BYTES)
        if message.id in group.waiting:
            self._waits_no_more(group, message)
        group.left(message.id)
        self._decide(group)
        return True

    def picked(self, message: StoredMessage) -> bool:
        """A waiting message goes out by itself; whether it is one of ours."""
        group = self._of.get(message.id)
        if group is None:
            return False
        self._waits_no_more(group, message)
        group.gone_out(message)
        self._decide(group)
        return True

    def _waits_no_more(self, group: MessageGroup, message: StoredMessage) -> None:
        if group.ready is message:
            self._unstand(group)
        self._count_out(message)

    def _count_out(self, message: StoredMessage) -> None:
        self._line.held_count -= 1
        self.waiting_count -= 1
        self.waiting.remove(self._line.entry(message)[:-1])

    # who takes what

    def shelf(self, consumer: ConsumerView) -> Entry | None:
        """The first message that waits for this consumer alone."""
        shelf = self._shelves.get(consumer)
        while shelf:
            message = shelf[0][-1]
            group = self._of.get(message.id)
            if group is not None and group.ready is message and group.owner is consumer:
                return shelf[0]
            heapq.heappop(shelf)
        return None

    def has_shelf(self, consumer: ConsumerView) -> bool:
        """Whether something may wait for this consumer alone."""
        return bool(self._shelves.get(consumer))

    def is_free(self, message: StoredMessage) -> bool:
        """Whether anybody may take a message that waits."""
        group = self._of.get(message.id)
        return group is None or (group.ready is message and group.owner is None)

    def knows(self, message: StoredMessage) -> bool:
        """Whether it belongs to a group or order."""
        return message.id in self._of

    def is_binding(self, message: StoredMessage) -> bool:
        """Whether others wait for it, as of a gathered group or a global order."""
        return isinstance(self._of.get(message.id), GatheredGroup | OrderGroup)

    def is_incomplete(self, message: StoredMessage) -> bool:
        """Whether it waits for the rest of its list, or the list can never be whole."""
        group = self._of.get(message.id)
        return (
            isinstance(group, GatheredGroup) and not group.is_whole and message.id in group.waiting
        )

    def is_ordered(self, message: StoredMessage) -> bool:
        """Whether it belongs to a global order."""
        return isinstance(self._of.get(message.id), OrderGroup)

    def owned_count(self, consumer: ConsumerView) -> int:
        """How many groups are this consumer's."""
        return len(self._owned.get(consumer, ()))

    def goes_with(self, message: StoredMessage) -> list[StoredMessage]:
        """A message that stands, and what goes out with it."""
        group = self._of.get(message.id)
        return [message] if group is None else group.with_first()

    def take(self, message: StoredMessage, consumer: ConsumerView) -> list[StoredMessage]:
        """The message that stands, and what goes out with it, go out to a consumer."""
        group = self._of[message.id]
        goes = group.with_first()
        self._unstand(group)
        for each in goes:
            self._count_out(each)
            group.gone_out(each)
        if group.owner is None and type(group) is MessageGroup:
            group.owner = consumer
            self._owned.setdefault(consumer, {})[group.key] = group
        self._decide(group)
        return goes

    def whole(self, message: StoredMessage) -> list[int]:
        """The ids of the list that a message is part of; none for any other message."""
        group = self._of.get(message.id)
        if not isinstance(group, GatheredGroup):
            return []
        return [group.members[number] for number in sorted(group.members)]

    def part_of(self, message: StoredMessage) -> int:
        """How a delivery marks a message that is part of a list; 0 for any other."""
        group = self._of.get(message.id)
        if not isinstance(group, GatheredGroup):
            return 0
        is_last = group.members.get(group.count) == message.id
        return FLAG_PART | FLAG_LAST if is_last else FLAG_PART

    def consumer_left(self, consumer: ConsumerView) -> None:
        """Its groups are for others, as soon as nothing of them is out."""
        owned = self._owned.pop(consumer, {})
        for group in list(owned.values()):
            self._unstand(group)
            group.owner = None
            self._decide(group)
        self._shelves.pop(consumer, None)

    def sort_anew(self) -> None:
        """The line orders its messages by other keys now."""
        if not self.waiting_count:
            return
        self._shelves.clear()
        lists = self.gathering.groups() if self.gathering is not None else []
        groups = [*self._groups.values(), *lists]
        every = [self._line.entry(m) for group in groups for m in group.waiting.values()]
        self.waiting = OrderedEntries(every)
        for group in groups:
            self._unstand(group)
            if type(group) is MessageGroup:
                group.sort_anew([self._line.entry(m) for m in group.waiting.values()])
            self._decide(group)

    # for operators

    def held(self) -> Iterator[StoredMessage]:
        """What waits here and does not stand in the line."""
        lists = self.gathering.groups() if self.gathering is not None else []
        for group in (*self._groups.values(), *lists):
            for message in group.waiting.values():
                if group.ready is not message or group.owner is not None:
                    yield message

    def counts(self) -> dict[str, int]:
        """How many groups and global orders are here."""
        kinds = [type(group) for group in self._groups.values()]
        lists = self.gathering.groups() if self.gathering is not None else []
        return {
            "groups": kinds.count(MessageGroup),
            "orders": kinds.count(OrderGroup),
            "lists": len(lists),
            "lists_open": sum(1 for group in lists if not group.is_whole),
        }

    @property
    def memory_bytes(self) -> int:
        """What on_memory was told in all, reckoned anew."""
        lists = self.gathering.groups() if self.gathering is not None else []
        sizes = [group.memory_bytes for group in (*self._groups.values(), *lists)]
        return sum(sizes) + GROUPED_BYTES * len(self._of)

    # inside

    def _group(self, mark: Mark) -> MessageGroup:
        key = mark.kind, mark.name, 0
        found = self._groups.get(key)
        if found is None:
            found = OrderGroup(key) if mark.kind == "order" else MessageGroup(key)
            self._groups[key] = found
            self.on_memory(found.memory_bytes)
        return found

    def _forget(self, group: MessageGroup) -> None:
        if self._groups.pop(group.key, None) is not None:
            self.on_memory(-group.memory_bytes)

    def _decide(self, group: MessageGroup) -> None:
        """Have the right message stand, and in the right place."""
        if group.is_ending and not group.out:
            self._free(group)
        first, owner = group.first(), group.owner
        if first is not None and owner is not None and not owner.wants(first):
            if group.out:
                first = None  # its consumer has to settle those before another may have it
            else:
                self._free(group)
        if first is not group.ready:
            self._unstand(group)
            if first is not None:
                self._stand(group, first)
        if group.is_empty:
            self._rest(group)

    def _stand(self, group: MessageGroup, message: StoredMessage) -> None:
        group.ready = message
        self.is_woken = True
        if group.owner is None:
            self._line.stand(message)
            self.on_free(message)
        else:
            shelf = self._shelves.setdefault(group.owner, [])
            heapq.heappush(shelf, self._line.entry(message))

    def _unstand(self, group: MessageGroup) -> None:
        message, group.ready = group.ready, None
        if message is not None and group.owner is None:
            self._line.unstand(message)

    def _free(self, group: MessageGroup) -> None:
        """Its consumer owns it no more; nothing of it is out."""
        self._unstand(group)
        group.is_ending = False
        owner, group.owner = group.owner, None
        if owner is not None:
            self._owned[owner].pop(group.key, None)

    def _rest(self, group: MessageGroup) -> None:
        """Nothing of it is here: an owned group is remembered for a while."""
        if isinstance(group, GatheredGroup):
            assert self.gathering is not None, "only a queue that gathers has lists"
            if self.gathering.forget(group):
                self.on_memory(-group.memory_bytes)
        elif group.owner is None:
            if self._idle.pop(group.key, None) is not None:
                self._idle_bytes -= group.memory_bytes
            self._forget(group)
        else:
            if group.key not in self._idle:
                self._idle_bytes += group.memory_bytes
            self._idle[group.key] = group
            self._idle.move_to_end(group.key)
            while len(self._idle) > GROUPS_REMEMBERED or self._idle_bytes > REMEMBERED_BYTES_MAX:
                oldest = self._idle.popitem(last=False)[1]
                self._idle_bytes -= oldest.memory_bytes
                self._free(oldest)
                self._forget(oldest)
