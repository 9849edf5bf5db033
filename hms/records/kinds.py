"""The types of records, and why messages leave.

DEFINED     a queue, topic or durable subscription and the number it has in the log
UNDEFINED   the same is gone
SENT        a batch of messages as the client packed it, and the places where each one waits
DELIVERED   ranges of messages were handed to a consumer
ACKNOWLEDGED, FAILED, RELEASED   what became of them; FAILED counts as an attempt
DISCARDED   messages left for another cause: see Cause
GROUP       records that take effect together or not at all: a commit, a dead-lettering
RESERVED    message ids below this number may have been given away
DICTIONARY  first record of every segment: all definitions and numbers so far
NODE        the node booted or stopped
MOVED       messages as they are, written again so that an old segment can be released
PINNED      the same of messages that stay where they lie, in a segment behind the log
MEMORY      sends and commits that were taken, written again for the same reason
PREPARED    a branch of a distributed transaction waits for its outcome; ENDED: it is gone
HEURISTIC   an operator completed it, and its transaction manager does not know that yet
DECIDED     a distributed transaction is to be committed; FORGOTTEN: it is, everywhere
OFFERED, ARRIVED, OFFER_ENDED   how messages go from one node's queue to another's
ENTRIES     what was created, altered and deleted at run time at any node of the cluster
PEERS       offers that were made and taken, written at boot and again for the same reason
IDENTITY    the identity of the store and of the boots that wrote it, at each boot
AUDIT       who did or asked what, in a chain of hashes
"""

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
    PINNED = 43


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


class LogPosition(Protocol):
    """Is notified of the position in the log at which messages of a record are written."""

    def placed(self, position: int) -> None:
        """The messages begin at this position."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; parts are stored one after the other, so that a pack is not copied.

    log_positions: who is notified, each with the offset of its messages in the payload.
    """

    type: RecordType
    events: int
    parts: Sequence[bytes | memoryview]
    log_positions: Sequence[tuple[LogPosition, int]] = ()
