"""Packed messages: many messages as one run of bytes, from socket to log to socket.

Layout (little-endian), documented for other languages in docs/reference/protocol.md:

    pack      = row * count, then (head, body) of each message in the same order
    row       = what the sender says of one message, ROW, 32 bytes
    delivered = row the node sends to a consumer, DELIVERED_ROW, 48 bytes

A head is the msgpack array that `Head` describes, or nothing when the message has neither
properties nor header fields. A body is opaque. Rows stand together, so that a batch is decoded by
one call.

The inner loops are compiled where this package was built with a C compiler (_native.c, and
_native_columns.c for the history). The same in Python stands here: it runs where that is not so, or
where HMS_PURE is set, and it finds the fault in what does not add up.
"""

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hms.errors.catalogue import MessageFormatError

_native: Any = None
if not os.environ.get("HMS_PURE"):
    try:
        from hms.wire import _native
    except ImportError:  # built without a C compiler
        _native = None

IS_NATIVE: Final = _native is not None
"""Whether the inner loops are compiled."""
native: Final = _native
"""The compiled loops of other modules; None where nothing is compiled."""

PLAIN: Final[dict[str, Callable[..., Any]]] = {}
"""What was there before, by name; for proofs."""
_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def quicker(name: str, *bound: Any) -> Callable[[_Loop], _Loop]:
    """The compiled loop of that name, with what it gets first, before the same in Python: which it
    asks, without a call of its own, only for what does not add up."""

    def chosen(plain: _Loop) -> _Loop:
        quick, either = getattr(_native, name, None), getattr(_native, "either", None)
        if quick is None or either is None:  # or it was built before there were these
            return plain
        PLAIN[name] = plain
        both: _Loop = either(partial(quick, *bound) if bound else quick, plain)
        return both

    return chosen


message_columns: Final[Callable[..., tuple[Any, ...] | None] | None] = getattr(
    _native, "message_columns", None
)
"""The buffers of Arrow arrays, see hms.history.message_arrays; None where nothing is compiled, or
was before there was this one."""

ROW = struct.Struct("<IIQQBBBxI")
"""head_bytes, body_bytes, ttl_ms (0 never), delay_ms, priority, kind, flags, spare."""

DELIVERED_ROW = struct.Struct("<QQQIIIBBBxQ")
"""message_id, timestamp_ms, expires_at_ms, delivery_count, head_bytes, body_bytes, priority, kind,
flags."""

HEAD_BYTES_MAX = 64 * 1024
"""What a sender may say in a head."""
HEAD_BYTES_READ_MAX = HEAD_BYTES_MAX + 4096
"""The same with what nodes add, such as why a message is a dead letter."""
PRIORITY_DEFAULT = 4

KIND_CARRAY, KIND_TEXT, KIND_MAP, KIND_STREAM, KIND_OBJECT, KIND_FILE, KIND_NONE = range(7)

KIND_COMPRESSED = 16
"""In a kind, beside what the body is: its bytes are compressed, see hms.client.compression."""
KIND_MASK = 15

FLAG_PERSISTENT = 1
"""In a delivered row: the message is persistent."""
FLAG_RETAIN = 2
"""In a sender's row: the topic keeps the message for those who subscribe later."""
FLAG_IN_FLIGHT = 8
"""In a browsed row: the message is at a consumer, and not settled yet."""
FLAG_ORDER = 16
"""In a sender's row: the message belongs to the global order that its property names (F-C16)."""
FLAG_PART, FLAG_LAST = 32, 64
"""In a delivered row: the message is part of a list, and the last one of it (F-C17)."""
PROPERTY_GLOBAL_ORDER, NODE_ORDER_CLOCK = "JMS_HMS_GlobalOrder", "$GlobalOrderClock"
"""The name of its global order, and the time of that order at which the node took it."""
NODE_TOPIC, NODE_RETAINED = "$Topic", "$IsRetained"
"""What the node adds to a head: on which topic a message was published where its reader may not
know, and that it was retained and is not news."""
NODE_PUBLISHER = "$Publisher"
"""Of what is retained: which client published it, as the node knows it again."""
NODE_USER, NODE_CLIENT = "$UserID", "$Client"
"""Of a node with sender_identity: the user whose login sent a message, and that one's client."""
NODE_FILE, NODE_FILE_BYTES, NODE_FILE_DIGEST, NODE_FILE_NAME, NODE_FILE_URL = (
    "$File",
    "$FileBytes",
    "$FileDigest",
    "$FileName",
    "$FileUrl",
)
"""What the head of a file message says: the file at the node, its size, its SHA-256, the name it
had at its sender, and, if only that was to be handed over, where the node keeps it."""
NODE_RESTORED = "$RestoredFrom"
"""What a client adds of a node that said so: the backup that the message comes from."""
ID_COUNTER_BITS = 40
"""Of an id; above them stands the index of the node that gave it."""
NODE_DELIVERY_TIME = "$DeliveryTime"
"""And before which time, in milliseconds since 1970 UTC, it is delivered to nobody."""
NODE_IMPORTED_ID, NODE_IMPORTED_TIME = "$ImportedID", "$ImportedTime"
"""What a message that is imported says until it has taken its former id and time of sending; behind
the id stands a secret of its import, so that no other sender's message takes one. Id 0: it keeps
the one that it has."""
NODE_IMPORTED_DUE = "$ImportedDue"
"""And its former time of delivery, where it had one."""


class Head(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """Properties and header fields of a message.

    types: one code per property, in order, of HMS_CHAR … HMS_CARRAY or 9 for a boolean; empty when
    every type follows from its value (see field_buffer.types.infer_type).
    node: what the node itself adds, such as why a message became a dead letter.
    """

    properties: dict[str, Any] = {}
    types: bytes = b""
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    node: dict[str, Any] = {}


class Row(NamedTuple):
    """A decoded ROW."""

    head_bytes: int
    body_bytes: int
    ttl_ms: int = 0
    delay_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    kind: int = KIND_CARRAY
    flags: int = 0
    spare: int = 0


class DeliveredRow(NamedTuple):
    """A decoded DELIVERED_ROW. Times are milliseconds since 1970 UTC; expires_at_ms 0 is never.
    fencing_token: the position in the log of the record of this delivery; 0 for none."""

    message_id: int
    timestamp_ms: int
    expires_at_ms: int
    delivery_count: int
    head_bytes: int
    body_bytes: int
    priority: int
    kind: int
    flags: int
    fencing_token: int = 0


_row = partial(tuple.__new__, Row)
_delivered_row = partial(tuple.__new__, DeliveredRow)
"""Row._make and DeliveredRow._make without their check of the length, which the struct fixes."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Head).decode
_EMPTY = Head()
_VALUE_TYPES = frozenset((int, float, str, bytes, bool))


def encode_head(head: Head) -> bytes:
    """The bytes of a head; none at all for an empty one."""
    return b"" if head == _EMPTY else _encode(head)


def decode_head(data: bytes | memoryview) -> Head:
    """A head from its bytes; raises MessageFormatError for anything else."""
    if not data:
        return _EMPTY
    if len(data) > HEAD_BYTES_READ_MAX:
        raise MessageFormatError(detail=f"its head has {len(data)} bytes")
    try:
        head = _decode(data)
    except Exception as fault:  # msgspec also raises RecursionError and UnicodeDecodeError
        raise MessageFormatError(detail=f"its head: {fault}") from fault
    for value in (*head.properties.values(), *head.node.values()):
        if type(value) not in _VALUE_TYPES:
            raise MessageFormatError(detail=f"a property of type {type(value).__name__}")
    return head


@quicker("unpack_rows", Row)
def unpack_rows(pack: bytes | memoryview, count: int, offset: int = 0) -> list[Row]:
    """The rows of a pack that begins at offset; MessageFormatError when they do not add up."""
    table_end = offset + count * ROW.size
    if count < 1 or table_end > len(pack):
        raise MessageFormatError(detail=f"{count} rows do not fit into {len(pack)} bytes")
    rows = list(map(_row, ROW.iter_unpack(memoryview(pack)[offset:table_end])))
    ends_at = table_end + sum([row.head_bytes + row.body_bytes for row in rows])
    if ends_at != len(pack):
        raise MessageFormatError(detail=f"its rows end at byte {ends_at} of {len(pack)}")
    return rows


@quicker("slice_payloads")
def slice_payloads(pack: bytes | memoryview, rows: Sequence[Row], offset: int = 0) -> list[bytes]:
    """Head and body of each message as one `bytes`, in the order of the rows."""
    start = offset + len(rows) * ROW.size
    ends = list(accumulate([row.head_bytes + row.body_bytes for row in rows], initial=start))
    view = memoryview(pack)
    return [bytes(view[a:b]) for a, b in pairwise(ends)]


def with_heads(
    rows: Sequence[Row], pack: bytes | memoryview, changed: Callable[[Row, bytes], bytes]
) -> tuple[list[Row], memoryview]:
    """The same batch with other heads: what is made of each row and its head."""
    new_rows: list[Row] = []
    new: list[tuple[bytes, bytes, bytes]] = []
    for row, payload in zip(rows, slice_payloads(pack, rows), strict=True):
        head = changed(row, payload[: row.head_bytes])
        new_rows.append(row._replace(head_bytes=len(head)))
        new.append((ROW.pack(*new_rows[-1]), head, payload[row.head_bytes :]))
    return new_rows, memoryview(pack_messages(new))


def pack_messages(messages: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    """One pack of messages given as (row, head, body)."""
    return b"".join(message_parts(messages))


def message_parts(messages: Iterable[tuple[bytes, bytes, bytes]]) -> list[bytes]:
    """The parts of a pack, to be joined by who has something to put in front."""
    rows: list[bytes] = []
    payloads: list[bytes] = []
    for row, head, body in messages:
        rows.append(row)
        if head:
            payloads.append(head)
        payloads.append(body)
    return rows + payloads


@quicker("unpack_delivered", DeliveredRow)
def unpack_delivered(
    pack: bytes | memoryview, count: int, offset: int = 0
) -> list[tuple[DeliveredRow, bytes, bytes]]:
    """(row, head, body) of each delivered message; raises MessageFormatError."""
    table_end = offset + count * DELIVERED_ROW.size
    if table_end > len(pack):
        raise MessageFormatError(detail=f"{count} rows do not fit into {len(pack)} bytes")
    data = pack if isinstance(pack, bytes) else bytes(pack)
    table = DELIVERED_ROW.iter_unpack(memoryview(data)[offset:table_end])
    rows = list(map(_delivered_row, table))
    ends = list(accumulate([row.head_bytes + row.body_bytes for row in rows], initial=table_end))
    if ends[-1] != len(pack):
        raise MessageFormatError(detail=f"its rows end at byte {ends[-1]} of {len(pack)}")
    return [  # half of what it costs a receiver to get a message: no calls, no views
        (row, data[at : at + row.head_bytes], data[at + row.head_bytes : end])
        for row, (at, end) in zip(rows, pairwise(ends), strict=True)
    ]
