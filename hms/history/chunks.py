"""Chunks: rows of the history made into packs that a producer can send as they are.

This runs in Spark's workers, as many as there are: they read, choose, mark and pack, so that the
one sender of a replay only forwards bytes. A chunk holds rows that follow one another; its packs
are by target, each in the order of the rows. A sender of chunk after chunk keeps the order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
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

__all__ = ["CHUNK_SCHEMA", "COLUMNS", "REPLAY_RUN", "Chunker", "Row", "is_file", "rows_in"]

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


_row = partial(tuple.__new__, Row)
"""Row._make without its check of the length."""
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
        for chunk in self.chunks(row for batch in batches for row in rows_in(batch)):
            yield pa.RecordBatch.from_pylist([chunk], schema=schema)

    def chunks(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """Chunks as rows of CHUNK_SCHEMA."""
        chunk, places = _Open(), _Places(self.into)
        for row in rows:
            self._add(chunk, row, places)
            seen = chunk.rows + chunk.copies + chunk.files
            if seen >= self.rows_max or chunk.size >= self.bytes_max:
                yield chunk.closed()
                chunk = _Open()
        if chunk.first >= 0:
            yield chunk.closed()

    def _add(self, chunk: _Open, row: Row, places: "_Places") -> None:
        """The loop of a replay: what is the same for many messages is made once."""
        offset, id_, destination, destination_kind, priority, timestamp, kind, head, body = row
        if chunk.first < 0:
            chunk.first = offset
        chunk.last = offset
        if kind in _FILES:
            chunk.files += 1
            return
        place, origin = places[destination, destination_kind]
        head, body = head or b"", body or b""
        try:
            known = decode_head(head)
        except MessageFormatError:  # written by another library: it goes as it came
            chunk.unmarked += 1
        else:
            node = known.node
            if REPLAY_RUN in node and not self.takes_copies:
                chunk.copies += 1
                return
            said = self._said(origin, id_, timestamp, offset)
            if NODE_TOPIC in node:
                said[REPLAY_TOPIC] = node[NODE_TOPIC]
            own = (known.properties, known.types, known.correlation_id, known.reply_to, known.type)
            marked = encode_head(Head(*own, said))
            if len(marked) <= HEAD_BYTES_MAX:
                head = marked
            else:
                chunk.unmarked += 1
        number = _KIND_NUMBERS.get(kind or "", KIND_CARRAY)
        table = ROW.pack(len(head), len(body), 0, 0, priority or 0, number, 0, 0)
        messages = chunk.messages.get(place)
        if messages is None:
            messages = chunk.messages[place] = []
        messages.append((table, head, body))
        chunk.rows += 1
        chunk.size += len(head) + len(body)

    def _said(self, origin: str, id_: str, timestamp: int, offset: int) -> dict[str, Any]:
        """The origin of a message, instead of what the node said of it then."""
        return {
            REPLAY_RUN: self.run,
            REPLAY_ORIGIN: origin,
            REPLAY_ID: id_,
            REPLAY_TIME: timestamp,
            REPLAY_OFFSET: offset,
        }


class _Places(dict[tuple[str | None, str | None], tuple[tuple[str, str], str]]):
    """Where the messages of each destination go, and what they say that it was."""

    def __init__(self, into: Into) -> None:
        super().__init__()
        self._into = into

    def __missing__(self, key: tuple[str | None, str | None]) -> tuple[tuple[str, str], str]:
        destination, kind = key
        found = self._into.place(destination or "", kind or "queue"), f"{kind}:{destination}"
        self[key] = found
        return found


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


def rows_in(batch: "pa.RecordBatch") -> Iterator[Row]:
    """The rows of a batch of COLUMNS."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    columns = []
    for name in COLUMNS:
        column = batch.column(name)
        if name == "timestamp":
            column = column.cast(pa.timestamp("ms")).cast(pa.int64())
        columns.append(column.to_pylist())
    yield from map(_row, zip(*columns, strict=True))


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
