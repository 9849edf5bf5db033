"""IDENTITY: which store it is, and which boots wrote which part of its log.

A store has a random number of its own from its first boot on, and so has every boot. Two logs that
begin alike, such as those of a directory and of its copy, are told apart by who wrote an offset.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hms.records.kinds import Record, RecordType

BOOTS_MAX = 64
"""Maximum number of boots that are kept; the author of older offsets is not asked for."""

_encode = msgspec.msgpack.Encoder().encode


class Writer(NamedTuple):
    """Who wrote what stands at a place: store and boot in hexadecimal; "" for what is not known."""

    store: str = ""
    boot: str = ""

    def is_other(self, here: "Writer") -> bool:
        """Whether the same place was written by another one here. A boot that is not known any more
        excludes nothing; a store that has lost its identity is another one."""
        return bool(self.store) and (
            self.store != here.store or bool(self.boot and here.boot and self.boot != here.boot)
        )


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """store: 16 random bytes, none before the first boot that gave them; boots: the first offset of
    each boot with 16 random bytes of its own, oldest first; cold: the number of the last boot that
    was COLD for the whole node, none before it; secret: what tokens are signed with, told nobody
    and kept wherever the log goes; restored_from: the backup that the store was restored from, and
    the moment, "" for one that was not; restored_below: its own ids below were given before."""

    store: bytes = b""
    boots: Sequence[tuple[int, bytes]] = ()
    cold: bytes = b""
    secret: bytes = b""
    restored_from: str = ""
    restored_below: int = 0

    @property
    def public(self) -> "Identity":
        """The part of it that other systems may keep."""
        return Identity(self.store, self.boots, self.cold)

    @property
    def log(self) -> bytes:
        """Names what can hold a message sent before: the same after a WARM boot, another one after
        a COLD one and in any other store."""
        return self.cold or self.store

    def booted(
        self, first_offset: int, number: bytes, *, is_warm: bool = True, secret: bytes = b""
    ) -> "Identity":
        """With a boot whose offsets begin there; the first one names the store, and draws its
        secret."""
        before = [boot for boot in self.boots if boot[0] < first_offset]
        boots = [*before, (first_offset, number)]
        cold = self.cold if is_warm else number
        return msgspec.structs.replace(
            self,
            store=self.store or number,
            boots=boots[-BOOTS_MAX:],
            cold=cold,
            secret=self.secret or secret,
        )

    def writer_before(self, offset: int) -> Writer:
        """The author of what precedes an offset."""
        found = [number for first, number in self.boots if first < offset]
        return Writer(self.store.hex(), found[-1].hex() if found else "")


def identity(content: Identity) -> Record:
    """An IDENTITY record."""
    return Record(RecordType.IDENTITY, 1, (_encode(content),))


def decode_identity(payload: bytes | memoryview) -> Identity:
    """An IDENTITY record's payload."""
    return msgspec.msgpack.decode(payload, type=Identity)
