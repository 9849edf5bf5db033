"""What a decision says: which branches of a global transaction are to be committed.

The node keeps it as opaque bytes from the moment it is decided until it is forgotten. A global
transaction of ours is named by the uid of its node and a random part, so that recovery knows its
own branches in a database that others use too.
"""

import os
import struct
from collections.abc import Sequence

import msgspec

from hms.errors.catalogue import DecisionUnreadable
from hms.wire.xid import Xid

__all__ = [
    "COMMIT",
    "COMMITTED",
    "FORMAT_ID",
    "HAZARD",
    "IDENTITY",
    "MIXED",
    "PREPARED",
    "ROLLBACK",
    "ROLLED_BACK",
    "Participant",
    "decode",
    "encode",
    "is_settled",
    "new_bqual",
    "new_gtrid",
    "node_of",
    "printed",
    "read",
    "xid_of",
]

FORMAT_ID = 0x484D53
"""The letters HMS."""
IDENTITY = b"HMS identity"
"""Under this name the node keeps the random number that its gtrids begin with."""

PREPARED, COMMITTED = "prepared", "committed"
ROLLED_BACK, MIXED, HAZARD = "rolled back", "mixed", "hazard"
"""What a participant did by itself, or had done to it; recorded until it is forgotten."""
COMMIT, ROLLBACK = "commit", "rollback"
"""An operator's order for a participant that is not reached."""

_UID = struct.Struct(">Q")
_GTRID_BYTES = _UID.size + 16
_NAME_BYTES_MAX = 48


class Participant(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """One branch; order: what an operator decided for it; note: what the resource manager said."""

    resource: str
    bqual: bytes
    state: str = PREPARED
    order: str = ""
    note: str = ""


_decoder = msgspec.msgpack.Decoder(list[Participant])
_encoder = msgspec.msgpack.Encoder()


def encode(participants: Sequence[Participant]) -> bytes:
    """As the node keeps them."""
    return _encoder.encode(participants)


def decode(packed: bytes) -> list[Participant]:
    """As they were encoded; msgspec.MsgspecError."""
    return _decoder.decode(packed) if packed else []


def read(gtrid: bytes, packed: bytes) -> list[Participant]:
    """The participants of a transaction; DecisionUnreadable."""
    try:
        return decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise DecisionUnreadable(gtrid=printed(gtrid), detail=str(fault)) from fault


def is_settled(participant: Participant) -> bool:
    """Whether nothing is left to do for it but to forget it."""
    return participant.state != PREPARED


def new_gtrid(node_uid: int) -> bytes:
    """A name for a global transaction of that node."""
    return _UID.pack(node_uid) + os.urandom(16)


def new_bqual(resource: str) -> bytes:
    """A name for a branch in that resource manager."""
    return resource.encode()[:_NAME_BYTES_MAX] + b"." + os.urandom(6).hex().encode()


def xid_of(gtrid: bytes, bqual: bytes) -> Xid:
    """The xid of a branch of ours."""
    return Xid(FORMAT_ID, gtrid, bqual)


def node_of(xid: Xid) -> int | None:
    """The uid of the node whose transaction it belongs to; None for those of other systems."""
    if xid.format_id != FORMAT_ID or len(xid.gtrid) != _GTRID_BYTES:
        return None
    uid: int = _UID.unpack_from(xid.gtrid)[0]
    return uid


def printed(gtrid: bytes) -> str:
    """A global transaction as operators see it."""
    return gtrid.hex()
