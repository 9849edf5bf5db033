"""Chunks: rows of the history made into packs that a producer can send as they are.

This runs in Spark's workers, as many as there are: they read, choose, mark and pack, so that the
one sender of a replay only forwards bytes. A chunk holds rows that follow one another; its packs
are by target, each in the order of the rows. Whoever sends chunk after chunk keeps the order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hms.errors.catalogue import MessageFormatError
from hms.history.events import KINDS
from hms.history.wanted import Into
from hms.wire.packed_messages import (
    HEAD_BYTES_MAX,
    KIND_CARRAY,
    KIND_COMPRESSED,
    KIND_FILE,
    NODE_TOPIC,
    ROW,
    Head,
    decode_head,
    encode_head,
    pack_messages,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CHUNK_SCHEMA", "COLUMNS", "REPLAY_RUN", "Chunker", "Row", "is_file"]

REPLAY_RUN, REPLAY_ORIGIN, REPLAY_ID = "$ReplayRun", "$ReplayOrigin", "$ReplayMessageID"
REPLAY_TIME, REPLAY_OFFSET, REPLAY_TOPIC = "$ReplayTime", "$ReplayOffset", "$ReplayTopic"
"""What a replayed message says of itself: the run that brought it, and where, under which id, when
and at which offset of the history it was before."""

COLUMNS = (
    *("offset", "message_id", "destination", "destination_kind"),
    *("priority", "timestamp", "kind", "head", "body"),
)
"""What is read of a row, in this order."""

CHUNK_SCHEMA = (
    "first bigint, last bigint, rows int, copies int, unmarked int, "
    "packs array<struct<kind: string, name: string, messages: int, pack: binary>>, files int"
)
PACK_MESSAGES, PACK_BYTES = 256, 256 * 1024
"""A pack is a frame; the size of those that the client makes itself."""

_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}


_FILES = (KINDS[KIND_FILE], KINDS[KIND_FILE | KIND_COMPRESSED])


class Row(NamedTuple):
    """A row of the history as it is packed; timestamp: milliseconds since 1970 UTC."""

    offset: int
    message_id: str
    destination: str | None
    destination_kind: str | None
    priority: int | None
    timestamp: int
    kind: str | None
    head: bytes | None
    body: bytes | None


Encoded = tuple[bytes, bytes, bytes]


def is_file(kind: str | None) -> bool:
    """Whether the content of a message is in a file beside the node's log, and not in the history:
    the file goes with the last message that names it, so such a message cannot be sent again."""
    return kind in _FILES


class _Open:
    """A chunk that is being filled."""

    def __init__(self) -> None:
        self.first = self.last = -1
        self.rows = self.copies = self.unmarked = self.files = self.size = 0
        self.messages: dict[tuple[str, str], list[Encoded]] = {}

    def closed(self) -> dict[str, Any]:
        """It as a row of CHUNK_SCHEMA."""
        packs = [
            {"kind": kind, "name": name, "messages": len(part), "pack": pack_messages(part)}
            for (kind, name), messages in self.messages.items()
            for part in _frames(messages)
        ]
        return {
            "first": self.first,
            "last": self.last,
            "rows": self.rows,
            "copies": self.copies,
            "unmarked": self.unmarked,
            "packs": packs,
            "files": self.files,
        }


@dataclass(frozen=True, slots=True)
class Chunker:
    """Makes chunks; called by Spark with the batches of a partition.

    A chunk ends at rows_max rows or bytes_max bytes. takes_copies: also what a replay brought.
    """

    run: str
    into: Into
    rows_max: int
    bytes_max: int
    takes_copies: bool = False

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """A batch of one chunk each."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        schema = _arrow_schema()
        for chunk in self.chunks(row for batch in batches for row in _rows(batch)):
            yield pa.RecordBatch.from_pylist([chunk], schema=schema)

    def chunks(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """Chunks as rows of CHUNK_SCHEMA."""
        chunk = _Open()
        for row in rows:
            self._add(chunk, row)
            seen = chunk.rows + chunk.copies + chunk.files
            if seen >= self.rows_max or chunk.size >= self.bytes_max:
                yield chunk.closed()
                chunk = _Open()
        if chunk.first >= 0:
            yield chunk.closed()

    def _add(self, chunk: _Open, row: Row) -> None:
        if chunk.first < 0:
            chunk.first = row.offset
        chunk.last = row.offset
        if is_file(row.kind):
            chunk.files += 1
            return
        head, body = row.head or b"", row.body or b""
        try:
            known = decode_head(head)
        except MessageFormatError:  # written by another library: it goes as it came
            chunk.unmarked += 1
        else:
            if REPLAY_RUN in known.node and not self.takes_copies:
                chunk.copies += 1
                return
            marked = encode_head(self._marked(known, row))
            is_small = len(marked) <= HEAD_BYTES_MAX
            head, chunk.unmarked = (marked if is_small else head), chunk.unmarked + (not is_small)
        place = self.into.place(row.destination or "", row.destination_kind or "queue")
        kind = _KIND_NUMBERS.get(row.kind or "", KIND_CARRAY)
        said = ROW.pack(len(head), len(body), 0, 0, row.priority or 0, kind, 0, 0)
        chunk.messages.setdefault(place, []).append((said, head, body))
        chunk.rows += 1
        chunk.size += len(head) + len(body)

    def _marked(self, head: Head, row: Row) -> Head:
        """The head with its origin instead of what the node said of the message then."""
        node: dict[str, Any] = {
            REPLAY_RUN: self.run,
            REPLAY_ORIGIN: f"{row.destination_kind}:{row.destination}",
            REPLAY_ID: row.message_id,
            REPLAY_TIME: row.timestamp,
            REPLAY_OFFSET: row.offset,
        }
        if NODE_TOPIC in head.node:
            node[REPLAY_TOPIC] = head.node[NODE_TOPIC]
        own = (head.properties, head.types, head.correlation_id, head.reply_to, head.type)
        return Head(*own, node)


def _arrow_schema() -> "pa.Schema":
    """CHUNK_SCHEMA; a worker has nothing that reads it."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    pack = pa.struct(
        [
            ("kind", pa.string()),
            ("name", pa.string()),
            ("messages", pa.int32()),
            ("pack", pa.binary()),
        ]
    )
    numbers = [("first", pa.int64()), ("last", pa.int64())]
    numbers += [(name, pa.int32()) for name in ("rows", "copies", "unmarked")]
    return pa.schema([*numbers, ("packs", pa.list_(pack)), ("files", pa.int32())])


def _rows(batch: "pa.RecordBatch") -> Iterator[Row]:
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    columns = []
    for name in COLUMNS:
        column = batch.column(name)
        if name == "timestamp":
            column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        columns.append(column.to_pylist())
    yield from map(Row._make, zip(*columns, strict=True))


def _frames(messages: list[Encoded]) -> Iterator[list[Encoded]]:
    part: list[Encoded] = []
    size = 0
    for message in messages:
        more = len(message[1]) + len(message[2])
        if part and (len(part) == PACK_MESSAGES or size + more > PACK_BYTES):
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    yield part
