"""A message as it waits: what the rules need of it, and its head and body as opaque bytes."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

import msgspec

from hms.errors.catalogue import MessageFormatError
from hms.wire.packed_messages import Head, Row, decode_head

OF_COMMIT = -1
"""The slot of a message that is in memory only and may not be seen before the log is durable: it
came by a transaction, or its id was reserved just now."""
OVERHEAD_BYTES = 250
"""What a waiting message costs beside its payload; measured in bench/, counted in the quota."""


class LogBlock(Protocol):
    """The messages of the log that a message lies among; see log/live_index.py."""

    def left(self, message: "StoredMessage", number: int) -> None:
        """A place does not hold the message any more."""

    def left_by(self, messages: "Sequence[StoredMessage]", number: int) -> None:
        """A place does not hold these any more, all of this block."""

    def free(self, message: "StoredMessage") -> None:
        """Nobody needs the message here."""

    def keep(self, message: "StoredMessage", number: int) -> None:
        """A place that let go of the message holds it again."""

    def position(self, slot: int) -> int:
        """Where the head and body of the message in this slot begin."""

    def has(self, message: "StoredMessage") -> bool:
        """The log has to keep the message here."""


class Holders:
    """The many places in the log that hold a message. Those of a publication are the same for all
    its messages, so they are there once; who has let go of one is noted with that message alone."""

    __slots__ = ("_count", "_gone", "_groups")

    def __init__(self, groups: Sequence[frozenset[int]]) -> None:
        """groups: no number is in two of them."""
        self._groups = groups
        self._count = sum([len(group) for group in groups])
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return self._count - len(self._gone)

    def __iter__(self) -> Iterator[int]:
        gone = self._gone
        return (number for group in self._groups for number in group if number not in gone)

    def __contains__(self, number: object) -> bool:
        return number not in self._gone and any(number in group for group in self._groups)

    def add(self, number: int) -> None:
        """One more holds it, or one again that had let go of it."""
        if number in self._gone:
            self._gone.discard(number)
        elif number not in self:
            self._groups = [*self._groups, frozenset((number,))]
            self._count += 1

    def discard(self, number: int) -> None:
        """One of them lets go of it."""
        self._gone.add(number)


class StoredMessage(msgspec.Struct, gc=False, eq=False):
    """One message, shared by all the places where it waits.

    seq is its place in the order of arrival, id what the world knows it by. expires_at_ms 0: never.
    length: bytes of head and body. block and slot: where the log has it, None when it need not be
    kept there; holders: the number of the place in the log that holds it, or of all of them.

    The garbage collector does not see messages: millions may wait, and to walk them again and again
    was a fifth of a busy node's time. The one circle that they are part of, a block and its
    messages, ends with the last place that holds them, or with Blocks.clear().
    """

    id: int
    seq: int
    timestamp_ms: int
    expires_at_ms: int
    priority: int
    kind: int
    head_bytes: int
    payload: bytes
    is_persistent: bool
    length: int
    block: LogBlock | None = None
    slot: int = 0
    holders: int | set[int] | Holders = 0

    @staticmethod
    def of(
        id_: int,
        seq: int,
        timestamp_ms: int,
        expires_at_ms: int,
        priority: int,
        kind: int,
        head_bytes: int,
        payload: bytes,
        is_persistent: bool,
    ) -> "StoredMessage":
        """A message of that head and body, which the log does not know yet."""
        return StoredMessage(
            id_,
            seq,
            timestamp_ms,
            expires_at_ms,
            priority,
            kind,
            head_bytes,
            payload,
            is_persistent,
            len(payload),
        )

    def came(self) -> None:
        """It begins to wait at a place; told only to those that name files, see
        file_references.py."""

    def went(self) -> None:
        """It has left a place for good. Told as above."""

    @property
    def is_paged(self) -> bool:
        """Its body is in the log only."""
        return len(self.payload) != self.length

    @property
    def size_bytes(self) -> int:
        """What it counts in quotas."""
        return self.length + OVERHEAD_BYTES

    def head(self) -> Head:
        """Its head, decoded; an unreadable one counts as empty: only its reader can judge."""
        try:
            return decode_head(self.payload[: self.head_bytes])
        except MessageFormatError:
            return Head()


class ReadyCopy(NamedTuple):
    """A copy, and its record as it stands in a group; offset: where the message begins there. The
    record of a copy that the log is not told of is empty."""

    message: StoredMessage
    record: bytes
    offset: int


length_of: Callable[[StoredMessage], int] = attrgetter("length")
id_of: Callable[[StoredMessage], int] = attrgetter("id")


def sizes_of(messages: Sequence[StoredMessage]) -> int:
    """What messages count in quotas."""
    return sum(map(length_of, messages)) + OVERHEAD_BYTES * len(messages)


def make_messages(
    rows: Sequence[Row],
    payloads: Sequence[bytes],
    first_id: int,
    first_seq: int,
    timestamp_ms: int,
    is_persistent: bool,
    holder: int = 0,
) -> list[StoredMessage]:
    """The messages of a batch; ids and places in the order follow one another."""
    messages = []
    for (head_bytes, _, ttl_ms, _, priority, kind, _, _), payload in zip(
        rows, payloads, strict=True
    ):
        messages.append(
            StoredMessage(
                first_id,
                first_seq,
                timestamp_ms,
                timestamp_ms + ttl_ms if ttl_ms else 0,
                priority,
                kind,
                head_bytes,
                payload,
                is_persistent,
                len(payload),
                None,
                0,
                holder,
            )
        )
        first_id += 1
        first_seq += 1
    return messages


def message_id_text(message_id: int) -> str:
    """A message id as the world sees it: 12 hexadecimal digits (F-D5)."""
    return f"{message_id:012x}"
