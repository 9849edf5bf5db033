"""The audit: who gave which command, applied or refused, each record chained to the one before.

A record's hash covers all of it and the hash before, so none can be changed, left out or put
elsewhere without every later hash being another one. Of the arguments it covers the digest: they
can be erased, and the chain is whole.

What the node adds to the arguments stands with them, as the member "audit" of their JSON: so it is
under the same digest, goes with them when they are erased, and a release that knows nothing of it
reads and verifies such a record.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hms.records.kinds import Record, RecordType

__all__ = [
    "CUT_OFF",
    "NO_DETAILS",
    "NO_HASH",
    "UNKNOWN",
    "AuditDetails",
    "AuditEntry",
    "audit_record",
    "breaks_of",
    "chained",
    "decode_audit",
    "details_of",
    "digest_of",
    "fault_of",
    "result_of",
    "why_of",
    "with_details",
    "without_arguments",
]

NO_HASH = bytes(32)
ARGUMENTS_BYTES_MAX = 4096
UNKNOWN = -1
"""The result of an order whose end another record tells; where none does, nobody knows it."""
CUT_OFF = -2
"""The result of an order that was begun, and ended when its connection did."""
DETAILS_BYTES_MAX = 2048
_ERASED = "*"
_FIELDS_WITHOUT_DIGEST = 12
"""What a record had whose hash covers the arguments themselves."""
_encode = msgspec.msgpack.Encoder().encode


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """number: consecutive for ever; user, source: who, and from where; result: 0, or the number of
    the error, or UNKNOWN; count: of equal refusals, or logins, that it stands for; arguments:
    as JSON, nothing secret."""

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


class AuditDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """connection, client_id: of who ordered it; affected: how many messages, publications or
    clients; before, after: of what was changed, or their digest where that is too long."""

    connection: int = 0
    client_id: str = ""
    affected: int | None = None
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


class _Held(msgspec.Struct, omit_defaults=True):
    audit: AuditDetails = AuditDetails()


class _Why(msgspec.Struct):
    why: str = ""
    key: str = ""


NO_DETAILS = AuditDetails()


def with_details(arguments: dict[str, Any], details: AuditDetails) -> str:
    """Arguments and details as one JSON text. What is too long is cut: the details are whole."""
    details = _fitting(details)
    held = {} if details == NO_DETAILS else {"audit": details}
    text = msgspec.json.encode({**arguments, **held}).decode()
    if len(text) <= ARGUMENTS_BYTES_MAX:
        return text
    said = msgspec.json.encode(arguments).decode()
    while len(text) > ARGUMENTS_BYTES_MAX:
        said = said[: len(said) - max(1, (len(text) - ARGUMENTS_BYTES_MAX) // 2)]
        text = msgspec.json.encode({**held, "cut": said}).decode()
    return text


def details_of(entry: AuditEntry) -> AuditDetails:
    """What the node added to the arguments; nothing in older records, and when they are erased."""
    try:
        return msgspec.json.decode(entry.arguments, type=_Held).audit
    except msgspec.MsgspecError:
        return NO_DETAILS


def why_of(entry: AuditEntry) -> str:
    """Why a login, or a connection, was refused, and with which key; of the first of those that it
    counts. Nothing in other records."""
    if entry.command != "refused":
        return ""
    try:
        told = msgspec.json.decode(entry.arguments, type=_Why)
    except msgspec.MsgspecError:
        return ""
    return f"{told.why} (key {told.key})" if told.key else told.why


def digest_of(value: Any) -> dict[str, str]:
    """In place of what is secret, or too long."""
    encoded = msgspec.json.encode(value, order="sorted")
    return {"sha256": hashlib.sha256(encoded).hexdigest()}


def _fitting(details: AuditDetails) -> AuditDetails:
    if len(msgspec.json.encode(details)) <= DETAILS_BYTES_MAX:
        return details
    before, after = (digest_of(one) if one else {} for one in (details.before, details.after))
    return msgspec.structs.replace(details, before=before, after=after)


def chained(entry: AuditEntry) -> AuditEntry:
    """The entry with its hash."""
    entry = msgspec.structs.replace(entry, digest=_digest(entry))
    return msgspec.structs.replace(entry, hash=_hash(entry))


def result_of(entry: AuditEntry) -> int | str:
    """As people read it: ok, unknown, or the number of the error."""
    return {0: "ok", UNKNOWN: "unknown", CUT_OFF: "cut off"}.get(entry.result, entry.result)


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
