"""The rows of the tables, and what one transaction is told to write."""

from collections.abc import Sequence
from typing import NamedTuple

from hms.store.interface import Parts

_SIGN = 1 << 63


class Entry(NamedTuple):
    """A record in line for the database: its first sequence number and its payload's position."""

    lsn: int
    kind: int
    events: int
    parts: Parts
    length: int
    position: int


class MessageRow(NamedTuple):
    """A message; position says where its head and body begin among all bytes ever appended."""

    position: int
    id: int
    seq: int
    destination: int
    timestamp_ms: int
    expires_at_ms: int
    priority: int
    kind: int
    head_bytes: int
    body_bytes: int


class StayRow(NamedTuple):
    """A message at one queue or durable subscription, the holder."""

    holder: int
    message_id: int
    position: int
    deliveries: int
    attempts: int
    due_ms: int
    is_out: bool


class StayChange(NamedTuple):
    """What becomes of a row that is there: if it is out, and if it waits."""

    holder: int
    message_id: int
    out_is_out: bool
    out_deliveries: int
    out_attempts: int
    out_keeps_due: bool
    waiting_is_out: bool
    waiting_deliveries: int
    waiting_attempts: int
    waiting_keeps_due: bool


class BatchRow(NamedTuple):
    """A batch that was taken from a producer; forgotten: the highest number before those kept."""

    client_uid: int
    producer: int
    first_sequence: int
    first_message_id: int
    timestamp_ms: int
    message_count: int
    forgotten: int
    lsn: int


class CommitRow(NamedTuple):
    """The last commit of a session that took effect."""

    client_uid: int
    session: int
    number: int
    lsn: int


class MemoryChanges(NamedTuple):
    """What changes in the tables of producers and transactions; the first two are keys."""

    batches_gone: Sequence[tuple[int, int, int]]
    commits_gone: Sequence[tuple[int, int]]
    batches: Sequence[BatchRow]
    commits: Sequence[CommitRow]
    forgotten: Sequence[tuple[int, int, int]]
    """Producers none of whose rows is written, and what they have to say of those forgotten."""


class DefinitionRow(NamedTuple):
    """A place as the log defined it; the readable columns are for operators only."""

    number: int
    kind: str
    name: str
    topic: int
    client_id: str
    selector: str
    definition: bytes


class Meta(NamedTuple):
    """What the store knows of itself. now_ms: the latest time that the log spoke of; event: what
    the node last said of itself."""

    node_uid: int
    epoch: int
    last_lsn: int
    next_position: int
    next_number: int
    next_seq: int
    now_ms: int
    event: str
    event_ms: int


def signed(value: int) -> int:
    """A number of 64 bits without sign, as a database keeps it."""
    return value - 2 * _SIGN if value >= _SIGN else value


def unsigned(value: int) -> int:
    """The same back."""
    return value + 2 * _SIGN if value < 0 else value
