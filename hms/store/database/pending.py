"""Pending: records that hold until another one ends them, kept in a table as they are.

Of a branch in doubt its vote, of a completed one its heuristic outcome, of a decision what it says;
and the end of the last branches that were committed, so that who got no answer can ask again. And
which store it is.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from hms.records import (
    Ended,
    Memory,
    RecordType,
    decode_decided,
    decode_ended,
    decode_heuristic,
    decode_prepared,
    ended,
)

__all__ = ["COMMITTED", "PendingRow", "PendingRows"]

COMMITTED = 1
"""The outcome of an ENDED record that is kept."""
Payload = bytes | memoryview


class PendingRow(NamedTuple):
    """A record that holds; name: of the branch or transaction that it speaks of."""

    kind: int
    name: bytes
    lsn: int
    record: bytes


class PendingRows:
    """What a run of records changes; committed: xids that are remembered, oldest first;
    lsn: of the record that is applied; now_ms: the latest time that they speak of."""

    def __init__(self, committed: OrderedDict[bytes, None], committed_max: int) -> None:
        self._committed, self._committed_max = committed, committed_max
        self._rows: dict[tuple[int, bytes], PendingRow | None] = {}
        self.lsn = self.now_ms = 0

    def prepared(self, payload: Payload, _position: int) -> None:
        """A vote."""
        content, _ = decode_prepared(payload)
        self.now_ms = max(self.now_ms, content.at_ms)
        self._keep(RecordType.PREPARED, content.xid, payload)

    def heuristic(self, payload: Payload, _position: int) -> None:
        """An operator's outcome takes the place of the vote."""
        content = decode_heuristic(payload)
        self.now_ms = max(self.now_ms, content.at_ms)
        self._drop(RecordType.PREPARED, content.xid)
        self._keep(RecordType.HEURISTIC, content.xid, payload)

    def ended(self, payload: Payload, _position: int) -> None:
        """Neither is needed any more."""
        content = decode_ended(payload)
        self.now_ms = max(self.now_ms, content.at_ms)
        self._drop(RecordType.PREPARED, content.xid)
        self._drop(RecordType.HEURISTIC, content.xid)
        if content.outcome == COMMITTED:
            self._remember(content.xid, payload)

    def restated(self, content: Memory) -> None:
        """A MEMORY record."""
        for xid in content.branches:
            self._remember(xid, ended(Ended(xid, COMMITTED, 0)).parts[0])

    def decided(self, payload: Payload, _position: int) -> None:
        """A decision."""
        content = decode_decided(payload)
        self.now_ms = max(self.now_ms, content.at_ms)
        self._keep(RecordType.DECIDED, content.gtrid, payload)

    def forgotten(self, payload: Payload, _position: int) -> None:
        """It is not needed any more."""
        self._drop(RecordType.DECIDED, bytes(payload))

    def identified(self, payload: Payload) -> None:
        """Which store it is, and which boots wrote its log."""
        self._keep(RecordType.IDENTITY, b"", payload)

    def _remember(self, xid: bytes, payload: Payload) -> None:
        self._keep(RecordType.ENDED, xid, payload)
        self._committed[xid] = None
        self._committed.move_to_end(xid)
        if len(self._committed) > self._committed_max:
            self._drop(RecordType.ENDED, self._committed.popitem(last=False)[0])

    def _keep(self, kind: RecordType, name: bytes, payload: Payload) -> None:
        self._rows[kind, name] = PendingRow(kind, name, self.lsn, bytes(payload))

    def _drop(self, kind: RecordType, name: bytes) -> None:
        self._rows[kind, name] = None

    # what is to be written

    def gone(self) -> list[tuple[int, bytes]]:
        """Rows that go, or are written anew."""
        return list(self._rows)

    def rows(self) -> list[PendingRow]:
        """Rows that come."""
        return [row for row in self._rows.values() if row is not None]


def committed_of(rows: Iterable[PendingRow]) -> OrderedDict[bytes, None]:
    """The xids that are remembered as committed, in the order of their rows."""
    return OrderedDict((row.name, None) for row in rows if row.kind == RecordType.ENDED)
