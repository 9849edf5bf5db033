"""The one interface of every store: a log of records in one order (P2), durable when said so (P1).

A record is (kind, count, parts). The store lays the parts behind one another and gives the record
`count` consecutive log sequence numbers.

    open -> recover (to its end) -> start -> append ... commit ... maintain -> close

A *position* says where bytes of a record lie: the segment in the upper bits, from SEGMENT_SHIFT
on, the offset in it below. The log is a ring of segments: what is still needed of the oldest one
is told again (next_to_clean, cleaned), then the store lets it go. Live messages are appended again,
or, where there are many, told of as they lie: their segment is then *pinned*, and stays behind the
log until nothing in it is live (pin, emptied).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from hms.errors.tree import FieldValue
from hms.wire.record_runs import NO_RUNS

Parts = Sequence[bytes | memoryview]
SEGMENT_SHIFT = 32
StoredRecord = tuple[int, int, int, memoryview, int]
"""First sequence number, kind, count, payload, the payload's position. A payload keeps megabytes
of the log in memory as long as it lives: copy what is to stay."""
DictionaryMaker = Callable[[], tuple[int, int, Parts]]
"""Gives the record that opens every segment, as it is to be at the moment of the call."""


class LiveData(Protocol):
    """What is live in the log, as the engine knows it; every thread may ask."""

    def live_bytes(self) -> int:
        """In the whole log."""

    def live_bytes_in(self, segment: int) -> int:
        """In one segment."""


class CleaningStep(NamedTuple):
    """What is to be cleaned next: a segment whose live messages are appended again, or, is_pinned,
    told of as they lie."""

    segment: int
    is_pinned: bool


class SegmentGoneError(LookupError):
    """A segment was let go; what was needed of it lies elsewhere."""


class LogGrowth(NamedTuple):
    """The oldest and the newest segment, and how much more the log takes than it should."""

    oldest: int
    newest: int
    excess_bytes: int


class Store(Protocol):
    """What the node needs of a store; a method that raises StoreFailed leaves it dead."""

    @property
    def last_lsn(self) -> int:
        """The last sequence number given away, 0 before the first."""

    @property
    def durable_lsn(self) -> int:
        """Everything up to this sequence number is safe."""

    @property
    def appended_bytes(self) -> int:
        """What all records so far take."""

    @property
    def safe_bytes(self) -> int:
        """What those of them take that are synced."""

    @property
    def backlog_bytes(self) -> int:
        """The difference: appended and not yet synced."""

    @property
    def look_bytes(self) -> int:
        """How many bytes are committed before somebody has to look again whether maintenance or
        cleaning is due; 0: after each commit. Each tick looks in any case."""

    @property
    def sync_s(self) -> float:
        """How long the last sync of a commit took; 0 where a database does it."""

    @property
    def is_waiting_for_space(self) -> bool:
        """The next segment is not ready yet, the present one nearly full: slow the senders."""

    @property
    def needs_maintenance(self) -> bool:
        """A storage worker should call maintain()."""

    def recover(self, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
        """Every record in order; to be exhausted once before start(). runs_of: of this kind some
        may come as a run, see hms/wire/record_runs.py.

        Raises StoreCorrupt, StoreFormatUnknown or StoreUnavailable, and has then changed nothing.
        """

    @property
    def recovery_bytes(self) -> int:
        """What recover() reads in all, once it has begun; 0 when nobody knows."""

    def start(self, dictionary: DictionaryMaker) -> None:
        """Begin to write, in a part of the log of this boot's own."""

    def append(self, kind: int, count: int, parts: Parts) -> int:
        """Put a record in line; the position of its payload.

        Never waits. Raises RecordTooLarge, and has then changed nothing.
        """

    def commit(self) -> int:
        """Write and sync all that waits; the durable sequence number. One caller at a time."""

    def sends_refused(self) -> str | None:
        """Why new persistent messages must be refused, or None (P10)."""

    def maintain(self, read_lsn: int | None = None) -> None:
        """Prepare space ahead of time; to be called by a storage worker. read_lsn: bodies of what
        left up to there are read by nobody any more; None: of all that is durable."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes of a record that is durable.

        Raises StoreFailed, and SegmentGoneError when its segment was let go: what was needed of it
        lies elsewhere by now.
        """

    @property
    def newest_segment(self) -> int:
        """The segment that is written now: all before it are safe."""

    def pinned_records(self, segment: int, runs_of: int = NO_RUNS) -> Iterator[StoredRecord]:
        """The records of a segment that is pinned; after recover() was read to its end. runs_of: as
        there.

        Raises SegmentGoneError when there is none, StoreCorrupt where a record does not verify.
        """

    def pin(self, segments: Iterable[int]) -> None:
        """These hold live messages that records name as they lie. Before the segment is cleaned,
        and at boot before start()."""

    def emptied(self, segments: Iterable[int]) -> None:
        """Nothing in these pinned segments is live, as the records appended so far say."""

    def next_to_clean(self, live: LiveData) -> CleaningStep | None:
        """What is to be cleaned, when the log has grown beyond what it should take, or space is
        wanted."""

    def may_stay(self, segment: int, live_bytes: int) -> bool:
        """Whether a pinned segment with so much in it stays, when it has to be told of again."""

    def expect(self, owed_bytes: int) -> None:
        """What messages in the log will yet have it take before they have left: room is to be kept
        for that."""

    @property
    def is_turn_due(self) -> bool:
        """A new segment would let many old ones go at once; several, where space is scarce."""

    def turn(self) -> bool:
        """Let the next record begin a new segment when that is due; whether it will."""

    def seal(self) -> int | None:
        """Let the next record begin a new segment; its sequence number. None while there is no room
        for one; a store without segments has nothing to do."""

    def growth(self) -> LogGrowth | None:
        """How the log stands to what it should take; None for a store without segments."""

    def finalize(self) -> tuple[int, int] | None:
        """Let the next record begin a part of the log in the newest format, unless this is one: the
        release before cannot read the log from then on. The format before and the newest one; None
        while there is no room."""

    def leave(self, until: int) -> int:
        """The segments before this one are to leave the log; the first one that has not been told
        again yet. A store without segments tells of none. InvalidArgument for one that is not begun
        soon."""

    def adopt(self, segment: int) -> None:
        """A copy of a segment that has left the log, in which erased messages are blank, takes its
        place soon."""

    def spent(self, lengths: Iterable[int]) -> None:
        """Payloads of such lengths were appended for the sake of cleaning."""

    def cleaned(self, segment: int) -> None:
        """Everything needed of this segment and the older ones has been told again."""

    def describe(self) -> dict[str, FieldValue]:
        """Figures for operators."""

    def close(self) -> None:
        """Let go of the store; what was not committed is dropped."""
