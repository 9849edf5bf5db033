"""Gaps: what a salvaged store does not have, and between which messages."""

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from hms.records import RecordType, decode_group, decode_sent
from hms.store.journal.segment_sift import Lost


@dataclass(frozen=True, slots=True)
class Dropped:
    """Sequence numbers that are lost, both included.

    last_lsn None: to the end, wherever that was; records None: not known how many; id_before and
    id_behind: the last message id that was sent before the gap, and the first one behind it.
    """

    file: Path
    offset: int
    first_lsn: int
    last_lsn: int | None
    records: int | None
    is_needed: bool
    id_before: int | None = None
    id_behind: int | None = None


@dataclass(slots=True)
class Gaps:
    """The gaps in order; those at the end are open until a message behind them is seen."""

    closed: list[Dropped] = field(default_factory=list)
    _open: list[Dropped] = field(default_factory=list)
    _last_id: int | None = None

    def lost(self, what: Lost, file: Path, *, is_needed: bool) -> None:
        """No record that verifies has these sequence numbers."""
        place = (file, what.offset, what.first_lsn, what.last_lsn, what.records)
        self._open.append(Dropped(*place, is_needed=is_needed, id_before=self._last_id))

    def lost_end(self, first_lsn: int, file: Path) -> None:
        """Everything from here on is lost; how much is not known."""
        end = Dropped(file, 0, first_lsn, None, None, is_needed=True, id_before=self._last_id)
        self._open.append(end)

    def saw(self, kind: int, payload: memoryview) -> None:
        """A record that verifies, between or behind the gaps."""
        ids = message_ids(kind, payload)
        if ids is not None:
            self.closed += [replace(gap, id_behind=ids[0]) for gap in self._open]
            self._open.clear()
            self._last_id = ids[1]

    def finish(self) -> list[Dropped]:
        """All of them."""
        return self.closed + self._open


def message_ids(kind: int, payload: memoryview) -> tuple[int, int] | None:
    """The first and last message id that a record gives; None when it gives none, or cannot be
    understood, which is no reason not to copy it."""
    try:
        return _message_ids(kind, payload)
    except (struct.error, ValueError):
        return None


def _message_ids(kind: int, payload: memoryview) -> tuple[int, int] | None:
    if kind == RecordType.SENT:
        record = decode_sent(payload)
        if record.is_forwarded:
            return None  # a dead letter keeps its old id
        return record.first_message_id, record.first_message_id + record.message_count - 1
    if kind == RecordType.GROUP:
        parts = decode_group(payload).records
        found = [_message_ids(one.type, memoryview(one.parts[0])) for one in parts]
        ids = [one for one in found if one is not None]
        return (ids[0][0], ids[-1][1]) if ids else None
    return None
