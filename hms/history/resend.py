"""Resend: chunks of a run, each in one transaction with the ledger that says so."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import hms
from hms.client.pending_sends import PendingSend
from hms.errors.catalogue import (
    BatchTooLarge,
    CommitInDoubt,
    ConnectionLost,
    FlowControlTimeout,
    ProtocolError,
    QueueFull,
    ReplayTakenOver,
    TransactionRolledBack,
    TransactionTooLarge,
)
from hms.errors.tree import HmsError
from hms.history.ledger import Connect, Entry, Ledger, open_ledger

__all__ = ["NOTHING", "TOO_LARGE", "Chunk", "Pack", "Resender", "smaller", "told"]

ATTEMPTS_MAX = 10
"""So often in a row a chunk is tried when its transaction is lost with the connection."""
PRODUCERS_MAX = 256
"""So many targets keep their producer from one chunk to the next."""


_LOST = (TransactionRolledBack, CommitInDoubt, ConnectionLost, ProtocolError)
"""What is said when the transaction is gone with its connection, or may be; the last by a node that
does not know the connection any more, because another process has taken it over."""


TOO_LARGE = (TransactionTooLarge, BatchTooLarge, QueueFull, FlowControlTimeout)
"""What is said of a chunk of which fewer messages may be taken."""


def smaller(rows_max: int, bytes_max: int, error: HmsError) -> tuple[int, int] | None:
    """How many messages and bytes a chunk may have that fits, behind one that did not; None when
    none can."""
    limit = int(str(error.fields["limit"]))
    if isinstance(error, TransactionTooLarge):
        size = min(limit * 3 // 4, bytes_max // 2)
        return (rows_max, size) if size > 0 else None
    is_full = isinstance(error, QueueFull | FlowControlTimeout)
    room = limit - int(str(error.fields["count"])) if is_full else limit
    if error.fields["key"] == "max_messages":
        rows = min(rows_max - 1, room)
        return (rows, bytes_max) if rows > 0 else None
    size = min(bytes_max // 2, room)
    return (rows_max, size) if size > 0 else None


class Pack(NamedTuple):
    """Messages for one target, as a frame carries them."""

    kind: str
    name: str
    messages: int
    pack: bytes


class Chunk(NamedTuple):
    """What is sent in one transaction: rows of the history from offset first to last; copies and
    files: rows that are left out."""

    first: int
    last: int
    rows: int
    copies: int
    unmarked: int
    packs: Sequence[Pack]
    files: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of CHUNK_SCHEMA."""
        return cls(**{**row, "packs": [Pack(**pack) for pack in row["packs"]]})


NOTHING = Chunk(0, 0, 0, 0, 0, ())
"""A chunk without messages, for an entry of its own."""


class Resender:
    """Sends the chunks of one run; leaving its block disconnects, and rolls an open chunk back.

    entry: how far the run has come; None for a run that is new to the node; connect: as of
    open_ledger().
    """

    def __init__(self, address: str, run: str, connect: Connect | None = None) -> None:
        self._address, self._run, self._connect = address, run, connect
        self._stack = ExitStack()
        self._producers: dict[tuple[str, str], hms.Producer] = {}
        self._ledger: Ledger | None = None
        self.entry: Entry | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def send(self, chunk: Chunk, entry: Entry) -> None:
        """Send a chunk, after which the run has come as far as entry says; confirmed on return.

        Whatever the connection does meanwhile, the chunk is there once. What the node refuses is
        raised, and nothing of the chunk is there then.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._try(chunk, entry)
            except _LOST:
                if attempt == ATTEMPTS_MAX:
                    raise
                if self._is_there(entry):
                    break
            else:
                break
        self.entry = entry

    def reopen(self) -> None:
        """Connect again; what was not committed is rolled back."""
        self._stack.close()
        self._open()

    def _is_there(self, entry: Entry) -> bool:
        """Connect again, and ask the ledger. A third answer comes from another process."""
        before = self.entry
        self.reopen()
        found = self.entry
        if found not in (before, entry):
            raise ReplayTakenOver(run=self._run, next=found.next_offset if found else 0)
        return found == entry

    def _try(self, chunk: Chunk, entry: Entry) -> None:
        assert self._ledger is not None, "inside its block"
        by_place: dict[tuple[str, str], list[Pack]] = {}
        for pack in chunk.packs:
            by_place.setdefault((pack.kind, pack.name), []).append(pack)
        submitted: list[tuple[hms.Producer, list[PendingSend]]] = []
        for place, packs in by_place.items():
            producer = self._producer(place)
            submitted.append(
                (producer, producer.submit_packs([(p.pack, p.messages) for p in packs]))
            )
        self._ledger.note(entry)
        for producer, sends in submitted:
            producer.settle(sends)
        self._ledger.commit()

    def _producer(self, place: tuple[str, str]) -> hms.Producer:
        found = self._producers.pop(place, None)
        if found is None:
            assert self._ledger is not None, "inside its block"
            if len(self._producers) >= PRODUCERS_MAX:
                self._producers.pop(next(iter(self._producers))).close()
            kind, name = place
            destination = hms.Topic(name) if kind == "topic" else hms.Queue(name)
            found = self._ledger.session.producer(destination)
        self._producers[place] = found
        return found

    def _open(self) -> None:
        try:
            self._opened()
        except ProtocolError as error:  # of a node that another process has greeted since
            raise ReplayTakenOver(run=self._run, next=self._next) from error

    @property
    def _next(self) -> int:
        return self.entry.next_offset if self.entry is not None else 0

    def _opened(self) -> None:
        self._producers.clear()
        with ExitStack() as stack:
            self._ledger = stack.enter_context(open_ledger(self._address, self._run, self._connect))
            self.entry = self._ledger.read()
            self._stack = stack.pop_all()


def told(error: HmsError, entry: Entry | None) -> HmsError:
    """An error with a note: how far the run has come."""
    if entry is not None and entry.last_offset is not None:
        error.add_note(
            f"{entry.sent} messages up to offset {entry.last_offset} were sent and confirmed. "
            "The same command goes on behind them; nothing is sent twice."
        )
    return error
