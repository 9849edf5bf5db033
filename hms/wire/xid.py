"""Xid: the name of a branch of a global transaction (X/Open XA §4.2).

`gtrid` names the global transaction, `bqual` the branch in it. Printed, an xid is
`format_id-gtrid-bqual` with the two in hexadecimal; packed, it is four bytes of format id, one
byte each of the two lengths, and the 128 bytes of XA's data at most.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

MAXGTRIDSIZE = 64
MAXBQUALSIZE = 64

_HEAD = struct.Struct(">iBB")
_FORMAT_ID_MAX = 2**31 - 1
_PRINTED = re.compile(r"(0|[1-9][0-9]{0,9})-((?:[0-9a-f]{2})+)-((?:[0-9a-f]{2})*)")


@dataclass(frozen=True, slots=True, order=True)
class Xid:
    """The name of one branch; `gtrid` has 1 to 64 bytes, `bqual` at most 64."""

    format_id: int
    gtrid: bytes
    bqual: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.format_id <= _FORMAT_ID_MAX:
            raise ValueError(f"format_id {self.format_id} is not 0 to {_FORMAT_ID_MAX}")
        if not 1 <= len(self.gtrid) <= MAXGTRIDSIZE:
            raise ValueError(f"gtrid has {len(self.gtrid)} bytes, not 1 to {MAXGTRIDSIZE}")
        if len(self.bqual) > MAXBQUALSIZE:
            raise ValueError(f"bqual has {len(self.bqual)} bytes, more than {MAXBQUALSIZE}")

    def branch(self, bqual: bytes) -> Self:
        """Another branch of the same global transaction."""
        return type(self)(self.format_id, self.gtrid, bqual)

    def pack(self) -> bytes:
        """The xid as bytes, as the wire and the log carry it."""
        head = _HEAD.pack(self.format_id, len(self.gtrid), len(self.bqual))
        return head + self.gtrid + self.bqual

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """The xid that pack() made these bytes of; a ValueError when they are none."""
        if len(packed) < _HEAD.size:
            raise ValueError(f"{len(packed)} bytes are no packed xid")
        format_id, gtrid_size, bqual_size = _HEAD.unpack_from(packed)
        if len(packed) != _HEAD.size + gtrid_size + bqual_size:
            raise ValueError(f"{len(packed)} bytes are no packed xid: the lengths differ")
        middle = _HEAD.size + gtrid_size
        return cls(format_id, bytes(packed[_HEAD.size : middle]), bytes(packed[middle:]))

    def __str__(self) -> str:
        return f"{self.format_id}-{self.gtrid.hex()}-{self.bqual.hex()}"

    @classmethod
    def parse(cls, printed: str) -> Self:
        """The xid that str() printed so; a ValueError when it is none."""
        found = _PRINTED.fullmatch(printed)
        if found is None:
            raise ValueError(f"{printed!r} is no xid: format_id-gtrid-bqual is, in hexadecimal")
        format_id, gtrid, bqual = found.groups()
        return cls(int(format_id), bytes.fromhex(gtrid), bytes.fromhex(bqual))

    def dbapi(self, connection: Any) -> Any:
        """The same xid as a DB-API 2.0 connection makes it: connection.xid(), with text parts."""
        make: Callable[[int, str, str], Any] = connection.xid
        return make(self.format_id, self.gtrid.hex(), self.bqual.hex())


__all__ = ["MAXBQUALSIZE", "MAXGTRIDSIZE", "Xid"]
