"""Delays: messages that wait, but not before their time (F-D4, F-C9).

A delivery delay counts from the moment at which the node took the message, in a transaction too
(JMS 3.1 §7.9); so a publication goes to those who subscribe at that moment. Until it is due a
message is in its place and in the log like any other, but nobody is given or shown it. Then it
takes the place in the order that it had when it was sent.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hms.engine.messages import StoredMessage
from hms.errors.catalogue import InvalidArgument, MessageFormatError, MessageTooLarge
from hms.wire.packed_messages import (
    FLAG_RETAIN,
    HEAD_BYTES_MAX,
    NODE_DELIVERY_TIME,
    ROW,
    Row,
    decode_head,
    encode_head,
    with_heads,
)

DELAY_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years."""
STAMP_BYTES = 64
"""More than what the time of delivery takes in a head."""
_STALE_MAX = 64
NOT_DELAYED: Mapping[int, int] = {}
"""When messages are due of which none is delayed."""
_DELAY_AT = range(16, 24)
"""Where in a row its delay stands."""

__all__ = [
    "NOT_DELAYED",
    "Delayed",
    "check_delay",
    "due_times",
    "stamped_with_time",
    "time_stamp_bytes",
]


class Delayed:
    """Messages of one line that wait for their time; every step costs O(log n)."""

    __slots__ = ("_arrived", "_heap", "_messages")

    def __init__(self) -> None:
        self._messages: dict[int, tuple[int, StoredMessage]] = {}
        self._heap: list[tuple[int, int, int]] = []
        self._arrived: list[tuple[int, int]] = []
        """Places in the order of arrival, with ids; some are gone."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[StoredMessage]:
        return (message for _, message in self._messages.values())

    def add(self, message: StoredMessage, due_ms: int) -> None:
        """A message waits until that time."""
        self._messages[message.id] = (due_ms, message)
        heapq.heappush(self._heap, (due_ms, message.seq, message.id))
        if len(self._heap) > 2 * len(self._messages) + _STALE_MAX:
            self._heap = [(due, m.seq, m.id) for due, m in self._messages.values()]
            heapq.heapify(self._heap)
        insort(self._arrived, (message.seq, message.id))
        if len(self._arrived) > 2 * len(self._messages) + _STALE_MAX:
            self._arrived = sorted((m.seq, m.id) for _, m in self._messages.values())

    def remove(self, message_id: int) -> bool:
        """A message does not wait any more; whether it did."""
        was_here = self._messages.pop(message_id, None) is not None
        if was_here and not self._messages:  # else next_ms() pops what is gone one by one, at once
            self._heap, self._arrived = [], []
        return was_here

    def arrivals(self, after: int, *, is_newest_first: bool) -> Iterator[StoredMessage]:
        """As they arrived, those after a place in that order, or before it; what is not asked for
        is not looked at. Nothing may come or go meanwhile."""
        if is_newest_first:
            found: Iterable[int] = range(bisect_left(self._arrived, (after, 0)) - 1, -1, -1)
        else:
            found = range(bisect_left(self._arrived, (after + 1, 0)), len(self._arrived))
        before = None
        for at in found:
            seq, message_id = place = self._arrived[at]
            known = self._messages.get(message_id)
            if known is not None and known[1].seq == seq and place != before:
                yield known[1]
            before = place

    def find(self, message_id: int) -> StoredMessage | None:
        """A message that waits for its time."""
        found = self._messages.get(message_id)
        return None if found is None else found[1]

    def due_ms(self, message_id: int) -> int:
        """When a message is due; 0 for one that does not wait for its time."""
        found = self._messages.get(message_id)
        return 0 if found is None else found[0]

    def next_ms(self) -> int | None:
        """When the next one is due."""
        while self._heap and self.due_ms(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int, count_max: int) -> list[StoredMessage]:
        """Messages whose time has come, soonest first; they wait here no more."""
        due: list[StoredMessage] = []
        while len(due) < count_max and (next_ms := self.next_ms()) is not None:
            if next_ms > now_ms:
                break
            due.append(self._messages.pop(heapq.heappop(self._heap)[2])[1])
        return due


def check_delay(row: Row) -> None:
    """Refuse a delay that cannot be kept."""
    if row.delay_ms > DELAY_MS_MAX:
        detail = f"{row.delay_ms} ms are more than a hundred years"
        raise InvalidArgument(what="delivery delay", detail=detail)
    if row.flags & FLAG_RETAIN:
        detail = "what a topic retains is there at once; send it when it is due"
        raise InvalidArgument(what="delivery delay", detail=detail)
    if row.head_bytes > HEAD_BYTES_MAX - STAMP_BYTES:
        raise MessageTooLarge(size=row.head_bytes, limit=HEAD_BYTES_MAX - STAMP_BYTES)


def due_times(rows: Sequence[Row], first_id: int, timestamp_ms: int) -> Mapping[int, int]:
    """When the delayed messages of a batch are due, by their ids."""
    if not sum([row.delay_ms for row in rows]):
        return NOT_DELAYED
    return {first_id + i: timestamp_ms + row.delay_ms for i, row in enumerate(rows) if row.delay_ms}


def time_stamp_bytes(pack: bytes | memoryview, count: int) -> int:
    """What the times of delivery of a batch add to it at most."""
    rows = memoryview(pack)[: count * ROW.size]
    is_delayed = any(bytes(rows[at :: ROW.size]).strip(b"\0") for at in _DELAY_AT)
    return STAMP_BYTES * count if is_delayed else 0


def stamped_with_time(
    rows: Sequence[Row], pack: bytes | memoryview, timestamp_ms: int
) -> tuple[list[Row], memoryview]:
    """The batch with heads that say when their messages are due. A head that cannot be read stays
    as it is: only its reader can judge."""

    def stamped(row: Row, head: bytes) -> bytes:
        return _with_time(head, timestamp_ms + row.delay_ms) if row.delay_ms else head

    return with_heads(rows, pack, stamped)


def _with_time(data: bytes, due_ms: int) -> bytes:
    try:
        head = decode_head(data)
    except MessageFormatError:
        return data
    node = dict(head.node) | {NODE_DELIVERY_TIME: due_ms}
    return encode_head(msgspec.structs.replace(head, node=node))
