"""A batch as it lies in the log: a boot makes messages of it when one of them is needed.

A million messages that wait are a few thousand packs, each told of by one record. Most of them
nobody asks for in the first minutes, so a boot keeps what counts: how many messages, how large,
their rows and heads, where they wait, and that none of them is special (no time to live, no delay,
no order or group, no file). Such a batch is a block of the live index and stands in its line as one
(queue/ready_queue.py). It is opened, once and as a whole, when a message of it is delivered, looked
at, moved or settled: one read of what the boot has read just before. Should that read fail, the
bodies stay in the log, as those of memory that is full do (paging.py), and who needs one hears why.
Messages that were sent one by one and lie close together are such a batch too.
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
from hms.wire.record_runs import SingleSends

__all__ = ["BodyReader", "PackedBlock", "PackedSends", "packed", "packed_sends"]

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
    first_id, first_seq = record.first_message_id, record.first_seq
    ids, seqs = range(first_id, first_id + count), range(first_seq, first_seq + count)
    size = len(record.pack) - len(table)
    return PackedBlock(
        blocks,
        record.placements[0].number,
        ids,
        seqs,
        record.timestamp_ms,
        table,
        heads,
        size,
        read,
    )


def packed_sends(sends: SingleSends, blocks: LiveIndex, read: BodyReader) -> "PackedSends | None":
    """Messages that were sent one by one and wait in one place, as a block; None when a message of
    them has to be seen."""
    if sends.heads and may_be_marked(sends.heads):
        return None
    return PackedSends(blocks, sends, read)


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
        "_ids",
        "_length",
        "_number",
        "_read",
        "_seqs",
        "_table",
        "_timestamp_ms",
        "_waiting",
        "count",
        "first_id",
        "first_seq",
        "has_gaps",
        "is_open",
        "last_id",
        "last_seq",
        "priority",
        "size_bytes",
    )

    def __init__(
        self,
        blocks: LiveIndex,
        number: int,
        ids: Sequence[int],
        seqs: Sequence[int],
        timestamp_ms: int,
        table: bytes,
        heads: bytes,
        size: int,
        read: BodyReader,
    ) -> None:
        super().__init__(blocks)
        self._number, self._timestamp_ms = number, timestamp_ms
        self._ids, self._seqs = ids, seqs
        self._table, self._heads, self._read = table, heads, read
        self._waiting: list[StoredMessage] = []
        self.first_id, self.last_id = ids[0], ids[-1]
        self.first_seq, self.last_seq = seqs[0], seqs[-1]
        self.count = self.live = len(ids)
        self.priority = table[_PRIORITY]
        self.has_gaps = self.last_seq - self.first_seq >= self.count
        """Other messages may have arrived between its first and its last one."""
        self.is_open = False
        self._length = size
        self.live_bytes = size + RECORD_BYTES * self.count
        self.size_bytes = size + OVERHEAD_BYTES * self.count
        """What its messages count in quotas."""

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
            self.offsets = self._offsets_in_log()
            self.messages = list(messages)
            self._waiting = messages
            self._table = self._heads = b""
        return self._waiting

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

    def _offsets_in_log(self) -> "array[int]":
        """Where each message begins behind the first one; asked while the rows are known."""
        return _offsets([row.head_bytes + row.body_bytes for row in self._rows()])

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
        """Nobody needs a message of it, and none has left."""
        if self.is_open:  # without bodies, as memory was full: these are counted
            self.left_by(self._waiting, self._number)
        else:
            self._blocks.leave_whole(self)

    def swept(self, gone: set[int]) -> None:
        """Those at these places in the order of arrival do not stand in the line any more."""
        self._waiting = [m for m in self._waiting if m.seq not in gone]

    def lying(self) -> Sequence[StoredMessage | None]:
        """The messages in its slots."""
        self.opened()
        return self.messages

    def waiting_as_told(self) -> tuple[int, list[int], list[int]] | None:
        """The place where all of them wait, their ids, and their positions; None when somebody may
        have taken one."""
        if self.is_open:
            return None
        positions = [self.base + offset for offset in self._offsets_in_log()]
        return self._number, list(self._ids), positions

    def clear(self) -> None:
        """Let go of all messages."""
        super().clear()
        self._waiting = []


class PackedSends(PackedBlock):
    """The same of messages that were sent one by one: each has a record and a time of its own, and
    others may lie between them."""

    __slots__ = ("_places", "_times_ms")

    def __init__(self, blocks: LiveIndex, sends: SingleSends, read: BodyReader) -> None:
        ids, seqs = _dense(sends.ids), _dense(sends.seqs)
        sizes = sends.row_sizes
        size = sum(sizes[0::8]) + sum(sizes[1::8])
        table, heads = sends.rows, sends.heads
        super().__init__(blocks, sends.number, ids, seqs, 0, table, heads, size, read)
        first = sends.positions[0]
        self._places = array("I", [at - first for at in sends.positions])
        self._times_ms = sends.times_ms

    def _with_bodies(self) -> list[StoredMessage] | None:
        rows = self._rows()
        lengths = [row.head_bytes + row.body_bytes for row in rows]
        try:
            log = self._read(self.base, self._places[-1] + lengths[-1])
        except (HmsError, LookupError):
            return None
        ends = zip(self._places, lengths, strict=True)
        return self._made(rows, [log[at : at + length] for at, length in ends])

    def _offsets_in_log(self) -> "array[int]":
        return array("Q", self._places)

    def _made(self, rows: Sequence[Row], payloads: Sequence[bytes]) -> list[StoredMessage]:
        each = zip(self._ids, self._seqs, self._times_ms, rows, payloads, strict=True)
        of, made = StoredMessage.of, []
        for id_, seq, at_ms, row, payload in each:
            message = of(
                id_,
                seq,
                at_ms,
                0,
                row.priority,
                row.kind,
                row.head_bytes,
                payload,
                is_persistent=True,
            )
            message.holders = self._number
            made.append(message)
        return made


def _dense(numbers: "array[int]") -> Sequence[int]:
    """The same numbers; when they follow one another they take no memory."""
    first, last = numbers[0], numbers[-1]
    return range(first, last + 1) if last - first == len(numbers) - 1 else numbers


def _offsets(lengths: Sequence[int]) -> "array[int]":
    return array("Q", list(accumulate(lengths, initial=0))[:-1])
