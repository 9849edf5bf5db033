"""Live index: which live messages lie in which segment of the log.

The log is a ring: its oldest segment leaves it once what is live in it was told again at the head.
So the engine knows the live messages of each segment. A *block* is up to about 256 messages of
neighbouring records of one segment; a message knows its block and its slot there, and leaves both
with the last queue or durable subscription that holds it. What is dead thus costs nothing, and what
is live is found without looking at anything else.

A position says where bytes lie: the segment in the upper bits, the offset in its file below.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

import msgspec

from hms.engine.messages import OVERHEAD_BYTES, Holders, StoredMessage
from hms.records import LogPosition

SEGMENT_SHIFT = 32
BLOCK_MESSAGES = 256
OWN_BLOCK_MESSAGES = 32
"""A batch of so many has a block of its own: it then learns its place in one step."""
NOWHERE = -1
RECORD_BYTES = 64
"""About what a message takes in the log beside its head and body."""
HOLDER_BYTES = 16
"""About what each further place takes there that holds it."""
SETTLING_BYTES = 192
"""About what it takes there to deliver and to acknowledge a single message, at each place; 145
were measured for a message that is received and acknowledged by itself."""
_block_of = attrgetter("block")


class Block:
    """Live messages that lie close together; `base` is added to every offset."""

    __slots__ = ("_blocks", "base", "live", "live_bytes", "messages", "offsets", "segment")

    def __init__(self, blocks: "LiveIndex") -> None:
        self._blocks = blocks
        self.messages: list[StoredMessage | None] = []
        self.offsets = array("Q")
        self.base = 0
        self.live = 0
        self.live_bytes = 0
        """What its live messages take in the log."""
        self.segment = NOWHERE

    def left(self, message: StoredMessage, number: int) -> None:
        """A place does not hold the message any more."""
        if self._blocks.paged_count and message.is_paged:
            self._blocks.paged(message, -1)
        holders = message.holders
        if not isinstance(holders, int) and len(holders) > 1:
            holders.discard(number)
            self.live_bytes -= HOLDER_BYTES
            self._blocks.live_bytes -= HOLDER_BYTES
            self._blocks.held_count -= 1
        else:
            self.free(message)

    def left_by(self, messages: Sequence[StoredMessage], number: int) -> None:
        """A place does not hold these any more, all of this block; the usual case written out."""
        if self._blocks.paged_count:
            for message in messages:
                self.left(message, number)
            return
        slots = self.messages
        gone = freed = 0
        for message in messages:
            slot = message.slot
            if not isinstance(message.holders, int):
                self.left(message, number)
            elif slots[slot] is message:
                slots[slot] = None
                gone += 1
                freed += message.length
        freed += RECORD_BYTES * gone
        self.live -= gone
        self.live_bytes -= freed
        self._blocks.live_bytes -= freed
        self._blocks.held_count -= gone
        if gone and not self.live:
            self._blocks.forget(self)

    def free(self, message: StoredMessage) -> None:
        """Nobody needs the message here; it still knows where it lay."""
        if self.messages[message.slot] is not message:
            return
        self.messages[message.slot] = None
        freed = _log_bytes(message)
        self.live -= 1
        self.live_bytes -= freed
        self._blocks.live_bytes -= freed
        self._blocks.held_count -= _count_of(message)
        if not self.live:
            self._blocks.forget(self)

    def keep(self, message: StoredMessage, number: int) -> None:
        """A place that let go of the message holds it again."""
        if message.is_paged:
            self._blocks.paged(message, 1)
        if self.messages[message.slot] is message:
            self.live_bytes += HOLDER_BYTES
            self._blocks.live_bytes += HOLDER_BYTES
            self._blocks.held_count += 1
            hold([message], number)
        else:
            message.holders = number
            self.messages[message.slot] = message
            taken = _log_bytes(message)
            self.live += 1
            self.live_bytes += taken
            self._blocks.live_bytes += taken
            self._blocks.held_count += 1
            if self.segment != NOWHERE:
                self._blocks.placed(self)

    def placed(self, segment: int) -> None:
        """Its messages lie in this segment."""
        if self.segment == NOWHERE:
            self.segment = segment
        if self.live:
            self._blocks.placed(self)

    def carry_over(
        self, first: int, messages: Sequence[StoredMessage], segment: int
    ) -> tuple["Block", int]:
        """These were added behind others, and their record has begun the next segment: the block
        that they go on in, and their first slot there."""
        other = self._blocks.opened(self, len(messages), segment)
        start = len(other.messages)
        other.offsets.extend(self.offsets[first : first + len(messages)])
        for slot, message in enumerate(messages, first):
            here, self.messages[slot] = self.messages[slot], None
            if message.block is self and message.slot == slot:
                message.block, message.slot = other, len(other.messages)
            other.messages.append(here)
            if here is not None:
                self.live -= 1
                self.live_bytes -= _log_bytes(here)
                other.live += 1
                other.live_bytes += _log_bytes(here)
        if not self.live:
            self._blocks.forget(self)
        return other, start

    def position(self, slot: int) -> int:
        """Where the head and body of the message in this slot begin."""
        return self.base + self.offsets[slot]

    def has(self, message: StoredMessage) -> bool:
        """The log has to keep the message here."""
        return self.messages[message.slot] is message

    def lying(self) -> Sequence[StoredMessage | None]:
        """The messages in its slots; None where one has left."""
        return self.messages

    def waiting_as_told(self) -> tuple[int, list[int], list[int]] | None:
        """Of a block whose messages all wait, as their record said: the place, their ids and their
        positions. None when each message has to be asked."""
        return None

    def clear(self) -> None:
        """Let go of all messages."""
        self.messages.clear()


class _LogPosition(msgspec.Struct, frozen=True, gc=False):
    """Messages of one record in one block, whose place is not known before it is appended."""

    block: Block
    first: int
    messages: Sequence[StoredMessage]

    def placed(self, position: int) -> None:
        """The record's messages begin here."""
        block, first, count = self.block, self.first, len(self.messages)
        if block.segment not in (NOWHERE, position >> SEGMENT_SHIFT):
            block, first = block.carry_over(first, self.messages, position >> SEGMENT_SHIFT)
        if count >= OWN_BLOCK_MESSAGES:
            block.base = position
        else:
            offsets = block.offsets
            for slot in range(first, first + count):
                offsets[slot] += position
        if block.segment == NOWHERE:
            block.placed(position >> SEGMENT_SHIFT)


class LiveIndex:
    """All blocks, by the oldest segment that they reach into."""

    def __init__(self) -> None:
        self._by_segment: dict[int, dict[Block, None]] = {}
        self._open = Block(self)
        self.emptied = 0
        """How often the last live message of a segment has left it."""
        self.pinned: dict[int, int] = {}
        """Segments that were pinned as they are, and the segment in which the telling began."""
        self.live_bytes = 0
        """What live messages take in the log."""
        self.held_count = 0
        """How many there are, counted for each place that holds them."""
        self.paged_bytes = 0
        """What messages whose bodies are in the log only do not take of the memory quota: their
        bodies, and what they cost beside; counted for each place that holds them."""
        self.paged_count = 0
        """How many of them there are, counted alike: they have a limit of their own."""

    def paged(self, message: StoredMessage, count: int) -> None:
        """That number of further places hold a message whose body is in the log only."""
        self.paged_bytes += (message.length - message.head_bytes + OVERHEAD_BYTES) * count
        self.paged_count += count

    def add(self, messages: Sequence[StoredMessage], offsets: Sequence[int]) -> LogPosition | None:
        """Messages of a record that is about to be appended, each already held by a place; offsets
        count from where the record will be said to lie."""
        count = len(messages)
        if not count:
            return None
        block = self._open if count < OWN_BLOCK_MESSAGES else Block(self)
        first = len(block.messages)
        if first and (not block.live or first + count > BLOCK_MESSAGES):
            block, first = Block(self), 0
            self._open = block
        block.messages += messages
        block.offsets.extend(offsets)
        block.live += count
        further = length = 0
        for slot, message in enumerate(messages, first):
            message.block = block
            message.slot = slot
            length += message.length
            holders = message.holders
            if not isinstance(holders, int):
                further += len(holders) - 1
        taken = length + RECORD_BYTES * count + HOLDER_BYTES * further
        block.live_bytes += taken
        self.live_bytes += taken
        self.held_count += count + further
        return _LogPosition(block, first, messages)

    def add_whole(self, block: Block, position: int) -> None:
        """A block whose messages one place holds, all of them; the first one's bytes lie there."""
        self.live_bytes += block.live_bytes
        self.held_count += block.live
        block.base = position
        block.placed(position >> SEGMENT_SHIFT)

    def leave_whole(self, block: Block) -> None:
        """Nobody needs any message of a block of which none has left."""
        self.live_bytes -= block.live_bytes
        self.held_count -= block.live
        block.live = block.live_bytes = 0
        self.forget(block)

    def move(self, messages: Sequence[StoredMessage], offsets: Sequence[int]) -> LogPosition | None:
        """The same for messages that the log knew already and is told again."""
        for message in messages:
            self.release(message)
        return self.add(messages, offsets)

    def release(self, message: StoredMessage) -> None:
        """What the log has of the message now is not needed any more, whatever place holds it."""
        if message.block is not None:
            message.block.free(message)

    def has_live(self, segment: int) -> bool:
        """Whether a live message lies in it; asked under the engine's lock."""
        return segment in self._by_segment

    def live_bytes_in(self, segment: int) -> int:
        """What live messages take in one segment; every thread may ask."""
        return sum([block.live_bytes for block in list(self._by_segment.get(segment, ()))])

    def blocks_in(self, segment: int) -> list[Block]:
        """The blocks of a segment; the older ones first."""
        return list(self._by_segment.get(segment, ()))

    def lying_in(self, segment: int) -> Iterator[StoredMessage]:
        """Live messages in this segment or an older one that is in no other way told of, oldest
        segment first."""
        pinned = self.pinned
        older = [n for n in self._by_segment if n < segment and n not in pinned]
        for number in [*sorted(older), segment]:
            for block in self._by_segment.get(number, ()):
                for message in block.lying():
                    if message is not None:
                        yield message

    def opened(self, block: Block, count: int, segment: int) -> Block:
        """Where so many messages go that cannot stay in a block of the segment before."""
        other = self._open
        has_room = len(other.messages) + count <= BLOCK_MESSAGES
        if other is block or other.segment != segment or not (has_room and other.live):
            other = Block(self)
            if self._open is block:
                self._open = other
        return other

    def placed(self, block: Block) -> None:
        """A block's first messages have found their segment."""
        self._by_segment.setdefault(block.segment, {})[block] = None

    def forget(self, block: Block) -> None:
        """Nothing in a block is live any more."""
        blocks = self._by_segment.get(block.segment)
        if blocks is not None:
            blocks.pop(block, None)
            if not blocks:
                del self._by_segment[block.segment]
                self.emptied += 1

    def clear(self) -> None:
        """Let go of all messages. For a process that drops an engine and lives on: the garbage
        collector does not see what a message refers to (see StoredMessage), so it would keep them
        all."""
        for blocks in self._by_segment.values():
            for block in blocks:
                block.clear()
        self._open.clear()


def left_by(messages: Iterable[StoredMessage], number: int) -> None:
    """A place does not hold these messages any more, wherever they lie."""
    for block, together in groupby(messages, _block_of):
        if block is not None:
            block.left_by(list(together), number)


def _log_bytes(message: StoredMessage) -> int:
    """About what a message takes in the log."""
    holders = message.holders
    more = 0 if isinstance(holders, int) else len(holders) - 1
    return message.length + RECORD_BYTES + more * HOLDER_BYTES


def _count_of(message: StoredMessage) -> int:
    """How many places hold a message that leaves its block."""
    holders = message.holders
    return 1 if isinstance(holders, int) else len(holders)


def lies_in(message: StoredMessage, segment: int) -> bool:
    """Whether the log has to keep the message in this segment or an older one."""
    block = message.block
    if block is None or not block.has(message):
        return False
    return block.position(message.slot) >> SEGMENT_SHIFT <= segment


def hold(messages: Sequence[StoredMessage], number: int) -> None:
    """A queue or durable subscription holds messages from now on."""
    for message in messages:
        holders = message.holders
        if not holders:
            message.holders = number
        elif isinstance(holders, int):
            message.holders = {holders, number}
        else:
            holders.add(number)


def hold_each(messages: Sequence[StoredMessage], numbers: Sequence[int]) -> None:
    """So many queues or durable subscriptions hold messages from now on."""
    if len(numbers) <= 1:
        for number in numbers:
            hold(messages, number)
        return
    for message in messages:
        holders = message.holders
        here = set[int]()
        if isinstance(holders, set):
            here = holders
        elif holders:
            here = {holders} if isinstance(holders, int) else {*holders}
        here.update(numbers)
        message.holders = here


def hold_together(message: StoredMessage, groups: Sequence[frozenset[int]]) -> None:
    """Very many of them hold a message, beside those that do already."""
    holders = message.holders
    if holders:
        here = {holders} if isinstance(holders, int) else holders
        groups = [*groups, frozenset(here)]
    message.holders = Holders(groups) if groups else 0


def offsets_of(messages: Sequence[StoredMessage], start: int) -> list[int]:
    """Where each message's bytes begin when they follow one another from `start` on."""
    return list(accumulate([m.length for m in messages], initial=start))[:-1]
