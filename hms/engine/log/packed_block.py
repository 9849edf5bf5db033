"""A batch as it lies in the log: a boot makes messages of it when one of them is needed.

A million messages that wait are a few thousand packs, each told of by one record. Most of them
nobody asks for in the first minutes, so a boot keeps what counts: how many messages, how large,
their rows and heads, where they wait, and that none of them is special (no time to live, no delay,
no order or group, no file). Such a batch is a block of the live index and stands in its line as one
(queue/ready_queue.py). It is opened, once and as a whole, when a message of it is delivered, looked
at, moved or settled: one read of what the boot has read just before. Should that read fail, the
bodies stay in the log, as those of memory that is full do (paging.py), and who needs one hears why.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise

from hms.engine.groups.group_marks import may_be_marked
from hms.engine.log.live_index import OWN_BLOCK_MESSAGES, RECORD_BYTES, Block, LiveIndex
from hms.engine.messages import OVERHEAD_BYTES, StoredMessage, make_messages
from hms.errors import HmsError
from hms.records import Sent
from hms.wire.packed_messages import KIND_FILE, ROW, Row, slice_payloads, unpack_rows

__all__ = ["BodyReader", "PackedBlock", "packed"]

BodyReader = Callable[[int, int], bytes]
"""Bytes of the log: so many from a position on, as a store reads them."""
PACKED_MESSAGES = OWN_BLOCK_MESSAGES
"""Smaller batches share blocks, so their messages are made at once."""
_HEADS = b"\xff" * 4 + bytes(ROW.size - 4)
_SPECIAL = bytes(8) + b"\xff" * 16 + bytes(2) + b"\xff" * 6
"""What a row has only of a message that is special: ttl, delay, flags, spare."""
_PRIORITY, _KIND = 24, 25
_PRIORITY_MAX = 9


@cache
def _mask(row: bytes, count: int) -> int:
    return int.from_bytes(row * count, "little")


def packed(record: Sent, blocks: LiveIndex, read: BodyReader) -> "PackedBlock | None":
    """A batch that waits in one place, as a block; None when a message of it has to be seen."""
    count = record.message_count
    if count < PACKED_MESSAGES or record.is_forwarded or len(record.placements) != 1:
        return None
    if record.placements[0].bitmap:
        return None
    table = bytes(record.pack[: ROW.size * count])
    rows = int.from_bytes(table, "little")
    priority, kinds = table[_PRIORITY], table[_KIND :: ROW.size]
    if (
        rows & _mask(_SPECIAL, count)
        or KIND_FILE in kinds
        or priority > _PRIORITY_MAX
        or table[_PRIORITY :: ROW.size].count(priority) != count
    ):
        return None
    heads = _heads_in(record) if rows & _mask(_HEADS, count) else b""
    if heads and may_be_marked(heads):
        return None
    return PackedBlock(blocks, record, table, heads, read)


def _heads_in(record: Sent) -> bytes:
    """All heads, one behind the other."""
    at, pack, heads = ROW.size * record.message_count, record.pack, []
    for head_bytes, body_bytes, *_ in record.rows():
        heads.append(pack[at : at + head_bytes])
        at += head_bytes + body_bytes
    return b"".join(heads)


class PackedBlock(Block):
    """All messages of a batch, which wait at one place; see the module."""

    __slots__ = (
        "_heads",
        "_length",
        "_number",
        "_read",
        "_standing",
        "_table",
        "_timestamp_ms",
        "count",
        "first_id",
        "first_seq",
        "is_open",
        "priority",
        "size_bytes",
    )

    def __init__(
        self, blocks: LiveIndex, record: Sent, table: bytes, heads: bytes, read: BodyReader
    ) -> None:
        super().__init__(blocks)
        self._number, self._timestamp_ms = record.placements[0].number, record.timestamp_ms
        self._table, self._heads, self._read = table, heads, read
        self._standing: list[StoredMessage] = []
        self.first_id, self.first_seq = record.first_message_id, record.first_seq
        self.count = self.live = record.message_count
        self.priority = table[_PRIORITY]
        self.is_open = False
        self._length = len(record.pack) - len(table)
        self.live_bytes = self._length + RECORD_BYTES * self.count
        self.size_bytes = self._length + OVERHEAD_BYTES * self.count
        """What its messages count in quotas."""

    @property
    def last_id(self) -> int:
        """Of its last message."""
        return self.first_id + self.count - 1

    @property
    def last_seq(self) -> int:
        """Of its last message."""
        return self.first_seq + self.count - 1

    def opened(self, *, is_resident: bool = True) -> list[StoredMessage]:
        """All its messages, in order; they are made when this is called first, and lie in the
        block then. is_resident: with their bodies. Later those that have left the line are missing
        that swept() has been given."""
        if not self.is_open:
            self.is_open = True
            found = self._with_bodies() if is_resident else None
            messages = self._without_bodies() if found is None else found
            for slot, message in enumerate(messages):
                message.block = self
                message.slot = slot
            self.messages = list(messages)
            self.offsets = _offsets([message.length for message in messages])
            self._standing = messages
            self._table = self._heads = b""
        return self._standing

    def _with_bodies(self) -> list[StoredMessage] | None:
        rows_bytes = len(self._table)
        try:
            pack = self._read(self.base - rows_bytes, rows_bytes + self._length)
        except (HmsError, LookupError):
            return None
        rows = unpack_rows(pack, self.count)
        return self._made(rows, slice_payloads(pack, rows))

    def _without_bodies(self) -> list[StoredMessage]:
        rows = self._rows()
        ends = list(accumulate([row.head_bytes for row in rows], initial=0))
        messages = self._made(rows, [self._heads[a:b] for a, b in pairwise(ends)])
        for row, message in zip(rows, messages, strict=True):
            message.length += row.body_bytes
            if message.is_paged:
                self._blocks.paged(message, 1)
        return messages

    def _rows(self) -> list[Row]:
        return [Row(*row) for row in ROW.iter_unpack(self._table)]

    def _made(self, rows: Sequence[Row], payloads: Sequence[bytes]) -> list[StoredMessage]:
        return make_messages(
            rows,
            payloads,
            self.first_id,
            self.first_seq,
            self._timestamp_ms,
            is_persistent=True,
            holder=self._number,
        )

    def left_whole(self) -> None:
        """Nobody needs a message of it, and nobody has opened it."""
        self._blocks.leave_whole(self)

    def swept(self, gone: set[int]) -> None:
        """Those at these places in the order of arrival do not stand in the line any more."""
        self._standing = [m for m in self._standing if m.seq not in gone]

    def lying(self) -> Sequence[StoredMessage | None]:
        """The messages in its slots."""
        self.opened()
        return self.messages

    def waiting_as_told(self) -> tuple[int, list[int], list[int]] | None:
        """The place where all of them wait, their ids, and their positions; None when somebody may
        have taken one."""
        if self.is_open:
            return None
        offsets = _offsets([row.head_bytes + row.body_bytes for row in self._rows()])
        ids = list(range(self.first_id, self.first_id + self.count))
        return self._number, ids, [self.base + offset for offset in offsets]

    def clear(self) -> None:
        """Let go of all messages."""
        super().clear()
        self._standing = []


def _offsets(lengths: Sequence[int]) -> "array[int]":
    return array("Q", list(accumulate(lengths, initial=0))[:-1])
