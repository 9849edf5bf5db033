"""The rows of the tables, and what one transaction is told to write."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from hms.errors.catalogue import StoreFailed, StoreFenced
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


KEPT_MS = -1
"""In place of a time: it stays as it is."""


class StayChange(NamedTuple):
    """What becomes of a row that is there: if it is out, and if it waits. due_ms: 0 for none."""

    holder: int
    message_id: int
    out_is_out: bool
    out_deliveries: int
    out_attempts: int
    out_due_ms: int
    waiting_is_out: bool
    waiting_deliveries: int
    waiting_attempts: int
    waiting_due_ms: int


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

    def converted(self, number: Callable[[int], int]) -> "BatchRow":
        """With the numbers of 64 bits that clients choose as they are kept, or back."""
        first, forgotten = number(self.first_sequence), number(self.forgotten)
        uid = number(self.client_uid)
        return self._replace(client_uid=uid, first_sequence=first, forgotten=forgotten)


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
    forgotten: Sequence[tuple[int, int, int, int]]
    """Producers none of whose rows is written: what those have to say of the ones before, and the
    last use."""

    def stored(self) -> "MemoryChanges":
        """The same as the tables keep it, where numbers of 64 bits have a sign."""
        return MemoryChanges(
            [(signed(uid), producer, signed(first)) for uid, producer, first in self.batches_gone],
            [(signed(uid), session) for uid, session in self.commits_gone],
            [row.converted(signed) for row in self.batches],
            [row._replace(client_uid=signed(row.client_uid)) for row in self.commits],
            [(signed(uid), one, signed(first), lsn) for uid, one, first, lsn in self.forgotten],
        )


class DefinitionRow(NamedTuple):
    """A place as the log defined it; the readable columns are for operators only."""

    number: int
    kind: str
    name: str
    topic: int
    client_id: str
    selector: str
    definition: bytes


class AuditRow(NamedTuple):
    """A record of the audit, as it stands in the log."""

    number: int
    at_ms: int
    record: bytes


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


def covering(messages: Sequence[tuple[Any, ...]], position: int, size: int) -> bytes | None:
    """So many bytes from that position on, of messages by position; None when there is a gap."""
    if not messages:
        return None
    first = messages[0][0]
    data = b"".join([payload for _, payload in messages])
    ends = accumulate([len(payload) for _, payload in messages], initial=first)
    is_whole = all(at == one[0] for at, one in zip(ends, messages, strict=False))
    found = data[position - first :][:size]
    return found if is_whole and len(found) == size else None


def judge(before: Meta, after: Meta, found: Meta, shown: str) -> None:
    """The fence of a transaction did not hold: it was committed before, which is good, or the store
    is another's. Raises StoreFenced and StoreFailed."""
    if found.epoch != before.epoch:
        raise StoreFenced(path=shown, ours=before.epoch, theirs=found.epoch)
    if found.last_lsn != after.last_lsn:
        detail = f"{shown}: its last sequence number is {found.last_lsn}, not {before.last_lsn}"
        raise StoreFailed(path=shown, detail=detail)


def signed(value: int) -> int:
    """A number of 64 bits without sign, as a database keeps it."""
    return value - 2 * _SIGN if value >= _SIGN else value


def unsigned(value: int) -> int:
    """The same back."""
    return value + 2 * _SIGN if value < 0 else value
