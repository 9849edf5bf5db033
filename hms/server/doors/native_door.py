"""The native door: the protocol of hms.client (hms/wire/frames.py).

A fan-out is put together once: the rows and payloads of what was delivered last to subscribers of
topics are remembered for the next releases.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from hms.engine.effects import Browsed, Confirm, Deliver, Ready, Refusal, Reply
from hms.engine.messages import StoredMessage, length_of
from hms.errors.catalogue import ProtocolError
from hms.errors.tree import HmsError
from hms.server.batch_portions import Command, Payload
from hms.server.doors.door import Frame, PayloadsOf, Receivers, Said, Words
from hms.wire import structures as wire
from hms.wire.commands import decode_request
from hms.wire.frames import (
    CONFIRM_BODY,
    DELIVER_HEAD,
    SEND_HEAD,
    Envelope,
    Kind,
    decode_send,
    decode_settle,
    delivery_head,
    frame,
)
from hms.wire.packed_messages import DELIVERED_ROW, FLAG_PERSISTENT
from hms.wire.structures import Event, encode, encode_error, encode_with_body

__all__ = ["PACKS_MAX", "NativeDoor", "decode_frame", "delivered_rows"]

PACKS_MAX = 16
PACK_MESSAGES_MIN = 8
"""Packs of fewer messages are made anew: to remember them costs more."""
_POSITION = struct.Struct("<Q")
_payload = attrgetter("payload")

_Pack = tuple[int, int, int]
"""First message id, how many, fencing token."""


def decode_frame(envelope: Envelope, payload: Payload) -> Command:
    """The command of a frame; what cannot be read is carried as its error."""
    kind = envelope.kind
    try:
        if kind is Kind.SEND:
            return envelope, decode_send(payload), memoryview(payload)[SEND_HEAD.size :]
        return envelope, DECODERS[kind](payload), payload
    except HmsError as error:
        return envelope, _alone(error), payload
    except KeyError:
        return envelope, ProtocolError(detail=f"a client does not send {kind.name}"), b""


def _alone(error: HmsError) -> HmsError:
    """The error without the frames that it came through: they hold the error again, and what many
    bad frames leave behind is then collected all at once."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


DECODERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.HELLO: lambda payload: wire.decode(payload, wire.Hello),
    Kind.AUTH: wire.decode_auth,
    Kind.REQUEST: decode_request,
    Kind.SETTLE: decode_settle,
    Kind.GOODBYE: lambda _: None,
    Kind.CALL: partial(wire.decode_with_body, kind=wire.CallHead),
    Kind.RESULT: partial(wire.decode_with_body, kind=wire.ResultHead),
    Kind.TALK: partial(wire.decode_with_body, kind=wire.TalkHead),
    Kind.FILE: partial(wire.decode_with_body, kind=wire.FileBlock),
    Kind.SCHEDULE: partial(wire.decode_with_body, kind=wire.ScheduleHead),
    Kind.NOTICE: partial(wire.decode_with_body, kind=wire.NoticeHead),
}


def encode_effect(effect: Said, payloads_of: PayloadsOf | None = None) -> Frame:
    """The frame that tells a peer of an effect; payloads_of reads what is not in memory. For
    deliveries see NativeDoor."""
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


class NativeDoor:
    """One for all native peers of a node: nothing is kept of a connection."""

    decode = staticmethod(decode_frame)
    encode = staticmethod(encode_effect)

    def __init__(self) -> None:
        self._packs: OrderedDict[_Pack, tuple[Sequence[StoredMessage], list[bytes]]] = OrderedDict()

    def deliver(self, effect: Deliver, to: Receivers, payloads_of: PayloadsOf | None) -> Frame:
        """A DELIVER frame."""
        count = len(effect.messages)
        is_shared = effect.kind == "topic" and count >= PACK_MESSAGES_MIN
        parts = (self._shared_parts if is_shared else delivered_parts)(effect, payloads_of)
        return frame(Kind.DELIVER, b"".join([delivery_head(to, count), *parts]), 0, count)

    def _shared_parts(self, effect: Deliver, payloads_of: PayloadsOf | None) -> list[bytes]:
        """What comes behind the head of a delivery; joined from the second time on."""
        messages = effect.messages
        if effect.counts is not None or effect.parts is not None:
            return delivered_parts(effect, payloads_of)
        key = messages[0].id, len(messages), effect.fencing_token
        known = self._packs.get(key)
        if known is not None and known[0] == messages:  # the very same: they know no other equality
            parts = known[1]
            if len(parts) > 1:
                parts[:] = [b"".join(parts)]
            return parts
        parts = delivered_parts(effect, payloads_of)
        self._packs[key] = (messages, parts)
        if len(self._packs) > PACKS_MAX:
            self._packs.popitem(last=False)
        return parts

    def forget(self) -> None:
        """Who still asks for them has them made anew."""
        self._packs.clear()
