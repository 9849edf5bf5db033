"""The audit: who gave which command, applied or refused, each record chained to the one before.

A record's hash covers all of it and the hash before, so none can be changed, left out or put
elsewhere without every later hash being another one. Of the arguments it covers the digest: they
can be erased, and the chain is whole.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from hms.records.kinds import Record, RecordType

__all__ = [
    "NO_HASH",
    "UNKNOWN",
    "AuditEntry",
    "audit_record",
    "breaks_of",
    "chained",
    "decode_audit",
    "fault_of",
    "result_of",
    "without_arguments",
]

NO_HASH = bytes(32)
ARGUMENTS_BYTES_MAX = 4096
UNKNOWN = -1
"""The result of an order whose end another record tells; where none does, nobody knows it."""
_ERASED = "*"
_FIELDS_WITHOUT_DIGEST = 12
"""What a record had whose hash covers the arguments themselves."""
_encode = msgspec.msgpack.Encoder().encode


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """number: consecutive for ever; user, source: who, and from where; result: 0, or the number of
    the error, or UNKNOWN; count: of equal refusals that it stands for; arguments: as JSON, nothing
    secret."""

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
    digest: bytes = b""
    """Of the arguments; none in older records."""


def chained(entry: AuditEntry) -> AuditEntry:
    """The entry with its hash."""
    entry = msgspec.structs.replace(entry, digest=_digest(entry))
    return msgspec.structs.replace(entry, hash=_hash(entry))


def result_of(entry: AuditEntry) -> int | str:
    """As people read it: ok, unknown, or the number of the error."""
    return {0: "ok", UNKNOWN: "unknown"}.get(entry.result, entry.result)


def without_arguments(entry: AuditEntry) -> AuditEntry:
    """The same entry, as long as before, with its arguments erased; as it is when its hash covers
    them."""
    if not entry.digest:
        return entry
    return msgspec.structs.replace(entry, arguments=_ERASED * len(entry.arguments.encode()))


def _digest(entry: AuditEntry) -> bytes:
    return hashlib.sha256(entry.arguments.encode()).digest()


def _hash(entry: AuditEntry) -> bytes:
    if not entry.digest:
        bare = msgspec.structs.astuple(msgspec.structs.replace(entry, hash=b""))
        return hashlib.sha256(_encode(bare[:_FIELDS_WITHOUT_DIGEST])).digest()
    bare_entry = msgspec.structs.replace(entry, hash=b"", arguments="")
    return hashlib.sha256(_encode(bare_entry)).digest()


def _is_altered(entry: AuditEntry) -> bool:
    if _hash(entry) != entry.hash:
        return True
    is_erased = not entry.arguments.strip(_ERASED)
    return bool(entry.digest) and not is_erased and _digest(entry) != entry.digest


def audit_record(entry: AuditEntry) -> Record:
    """An operator's command."""
    return Record(RecordType.AUDIT, 1, (_encode(entry),))


def decode_audit(payload: bytes | memoryview) -> AuditEntry:
    """An AUDIT record's payload."""
    return msgspec.msgpack.decode(payload, type=AuditEntry)


def breaks_of(entries: Iterable[AuditEntry]) -> Iterator[tuple[AuditEntry, str]]:
    """Every entry that does not follow from the one before it, and why. The first one that is there
    is believed: what was before it has been retired."""
    before: tuple[int, bytes] | None = None
    for entry in entries:
        if fault := fault_of(entry, before):
            yield entry, fault
        before = entry.number, entry.hash


def fault_of(entry: AuditEntry, before: tuple[int, bytes] | None) -> str:
    """Why an entry does not follow from the number and hash of the one before it; "" when it does,
    or, when there is none before it, when it was not altered."""
    if _is_altered(entry):
        return "it was altered"
    if before is not None and entry.number != before[0] + 1:
        return f"number {before[0] + 1} should stand here"
    if before is not None and entry.previous != before[1]:
        return "the record before it was altered"
    return ""
