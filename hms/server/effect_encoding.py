"""From effects to native frames: what the engine, the monitor and the node want said."""

import struct
from collections.abc import Sequence
from operator import attrgetter

from hms.engine.effects import Browsed, Confirm, Deliver, Ready, Refusal, Reply
from hms.engine.messages import StoredMessage, length_of
from hms.errors.tree import HmsError
from hms.server.doors.door import Frame, PayloadsOf, Said, Words
from hms.wire.frames import CONFIRM_BODY, DELIVER_HEAD, Kind, frame
from hms.wire.packed_messages import DELIVERED_ROW, FLAG_PERSISTENT
from hms.wire.structures import Event, encode, encode_error, encode_with_body

_POSITION = struct.Struct("<Q")
_payload = attrgetter("payload")


def encode_effect(effect: Said, payloads_of: PayloadsOf | None = None) -> Frame:
    """The frame that tells a peer of an effect; payloads_of reads what is not in memory. For
    deliveries see doors/native_door.py."""
    if isinstance(effect, Confirm):
        body = CONFIRM_BODY.pack(effect.first_message_id, effect.timestamp_ms, effect.message_count)
        return frame(Kind.CONFIRM, body, effect.correlation)
    if isinstance(effect, Reply):
        body = b"" if effect.value is None else encode(effect.value)
        return frame(Kind.REPLY, body, effect.correlation)
    if isinstance(effect, Words):
        data = effect.data
        body = _words(effect) if data is None else encode_with_body(effect.content, data)
        return frame(effect.kind, body, effect.correlation)
    if isinstance(effect, Refusal):
        return frame(Kind.ERROR, encode_error(effect.error), effect.correlation)
    if isinstance(effect, Ready):
        what = "consumer_ready" if effect.is_ready else "consumer_not_ready"
        event = Event(what, kind=effect.kind, destination=effect.destination)
        return frame(Kind.EVENT, encode(event))
    return _browsed(effect, payloads_of)


def _words(effect: Words) -> bytes:
    if isinstance(effect.content, HmsError):
        return encode_error(effect.content)
    return encode(effect.content)


def delivered_rows(
    messages: Sequence[StoredMessage],
    counts: Sequence[int] | None,
    parts: Sequence[int] | None = None,
    fencing_token: int = 0,
) -> list[bytes]:
    """The rows of a delivery, one per message."""
    pack = DELIVERED_ROW.pack
    if parts is None:
        parts = [0] * len(messages)
    return [
        pack(
            m.id,
            m.timestamp_ms,
            m.expires_at_ms,
            count,
            m.head_bytes,
            m.length - m.head_bytes,
            m.priority,
            m.kind,
            part | FLAG_PERSISTENT if m.is_persistent else part,
            fencing_token,
        )
        for m, count, part in zip(messages, counts or [1] * len(messages), parts, strict=True)
    ]


def _payloads(messages: Sequence[StoredMessage], payloads_of: PayloadsOf | None) -> Sequence[bytes]:
    """Head and body of each; bodies are rarely missing, so that is only counted."""
    payloads = list(map(_payload, messages))
    if payloads_of is None or sum(map(len, payloads)) == sum(map(length_of, messages)):
        return payloads
    return payloads_of(messages)


def delivered_parts(effect: Deliver, payloads_of: PayloadsOf | None) -> list[bytes]:
    """The rows and payloads of a delivery, to be joined behind its head."""
    token = effect.fencing_token
    rows = delivered_rows(effect.messages, effect.counts, effect.parts, token)
    return [*rows, *_payloads(effect.messages, payloads_of)]


def _browsed(effect: Browsed, payloads_of: PayloadsOf | None) -> Frame:
    head = DELIVER_HEAD.pack(int(effect.has_more), 0, len(effect.messages), 0)
    rows = delivered_rows(effect.messages, effect.counts, effect.flags)
    payloads = _payloads(effect.messages, payloads_of)
    body = b"".join([head, _POSITION.pack(effect.position), *rows, *payloads])
    return frame(Kind.BROWSED, body, effect.correlation, len(effect.messages))
