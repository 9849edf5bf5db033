"""The head of the audit's chain: what the next record continues."""

import msgspec

from hms.engine.effects import Effects
from hms.records.audit import (
    ARGUMENTS_BYTES_MAX,
    NO_HASH,
    AuditEntry,
    audit_record,
    chained,
    fault_of,
)

__all__ = ["AuditChain"]

RECENT_MAX = 1000
"""So many of the last hashes are kept, to be compared with what others remember."""


class AuditChain:
    """number and head: of the last record, here, in the log, and in each segment's dictionary."""

    def __init__(self) -> None:
        self.number = 0
        self.head = NO_HASH
        self._recent: dict[int, bytes] = {}
        self.broken = ""
        """The first record that was read back and does not follow from the one before; "" none."""

    def read_back(self, entry: AuditEntry) -> None:
        """A record that stands in the log."""
        before = None if self.head == NO_HASH else (self.number, self.head)
        fault = fault_of(entry, before) if entry.number > self.number else ""
        if fault and not self.broken:
            self.broken = f"record {entry.number}: {fault}; hms audit verify tells all"
        self.restore(entry.number, entry.hash)

    def restore(self, number: int, head: bytes) -> None:
        """As it stands in the log."""
        if number >= self.number:
            self.number, self.head = number, head or NO_HASH
            self._recent[number] = self.head
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]

    def hash_of(self, number: int) -> bytes | None:
        """Of one of the last RECENT_MAX records; None of others."""
        return self._recent.get(number)

    def differs(self, number: int, head: bytes) -> str:
        """Which record somebody remembers that is none of this chain; "" when it is one, is older
        than the last RECENT_MAX, or is 0: none is remembered."""
        if number > self.number:
            return f"record {number} of this audit, which ends with record {self.number}"
        if number and self._recent.get(number, head) != head:
            return f"another record {number} of this audit"
        return ""

    def append(self, entry: AuditEntry, fx: Effects) -> None:
        """One record more; its number and place in the chain are given here."""
        entry = chained(
            msgspec.structs.replace(
                entry,
                number=self.number + 1,
                arguments=entry.arguments[:ARGUMENTS_BYTES_MAX],
                previous=self.head,
            )
        )
        self.restore(entry.number, entry.hash)
        fx.records.append(audit_record(entry))
        fx.must_wait = True
