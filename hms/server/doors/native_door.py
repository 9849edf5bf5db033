"""The native door: the protocol of hms.client (hms/wire/frames.py).

A fan-out is put together once: the rows and payloads of what was delivered last to subscribers of
topics are remembered for the next releases.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hms.engine.effects import Deliver
from hms.engine.messages import StoredMessage
from hms.errors.catalogue import ProtocolError
from hms.errors.tree import HmsError
from hms.server.batch_portions import Command, Payload
from hms.server.doors.door import Frame, PayloadsOf, Receivers
from hms.server.effect_encoding import delivered_parts, encode_effect
from hms.wire import structures as wire
from hms.wire.commands import decode_request
from hms.wire.frames import (
    SEND_HEAD,
    Envelope,
    Kind,
    decode_send,
    decode_settle,
    delivery_head,
    frame,
)

__all__ = ["PACKS_MAX", "NativeDoor", "decode_frame"]

PACKS_MAX = 16
PACK_MESSAGES_MIN = 8
"""Packs of fewer messages are made anew: to remember them costs more."""


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
