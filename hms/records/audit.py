"""The audit: who had which command applied, or was refused, each record chained to the one before.

A record's hash covers all of it and the hash before, so none can be changed, left out or put
elsewhere without every later hash being another one.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from hms.records.kinds import Record, RecordType

__all__ = ["NO_HASH", "AuditEntry", "audit_record", "breaks_of", "chained", "decode_audit"]

NO_HASH = bytes(32)
ARGUMENTS_BYTES_MAX = 4096
_encode = msgspec.msgpack.Encoder().encode


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """number: consecutive for ever; user, source: who, and from where; result: 0, or the number of
    the error; count: of equal refusals that it stands for; arguments: as JSON, nothing secret."""

    number: int
    at_ms: int
    user: str
    source: str
    action: str
    resource: str
    command: str
    arguments: str
    result: int
    count: int
    previous: bytes
    hash: bytes = b""


def chained(entry: AuditEntry) -> AuditEntry:
    """The entry with its hash."""
    bare = msgspec.structs.replace(entry, hash=b"")
    return msgspec.structs.replace(entry, hash=hashlib.sha256(_encode(bare)).digest())


def audit_record(entry: AuditEntry) -> Record:
    """Something was ordered."""
    return Record(RecordType.AUDIT, 1, (_encode(entry),))


def decode_audit(payload: bytes | memoryview) -> AuditEntry:
    """An AUDIT record's payload."""
    return msgspec.msgpack.decode(payload, type=AuditEntry)


def breaks_of(entries: Iterable[AuditEntry]) -> Iterator[tuple[AuditEntry, str]]:
    """Every entry that does not follow from the one before it, and why. The first one that is there
    is believed: what was before it has been retired."""
    before: AuditEntry | None = None
    for entry in entries:
        if chained(entry).hash != entry.hash:
            yield entry, "it was altered"
        elif before is not None and entry.number != before.number + 1:
            yield entry, f"number {before.number + 1} should stand here"
        elif before is not None and entry.previous != before.hash:
            yield entry, "the record before it was altered"
        before = entry
