"""Frames of the links: one envelope part and one payload part. No socket.

Every envelope tells who speaks, in which life, and which life of the other one it hears; so a link
that works in one direction only is noticed by both. Decoding garbage raises ProtocolError.
"""

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hms.engine.cluster.members import Incarnation, PeerState
from hms.errors.catalogue import FrameTooLarge, ProtocolError

MAGIC = b"HL"
LINK_VERSION = 2
_ENVELOPE = struct.Struct("<2sBBHxxQIIQIII")
"""magic, version, kind, node; store, incarnation and epoch; those that it hears; payload bytes."""


class LinkKind(enum.IntEnum):
    """What a frame of a link is. GOODBYE and REFUSED carry the reason as text."""

    HELLO = 1
    WORD = 2
    GOODBYE = 3
    REFUSED = 4


class LinkEnvelope(NamedTuple):
    """What the main thread reads of a frame."""

    kind: LinkKind
    version: int
    node: int
    state: PeerState
    hears: PeerState


class HelloBody(msgspec.Struct, frozen=True, array_like=True):
    """Who a node says it is; sent again as its heartbeat."""

    cluster: str
    name: str
    addresses: Sequence[str] = ()
    """Where clients find it."""
    next_key: str = ""
    """The public key that it is going to show."""
    clock_ms: int = 0
    """What its clock says, for a difference that an operator is to be told of; nothing is decided
    by it. 0 from a release before."""


_KINDS = {int(kind): kind for kind in LinkKind}
_hello = msgspec.msgpack.Decoder(HelloBody).decode


def link_frame(
    kind: LinkKind, node: int, state: PeerState, hears: PeerState, payload: bytes = b""
) -> tuple[bytes, bytes]:
    """A whole frame."""
    speaks, heard = (*state.life, state.epoch), (*hears.life, hears.epoch)
    head = _ENVELOPE.pack(MAGIC, LINK_VERSION, kind, node, *speaks, *heard, len(payload))
    return head, payload


def decode_link(parts: Sequence[bytes], payload_bytes_max: int) -> LinkEnvelope:
    """Check a frame's shape and read its envelope."""
    if len(parts) != 2 or len(parts[0]) != _ENVELOPE.size:  # noqa: PLR2004 - envelope, payload
        if parts and parts[0][:2] == MAGIC and parts[0][2:3] not in (b"", bytes([LINK_VERSION])):
            own, theirs = LINK_VERSION, parts[0][2]
            detail = f"it speaks version {theirs} of the links, this node {own}"
            raise ProtocolError(detail=detail)
        raise ProtocolError(detail="no frame of a link")
    magic, version, kind, node, *lives, size = _ENVELOPE.unpack(parts[0])
    if magic != MAGIC:
        raise ProtocolError(detail="the envelope does not begin with HL")
    if size != len(parts[1]):
        raise ProtocolError(detail=f"{size} payload bytes announced, {len(parts[1])} came")
    if size > payload_bytes_max:
        key = "max_message_bytes"
        raise FrameTooLarge(what="a link's frame", size=size, limit=payload_bytes_max, key=key)
    known = _KINDS.get(kind)
    if known is None:
        raise ProtocolError(detail=f"frame kind {kind} of a link is not known")
    return LinkEnvelope(known, version, node, _state(*lives[:3]), _state(*lives[3:]))


def _state(store: int, incarnation: int, epoch: int) -> PeerState:
    return PeerState(Incarnation(store, incarnation), epoch)


def encode_hello(body: HelloBody) -> bytes:
    """The payload of a HELLO."""
    return msgspec.msgpack.encode(body)


def decode_hello(payload: bytes) -> HelloBody:
    """The payload of a HELLO; ProtocolError for anything else."""
    try:
        return _hello(payload)
    except Exception as fault:  # msgspec also raises RecursionError and UnicodeDecodeError
        raise ProtocolError(detail=f"a hello that cannot be read: {fault}") from fault
