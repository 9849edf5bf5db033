"""The ledger: what the log says of every message, read after the end of a run.

A message that is in the log is at each of its places until exactly one record takes it off; who
speaks of it must find it there. Counting is compared with the rows of the history.
"""

from collections import Counter
from collections.abc import Iterable

from hms.history.events import EventDecoder
from hms.records import (
    Cause,
    Ranges,
    RecordType,
    Sent,
    bits,
    decode_definition,
    decode_dictionary,
    decode_ended,
    decode_group,
    decode_ranges,
    decode_sent,
)
from hms.records.definitions import decode_number
from hms.records.groups import Group
from tests.sim.durable import Definitions
from tests.sim.occurrences import WAITING, numbered

_BACK = (RecordType.FAILED, RecordType.RELEASED)
_OF_RANGES = (
    RecordType.DELIVERED,
    RecordType.ACKNOWLEDGED,
    RecordType.FAILED,
    RecordType.RELEASED,
    RecordType.DISCARDED,
)
"""All other records are no events of messages."""


def _xid_of(group: Group) -> bytes | None:
    """The branch that was committed with these records."""
    ends = [decode_ended(one.parts[0]) for one in group.records if one.type == RecordType.ENDED]
    return ends[0].xid if ends else None


class Ledger:
    """See the module. here: what is at its place still; fates: what took the others away."""

    def __init__(self) -> None:
        self.here: dict[tuple[str, int], str] = {}
        self.fates: dict[tuple[str, str], list[tuple[Cause, int]]] = {}
        self.stored: Counter[str] = Counter()
        self.sent_at: dict[str, int] = {}
        self.groups: list[tuple[object, set[str], set[tuple[str, str]]]] = []
        self.faults: list[str] = []
        self._definitions = Definitions()
        self._group: tuple[set[str], set[tuple[str, str]]] | None = None

    def read(self, records: Iterable[tuple[int, int, int, memoryview, int]]) -> "Ledger":
        """Every record of the log, in order."""
        events = EventDecoder(columns=("message_id",))
        for lsn, kind, count, payload, _ in records:
            rows = list(events.decode(lsn, kind, payload))
            if rows and [row.offset for row in rows] != list(range(lsn, lsn + count)):
                self.faults.append(
                    f"unaccounted: record {lsn} has {count} numbers, {len(rows)} rows"
                )
            self._record(kind, payload)
        return self

    def _record(self, kind: int, payload: memoryview | bytes) -> None:
        if kind == RecordType.SENT:
            self._sent(decode_sent(payload))
        elif kind == RecordType.GROUP:
            self._grouped(decode_group(payload))
        elif kind == RecordType.DICTIONARY:
            self._definitions.learn(decode_dictionary(payload).definitions)
        elif kind == RecordType.DEFINED:
            self._definitions.learn([decode_definition(payload)])
        elif kind == RecordType.UNDEFINED:
            self._undefined(self._definitions.place(decode_number(payload)))
        elif kind in _OF_RANGES:
            self._ranges(kind, decode_ranges(payload))

    def _grouped(self, group: Group) -> None:
        self._group = set(), set()
        for record in group.records:
            self._record(record.type, record.parts[0])
        if group.commit:
            key: object = (group.client_uid, group.session, group.commit)
            self.groups.append((key, *self._group))
        elif (xid := _xid_of(group)) is not None:
            self.groups.append((xid, *self._group))
        self._group = None

    def _sent(self, sent: Sent) -> None:
        rows = sent.rows()
        for i, (row, payload) in enumerate(zip(rows, sent.payloads(rows), strict=True)):
            body = numbered(payload[: row.head_bytes], payload[row.head_bytes :])
            key = body.split(b" ", 1)[0].decode("ascii", "replace")
            if not sent.is_forwarded:
                self.stored[key] += 1
                self.sent_at[key] = sent.timestamp_ms
                if self._group is not None:
                    self._group[0].add(key)
            self._placed(sent, i, key)

    def _placed(self, sent: Sent, i: int, key: str) -> None:
        for number, marks in sent.placements:
            if list(bits(marks, sent.message_count))[i]:
                at = self._definitions.place(number), sent.first_message_id + i
                if at in self.here:
                    self.faults.append(f"unaccounted: {key} is put twice to {at}")
                self.here[at] = key

    def _ranges(self, kind: int, record: Ranges) -> None:
        place = self._definitions.place(record.number)
        for first, last in record.ranges:
            for message_id in range(first, last + 1):
                at = place, message_id
                if at not in self.here:
                    self.faults.append(f"unaccounted: {RecordType(kind).name} of {at}, not there")
                elif kind in (RecordType.ACKNOWLEDGED, RecordType.DISCARDED):
                    self._gone(at, record)
        assert kind in (*_BACK, RecordType.DELIVERED, RecordType.ACKNOWLEDGED, RecordType.DISCARDED)

    def _gone(self, at: tuple[str, int], record: Ranges) -> None:
        key = self.here.pop(at)
        if at[0] == WAITING:
            return
        self.fates.setdefault((at[0], key), []).append((record.cause, record.at_ms))
        if self._group is not None and record.cause is Cause.NONE:
            self._group[1].add((at[0], key))

    def _undefined(self, place: str) -> None:
        left = [at for at in self.here if at[0] == place]
        if left:
            self.faults.append(f"unaccounted: {place} ended with {left} in it")
            for at in left:
                del self.here[at]
