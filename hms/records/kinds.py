"""The types of records, and why messages leave."""

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec


class RecordType(enum.IntEnum):
    """The types; a number is never used for a second meaning."""

    DEFINED = 1
    UNDEFINED = 2
    SENT = 3
    DELIVERED = 4
    ACKNOWLEDGED = 5
    FAILED = 6
    RELEASED = 7
    DISCARDED = 8
    GROUP = 9
    RESERVED = 10
    DICTIONARY = 11
    NODE = 12
    MOVED = 13
    MEMORY = 14
    PREPARED = 26
    ENDED = 27
    HEURISTIC = 28
    DECIDED = 29
    FORGOTTEN = 30
    OFFERED = 36
    ARRIVED = 37
    OFFER_ENDED = 38
    PEERS = 39
    ENTRIES = 40
    IDENTITY = 41
    AUDIT = 42


class Cause(enum.IntEnum):
    """Why messages left without being acknowledged (P9)."""

    NONE = 0
    EXPIRED = 1
    DEAD_LETTERED = 2
    PURGED = 3
    COLD = 4
    LIMIT = 5
    UNSUBSCRIBED = 6
    MOVED = 7
    REPLACED = 8
    CLEARED = 9
    DELETED = 10
    CANCELLED = 18
    ENDED = 19
    """A schedule has no further occurrence."""


class Landing(Protocol):
    """Who wants to know where messages of a record lie in the store."""

    def landed(self, position: int) -> None:
        """The pack that carries them begins at this position."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; parts are stored one after the other, so that a pack is not copied.

    landings: who is to be told where in the record's payload its messages begin.
    """

    type: RecordType
    events: int
    parts: Sequence[bytes | memoryview]
    landings: Sequence[tuple[Landing, int]] = ()
