"""Frames: one envelope part and one payload part, and the kinds that are packed by hand.

Decoding garbage raises ProtocolError (or FrameTooLarge) and nothing else.
"""

import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap

import msgspec

from hms.errors.catalogue import FrameTooLarge, ProtocolError, VersionMismatch
from hms.wire.packed_messages import quicker

MAGIC = b"HM"
VERSION = 1
ENVELOPE = struct.Struct("<2sBBIII")
"""magic, version, kind, correlation (0 none), count, payload_bytes."""

SEND_HEAD = struct.Struct("<IIQB3xI")
"""producer, count, first_sequence, flags (SEND_PERSISTENT), spare; then a pack of messages."""
SEND_PERSISTENT = 1
SEQUENCE_MAX = (1 << 63) - 1
"""The last number of a producer's messages; the log tells it in 64 bits."""

CONFIRM_BODY = struct.Struct("<QQQ")
"""first_message_id, timestamp_ms, count."""

DELIVER_HEAD = struct.Struct("<IIII")
"""consumer, epoch, count, further; then so many further receivers of the same messages, then
delivered rows with heads and bodies."""
RECEIVER = struct.Struct("<II")
"""consumer, epoch."""

SETTLE_ITEM = struct.Struct("<B3xIII")
"""action, consumer, epoch, n; then n ranges of message ids, or none when the action is CREDIT or
CREDIT_BYTES."""
RANGE = struct.Struct("<QQ")
"""first and last message id of a range, both included."""

DELIVER_FURTHER_MAX = 65_535
RANGES_MAX = 65_536
RETRY_MS_MAX = 1 << 40
SETTLE_ITEMS_MAX = 4_096
WHY_CHARACTERS_MAX = 1000
WHY_BYTES_MAX = 4 * WHY_CHARACTERS_MAX + 64


class Kind(enum.IntEnum):
    """What a frame is. Below 16 the client sends it, from 16 on the node; HEARTBEAT, TALK and
    NOTICE both."""

    HELLO = 1
    REQUEST = 2
    SEND = 3
    SETTLE = 4
    HEARTBEAT = 5
    GOODBYE = 6
    CALL = 7
    RESULT = 8
    TALK = 9
    NOTICE = 10
    SCHEDULE = 11
    FILE = 12
    AUTH = 13
    WELCOME = 16
    REPLY = 17
    ERROR = 18
    CONFIRM = 19
    DELIVER = 20
    INVOKE = 21
    ANSWER = 22
    EVENT = 23
    BROWSED = 24
    CHALLENGE = 25


class Action(enum.IntEnum):
    """What a settlement does with messages that were delivered to a consumer."""

    ACKNOWLEDGE = 1
    FAIL = 2  # back to the queue; counts as an attempt
    RELEASE = 3  # back to the queue, never shown to the application
    CREDIT = 4  # n more messages may be delivered
    CREDIT_BYTES = 5  # n more bytes of them; a CREDIT may follow
    REJECT = 6  # the application will never take it: a dead letter at once
    RETRY = 7  # back to the queue after a delay of its own; counts as an attempt
    SEEN = 8  # the application has it; said before its consumer, or its session, closes
    WHY = 9  # n bytes that tell why the item that follows gives messages back


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What the main thread reads of a frame."""

    kind: Kind
    correlation: int
    item_count: int
    payload_bytes: int


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One item of a SETTLE frame; credit is 0 unless the action is CREDIT or CREDIT_BYTES, or
    RETRY, where it is the delay in milliseconds. code, text: why messages are given back, which
    stands in a WHY before the item; code: a reason of dead letters."""

    action: Action
    consumer: int
    epoch: int
    credit: int
    ranges: Sequence[tuple[int, int]]
    code: str = ""
    text: str = ""


def as_ranges(message_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Message ids, in the order given, as ranges of consecutive ones."""
    ranges: list[tuple[int, int]] = []
    first = last = -2
    for message_id in message_ids:
        if message_id == last + 1:
            last = message_id
            continue
        if first >= 0:
            ranges.append((first, last))
        first = last = message_id
    if first >= 0:
        ranges.append((first, last))
    return ranges


CREDITS = (Action.CREDIT, Action.CREDIT_BYTES)
KINDS = {int(kind): kind for kind in Kind}
CLIENT_KINDS = {code: kind for code, kind in KINDS.items() if kind < Kind.WELCOME}
"""What a client may send."""
_ACTIONS = {int(action): action for action in Action}


@quicker("frame")
def frame(kind: Kind, payload: bytes = b"", correlation: int = 0, count: int = 1) -> list[bytes]:
    """A whole frame, ready for send_multipart."""
    return [ENVELOPE.pack(MAGIC, VERSION, kind, correlation, count, len(payload)), payload]


@quicker("envelope", Envelope, KINDS)
def decode_envelope(
    parts: Sequence[bytes | memoryview],
    payload_bytes_max: int,
    kinds: Mapping[int, Kind] = KINDS,
) -> Envelope:
    """Check a frame's shape and read its envelope; the payload stays unread. kinds: those that its
    sender may send, by their codes."""
    if len(parts) != 2:  # noqa: PLR2004 - envelope and payload
        raise ProtocolError(detail=f"a frame has 2 parts, this one {len(parts)}")
    head, payload = parts
    if len(head) != ENVELOPE.size:
        raise ProtocolError(detail=f"an envelope has {ENVELOPE.size} bytes, this one {len(head)}")
    magic, version, kind, correlation, count, payload_bytes = ENVELOPE.unpack(head)
    if magic != MAGIC:
        raise ProtocolError(detail="the envelope does not begin with HM")
    if version != VERSION:
        raise VersionMismatch(theirs=version, ours=VERSION)
    if payload_bytes != len(payload):
        raise ProtocolError(detail=f"{payload_bytes} payload bytes announced, {len(payload)} came")
    if payload_bytes > payload_bytes_max:
        raise FrameTooLarge(
            what="a frame", size=payload_bytes, limit=payload_bytes_max, key="max_message_bytes"
        )
    known = kinds.get(kind)
    if known is None:
        if kind in KINDS:
            raise ProtocolError(detail=f"{KINDS[kind].name} is for the node to send")
        raise ProtocolError(detail=f"frame kind {kind} is not known")
    return Envelope(known, correlation, count, payload_bytes)


class SendHead(msgspec.Struct, frozen=True, gc=False):
    """The head of a SEND; the pack begins at SEND_HEAD.size of the payload."""

    producer: int
    message_count: int
    first_sequence: int
    is_persistent: bool


def encode_send(head: SendHead, *pack: bytes) -> bytes:
    """The payload of a SEND; the pack may come in parts, and is copied once."""
    flags = SEND_PERSISTENT if head.is_persistent else 0
    packed = SEND_HEAD.pack(head.producer, head.message_count, head.first_sequence, flags, 0)
    return b"".join((packed, *pack))


def decode_send(payload: bytes | memoryview) -> SendHead:
    """The head of a SEND payload; its pack is checked where it is unpacked."""
    if len(payload) < SEND_HEAD.size:
        raise ProtocolError(detail=f"a SEND of {len(payload)} bytes")
    producer, count, first_sequence, flags, _ = SEND_HEAD.unpack_from(payload)
    if count < 1 or first_sequence < 1:
        raise ProtocolError(detail="a SEND has at least one message and sequence number 1")
    if first_sequence + count > SEQUENCE_MAX:
        detail = f"sequence number {first_sequence}: the last one is {SEQUENCE_MAX}"
        raise ProtocolError(detail=detail)
    return SendHead(producer, count, first_sequence, bool(flags & SEND_PERSISTENT))


def decode_confirm(payload: bytes | memoryview) -> tuple[int, int, int]:
    """(first_message_id, timestamp_ms, count) of a CONFIRM."""
    if len(payload) != CONFIRM_BODY.size:
        raise ProtocolError(detail=f"a CONFIRM of {len(payload)} bytes")
    first_message_id, timestamp_ms, count = CONFIRM_BODY.unpack(payload)
    return first_message_id, timestamp_ms, count


def delivery_head(receivers: Sequence[tuple[int, int]], count: int) -> bytes:
    """What stands before the rows of a DELIVER; receivers: consumers and their epochs."""
    (consumer, epoch), *further = receivers
    head = DELIVER_HEAD.pack(consumer, epoch, count, len(further))
    return head + b"".join([RECEIVER.pack(*one) for one in further]) if further else head


def decode_delivery(payload: bytes | memoryview) -> tuple[list[tuple[int, int]], int, int]:
    """(receivers, count, where the rows begin) of a DELIVER."""
    if len(payload) < DELIVER_HEAD.size:
        raise ProtocolError(detail=f"a DELIVER of {len(payload)} bytes")
    consumer, epoch, count, further = DELIVER_HEAD.unpack_from(payload)
    if not further:
        return [(consumer, epoch)], count, DELIVER_HEAD.size
    rows_at = DELIVER_HEAD.size + further * RECEIVER.size
    if further > DELIVER_FURTHER_MAX or rows_at > len(payload):
        raise ProtocolError(detail=f"a DELIVER announces {further} receivers that are not there")
    table = memoryview(payload)[DELIVER_HEAD.size : rows_at]
    return [(consumer, epoch), *RECEIVER.iter_unpack(table)], count, rows_at


def decode_deliver(payload: bytes | memoryview) -> tuple[int, int, int]:
    """(consumer, epoch, count) of a DELIVER or BROWSED."""
    if len(payload) < DELIVER_HEAD.size:
        raise ProtocolError(detail=f"a DELIVER of {len(payload)} bytes")
    consumer, epoch, count, _ = DELIVER_HEAD.unpack_from(payload)
    return consumer, epoch, count


def encode_settle(items: Iterable[Settlement]) -> bytes:
    """The payload of a SETTLE."""
    parts: list[bytes] = []
    for item in items:
        ranges = item.ranges
        if item.code or item.text:
            why = f"{item.code}\n{item.text[:WHY_CHARACTERS_MAX]}".encode(errors="replace")
            parts += (SETTLE_ITEM.pack(Action.WHY, item.consumer, item.epoch, len(why)), why)
        if item.action is Action.RETRY:  # the delay stands where a range would
            ranges = [(0, item.credit), *ranges]
        n = item.credit if item.action in CREDITS else len(ranges)
        parts.append(SETTLE_ITEM.pack(item.action, item.consumer, item.epoch, n))
        parts += starmap(RANGE.pack, ranges)
    return b"".join(parts)


def decode_settle(payload: bytes | memoryview) -> list[Settlement]:
    """The items of a SETTLE."""
    items: list[Settlement] = []
    at, end, ranges_left = 0, len(payload), RANGES_MAX
    why: tuple[str, str] = ("", "")
    while at < end:
        if at + SETTLE_ITEM.size > end or len(items) == SETTLE_ITEMS_MAX:
            raise ProtocolError(detail="a SETTLE is cut off or has too many items")
        code, consumer, epoch, n = SETTLE_ITEM.unpack_from(payload, at)
        at += SETTLE_ITEM.size
        action = _ACTIONS.get(code)
        if action is None:
            raise ProtocolError(detail=f"settlement {code} is not known")
        if action in CREDITS:
            items.append(Settlement(action, consumer, epoch, n, ()))
            continue
        if action is Action.WHY:
            at, why = at + n, _why(payload, at, n)
            continue
        stop = at + n * RANGE.size
        if n > ranges_left or stop > end:
            raise ProtocolError(detail=f"a settlement announces {n} ranges that are not there")
        ranges_left -= n
        ranges = list(RANGE.iter_unpack(memoryview(payload)[at:stop]))
        for first, last in ranges:
            if first > last:
                raise ProtocolError(detail="a range of message ids runs backwards")
        at, delay_ms = stop, 0
        if action is Action.RETRY:
            delay_ms = _delay_ms(ranges)
        items.append(Settlement(action, consumer, epoch, delay_ms, ranges, *why))
        why = ("", "")
    return items


def _why(payload: bytes | memoryview, at: int, size: int) -> tuple[str, str]:
    """The code and text of a WHY."""
    if size > min(WHY_BYTES_MAX, len(payload) - at):
        raise ProtocolError(detail=f"a reason of {size} bytes")
    code, _, text = str(payload[at : at + size], "utf-8", "replace").partition("\n")
    return code, text


def _delay_ms(ranges: list[tuple[int, int]]) -> int:
    """The delay of a RETRY, which stands where a range would."""
    if not ranges:
        raise ProtocolError(detail="a RETRY without its delay")
    return min(ranges.pop(0)[1], RETRY_MS_MAX)
