"""What the synced part of the disk says, read anew from its bytes: the judge of P1.

Read with the log's own format, but independently of journal and engine: record by record as the
sectors become safe. Nothing is ever taken back: what was safe once must stay so.
"""

import re
from collections import Counter

from hms.records import (
    Definition,
    RecordType,
    bits,
    decode_definition,
    decode_dictionary,
    decode_ended,
    decode_group,
    decode_prepared,
    decode_ranges,
    decode_sent,
)
from hms.store.journal.format import (
    KIND_SEAL,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    record_bytes,
    unpack_record_header,
    unpack_segment_header,
)
from hms.store.journal.segment_walk import is_whole
from tests.sim.disk import Inode, SimDisk

_SEGMENT = re.compile(r"\d{16}\.(log|pinned|history)")


class Definitions:
    """Names of the places that the log speaks of by number."""

    def __init__(self) -> None:
        self._known: dict[int, Definition] = {}

    def learn(self, definitions: list[Definition]) -> None:
        """A DEFINED or DICTIONARY record."""
        for definition in definitions:
            self._known[definition.number] = definition

    def place(self, number: int) -> str:
        """A text such as "queue:NAME", "topic:NAME" or "sub:NAME"."""
        found = self._known[number]
        return f"{'sub' if found.kind == 'subscription' else found.kind}:{found.name}"


class Durable:
    """Facts: which messages, deliveries, acknowledgements and commits are safe."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._seen_syncs = -1
        self._places: dict[int, tuple[int, int, int]] = {}
        """By inode: where reading goes on, the next sequence number, the salt."""
        self._read_to_the_end: set[str] = set()
        """Segments that the log has let go: nothing is written there any more."""
        self._definitions = Definitions()
        self.sent: set[int] = set()
        self.delivered: Counter[tuple[str, int]] = Counter()
        self.left: set[tuple[str, int]] = set()
        self.commits: set[tuple[int, int, int]] = set()
        self.prepared: set[bytes] = set()
        self.ended: set[bytes] = set()

    def refresh(self) -> "Durable":
        """Read what became safe since the last time, history too: a crash may lie between."""
        if self._seen_syncs != self._disk.syncs:
            self._seen_syncs = self._disk.syncs
            for name in sorted(self._disk.safe_names.keys() - self._read_to_the_end):
                if (found := _SEGMENT.fullmatch(name)) is not None:
                    self._read(self._disk.safe_names[name])
                    if found[1] != "log":
                        self._read_to_the_end.add(name)
        return self

    def _read(self, inode: Inode) -> None:
        begun = unpack_segment_header(bytes(inode.safe[:SEGMENT_HEADER_BYTES]))
        if begun is None:
            return
        first = SEGMENT_HEADER_BYTES, begun.first_lsn, begun.salt
        at, lsn, salt = self._places.get(inode.number, first)
        if salt != begun.salt:  # the file of an old segment is used again
            at, lsn, salt = first
        data, base = memoryview(bytes(inode.safe[at:])), at
        while (header := unpack_record_header(data, at - base, salt)) is not None:
            start = at - base + RECORD_HEADER_BYTES
            payload = data[start : start + header.length]
            is_next = header.lsn == lsn and header.kind != KIND_SEAL
            if not is_next or len(payload) < header.length or not is_whole(header, payload):
                break
            self._record(header.kind, payload)
            at, lsn = at + record_bytes(header.length), lsn + header.events
        self._places[inode.number] = at, lsn, salt

    def _record(self, kind: int, payload: memoryview) -> None:
        if kind == RecordType.SENT:
            self._sent(payload)
        elif kind == RecordType.GROUP:
            group = decode_group(payload)
            for record in group.records:
                self._record(record.type, memoryview(record.parts[0]))
            if group.commit:
                self.commits.add((group.client_uid, group.session, group.commit))
        elif kind == RecordType.PREPARED:
            self.prepared.add(decode_prepared(payload)[0].xid)
        elif kind == RecordType.ENDED:
            self.ended.add(decode_ended(payload).xid)
        elif kind == RecordType.DICTIONARY:
            self._definitions.learn(decode_dictionary(payload).definitions)
        elif kind == RecordType.DEFINED:
            self._definitions.learn([decode_definition(payload)])
        elif kind in (RecordType.DELIVERED, RecordType.ACKNOWLEDGED, RecordType.DISCARDED):
            self._ranges(kind, payload)

    def _sent(self, payload: memoryview) -> None:
        sent = decode_sent(payload)
        first = sent.first_message_id
        self.sent.update(range(first, first + sent.message_count))
        for number, marks in sent.placements:
            place = self._definitions.place(number)
            for i, is_here in enumerate(bits(marks, sent.message_count)):
                if is_here:  # a letter may come back to a place that it has left before
                    self.left.discard((place, first + i))

    def _ranges(self, kind: int, payload: memoryview) -> None:
        record = decode_ranges(payload)
        place = self._definitions.place(record.number)
        for first, last in record.ranges:
            for message_id in range(first, last + 1):
                if kind == RecordType.DELIVERED:
                    self.delivered[place, message_id] += 1
                else:
                    self.left.add((place, message_id))
