"""Pinned messages at boot: what a PINNED record tells of lies in a segment that is not read as part
of the log.

Until all records are read such a message is a stub that says where it lies: it may have left since,
and its segment be gone. Then each pinned segment is read, for those that are still there. A batch
that waits as a whole is one stub, and becomes the block that it was (packed_block.py).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter

from hms.engine.log import packed_block
from hms.engine.log.live_index import BLOCK_MESSAGES, SEGMENT_SHIFT, hold, offsets_of
from hms.engine.log.logged_place import LoggedPlace
from hms.engine.messages import StoredMessage, make_messages
from hms.errors.catalogue import StoreCorrupt
from hms.records import (
    Kept,
    PinnedRun,
    RecordType,
    Sent,
    Stay,
    decode_group,
    decode_moved,
    decode_sent,
)
from hms.records.transitions import Payload
from hms.wire.packed_messages import KIND_FILE, ROW, Row
from hms.wire.record_runs import RUN, SingleSends, sends_in, singly

__all__ = [
    "Found",
    "PinnedBatch",
    "PinnedReader",
    "PinnedStub",
    "messages_of",
    "no_pinned",
    "pinned_messages",
    "resolve",
    "resolve_of",
    "take_batches",
    "take_batches_of",
]

PinnedReader = Callable[[int], Iterable[tuple[int, int, int, memoryview, int]]]
"""The records of a segment behind the log, as a store gives them; LookupError when there is no such
segment."""
Watch = Callable[[StoredMessage], StoredMessage]
Key = tuple[int, int]
"""The offset that the log tells, and the message's id: an empty one takes no byte, so the next one
of its batch lies at the same offset."""
Found = dict[Key, tuple[int, StoredMessage]]
"""Where a message really lies in its segment, and itself."""
_OFFSET_MASK = (1 << SEGMENT_SHIFT) - 1


def no_pinned(segment: int) -> Iterable[tuple[int, int, int, memoryview, int]]:
    """The reader of a log that has no segments."""
    raise LookupError(segment)


class PinnedStub(StoredMessage, gc=False, eq=False, kw_only=True):
    """A message of which only its id is known, and where it lies."""

    segment: int
    offset: int

    @staticmethod
    def at(id_: int, segment: int, offset: int) -> "PinnedStub":
        """The message with this id."""
        nothing = (0, 0, 0, 0, 0, 0, b"")
        return PinnedStub(
            id_, *nothing, is_persistent=True, length=0, segment=segment, offset=offset
        )


class PinnedBatch:
    """Messages that follow one another, and wait at one place: of a batch of which none has left,
    if their segment says so too."""

    __slots__ = ("_offsets", "first_id", "number", "segment")

    def __init__(self, segment: int, first_id: int, offsets: list[int], number: int) -> None:
        self.segment, self.first_id, self.number = segment, first_id, number
        self._offsets = offsets

    @staticmethod
    def of(segment: int, run: PinnedRun) -> "PinnedBatch | None":
        """What a record tells of such messages; None when they are others."""
        if not isinstance(run.ids, int) or len(run.stays) != 1:
            return None
        (stay,) = run.stays
        offsets = run.positions()
        if stay != Stay(stay.number) or len(offsets) < packed_block.PACKED_MESSAGES:
            return None
        return PinnedBatch(segment, run.ids, offsets, stay.number)

    @property
    def last_id(self) -> int:
        """Of its last message."""
        return self.first_id + len(self._offsets) - 1

    def is_of(self, record: Sent, at: int) -> bool:
        """Whether it is the batch of that record, whose first message's bytes lie there."""
        is_whole = record.message_count == len(self._offsets) and at == self._offsets[0]
        return is_whole and [place.number for place in record.placements] == [self.number]

    def among(self, sends: SingleSends) -> SingleSends | None:
        """Its messages, when they are among those that were sent one by one."""
        start, end = bisect_left(sends.ids, self.first_id), bisect_right(sends.ids, self.last_id)
        if sends.number != self.number or end - start != len(self._offsets):
            return None
        part = sends.part(start, end)
        return part if [at & _OFFSET_MASK for at in part.positions] == self._offsets else None

    def opened(self) -> list[StoredMessage]:
        """A stub for each message."""
        each = enumerate(self._offsets, self.first_id)
        stubs: list[StoredMessage] = [PinnedStub.at(id_, self.segment, at) for id_, at in each]
        hold(stubs, self.number)
        return stubs

    def left_whole(self) -> None:
        """Nobody needs a message of it."""


def take_batches(
    places: Iterable[LoggedPlace],
    read: PinnedReader,
    place_packed: Callable[[Sent, int], bool],
    place_sends: Callable[[SingleSends], bool],
) -> None:
    """Put blocks in the place of pinned batches. place_packed: has a record wait as it lies, its
    first message's bytes at that position; False when each message has to be seen; place_sends: the
    same for messages that were sent one by one. All others are opened: resolve() finds their
    messages, or says what is missing."""
    for segment, batches in sorted(_batches(places).items()):
        for _ in _taken(segment, batches, read, place_packed, place_sends):
            pass
        for place, batch in batches.values():
            place.open_in(((batch.first_id, batch.last_id),))


def take_batches_of(
    segment: int,
    places: Iterable[LoggedPlace],
    read: PinnedReader,
    place_packed: Callable[[Sent, int], bool],
    place_sends: Callable[[SingleSends], bool],
) -> Iterator[None]:
    """The same for one segment, while the log goes on: yields behind each record that was read."""
    batches = _batches(places).get(segment)
    if batches:
        yield from _taken(segment, batches, read, place_packed, place_sends)
        for place, batch in batches.values():
            if place.has(batch):
                place.open_in(((batch.first_id, batch.last_id),))


def _batches(
    places: Iterable[LoggedPlace],
) -> dict[int, dict[int, tuple[LoggedPlace, PinnedBatch]]]:
    wanted: dict[int, dict[int, tuple[LoggedPlace, PinnedBatch]]] = {}
    for place in places:
        for one in place.unopened():
            if isinstance(one, PinnedBatch):
                wanted.setdefault(one.segment, {})[one.first_id] = place, one
    return wanted


def _taken(
    segment: int,
    batches: dict[int, tuple[LoggedPlace, PinnedBatch]],
    read: PinnedReader,
    place_packed: Callable[[Sent, int], bool],
    place_sends: Callable[[SingleSends], bool],
) -> Iterator[None]:
    with suppress(LookupError):
        for _, kind, _, payload, position in read(segment):
            if kind == RecordType.SENT | RUN:
                _take_sends(batches, payload, position, place_sends)
            else:
                for record, at in _sent_records(kind, payload, position):
                    found = batches.get(record.first_message_id)
                    if found is not None and found[1].is_of(record, at & _OFFSET_MASK):
                        _placed(*found, partial(place_packed, record, at))
                        del batches[record.first_message_id]
            yield


def _take_sends(
    batches: dict[int, tuple[LoggedPlace, PinnedBatch]],
    run: memoryview,
    position: int,
    place_sends: Callable[[SingleSends], bool],
) -> None:
    firsts = sorted(batches)
    for sends in sends_in(run, position):
        if not isinstance(sends, SingleSends):
            continue
        here = bisect_left(firsts, sends.ids[0]), bisect_right(firsts, sends.ids[-1])
        for first_id in firsts[slice(*here)]:
            found = batches.get(first_id)
            part = None if found is None else found[1].among(sends)
            if found is not None and part is not None:
                _placed(*found, partial(place_sends, part))
                del batches[first_id]


def _placed(place: LoggedPlace, batch: PinnedBatch, place_it: Callable[[], bool]) -> None:
    if not place.has(batch):  # it has left meanwhile, or a part of it
        return
    place.drop(batch)
    if not place_it():
        place.hold_packed(batch)
        place.open_in(((batch.first_id, batch.last_id),))


def _sent_records(kind: int, payload: Payload, position: int) -> Iterator[tuple[Sent, int]]:
    """The SENT records in a record, and where the first message's bytes of each lie."""
    if kind == RecordType.GROUP:
        group = decode_group(payload)
        for record, offset in zip(group.records, group.offsets, strict=True):
            yield from _sent_records(record.type, record.parts[0], position + offset)
    elif kind == RecordType.SENT:
        sent = decode_sent(payload)
        yield sent, position + sent.pack_offset + ROW.size * sent.message_count


def resolve(
    places: Iterable[LoggedPlace], read: PinnedReader, watch: Watch
) -> Iterator[tuple[int, Found]]:
    """Put messages in the place of stubs that are still there, and tell of each segment, and by
    their offsets, what was found in it; watch: takes those that name files. StoreCorrupt when one
    is missing."""
    wanted: dict[int, dict[Key, PinnedStub]] = {}
    holding = [table for place in places for table in _tables(place)]
    for _, table in holding:
        for message in table.values():
            if isinstance(message, PinnedStub):
                wanted.setdefault(message.segment, {})[message.offset, message.id] = message
    found = {segment: _read(segment, stubs, read) for segment, stubs in sorted(wanted.items())}
    for messages in found.values():
        for told, (offset, message) in messages.items():
            if message.kind == KIND_FILE:
                messages[told] = offset, watch(message)
    for place, table in holding:
        _replace(place, table, found)
    yield from found.items()


def resolve_of(
    segment: int, places: Iterable[LoggedPlace], read: PinnedReader, watch: Watch
) -> Iterator[Found | None]:
    """The same for one segment, while the log goes on: None behind each record that was read, at
    last what was found of those that are still there. What is not found stays as it is."""
    tables = [table for place in places for table in _tables(place)]
    stubs = dict(_stubs(segment, tables))
    found: Found = {}
    if not stubs:
        return
    wanted = sorted(stubs)
    with suppress(LookupError):
        for _, kind, _, payload, position in singly(read(segment)):
            at = position & _OFFSET_MASK
            first = bisect_left(wanted, (at, 0))
            if first < len(wanted) and wanted[first][0] <= at + len(payload):
                found.update(
                    ((offset, message.id), (offset, message))
                    for offset, message in pinned_messages(kind, payload, at)
                    if (offset, message.id) in stubs
                )
            yield None
    there = {key: found[key] for key in dict(_stubs(segment, tables)) if key in found}
    for told, (offset, message) in there.items():
        if message.kind == KIND_FILE:
            there[told] = offset, watch(message)
    for place, table in tables:
        _replace_found(segment, place, table, there)
    yield there


def _replace_found(
    segment: int, place: LoggedPlace, table: dict[int, StoredMessage], found: Found
) -> None:
    for id_, stub in list(table.items()):
        if isinstance(stub, PinnedStub) and stub.segment == segment:
            here = found.get((stub.offset, stub.id))
            if here is not None:
                table[id_] = here[1]
                hold([here[1]], place.number)


def _stubs(
    segment: int, tables: Iterable[tuple[LoggedPlace, dict[int, StoredMessage]]]
) -> Iterator[tuple[Key, PinnedStub]]:
    for _, table in tables:
        for one in table.values():
            if isinstance(one, PinnedStub) and one.segment == segment:
                yield (one.offset, one.id), one


def _tables(place: LoggedPlace) -> list[tuple[LoggedPlace, dict[int, StoredMessage]]]:
    return [(place, place.waiting), (place, place.out)]


def _replace(place: LoggedPlace, table: dict[int, StoredMessage], found: dict[int, Found]) -> None:
    for id_, stub in list(table.items()):
        if isinstance(stub, PinnedStub):
            here = found[stub.segment].get((stub.offset, stub.id))
            if here is None:
                del table[id_]  # lost when the store was salvaged, and named then
                place.due.pop(id_, None)
            else:
                table[id_] = here[1]
                hold([here[1]], place.number)


def _read(segment: int, stubs: dict[Key, PinnedStub], read: PinnedReader) -> Found:
    found: Found = {}
    wanted = sorted(stubs)
    is_salvaged = False
    try:
        for count, (_, kind, events, payload, position) in enumerate(singly(read(segment))):
            if kind == RecordType.DICTIONARY and (count or events > 1):
                is_salvaged = True  # it stands where others were lost
            at = position & _OFFSET_MASK
            first = bisect_left(wanted, (at, 0))
            if first < len(wanted) and wanted[first][0] <= at + len(payload):
                for offset, message in pinned_messages(kind, payload, at):
                    if (offset, message.id) in stubs:
                        found[offset, message.id] = offset, message
        if len(found) < len(wanted) and is_salvaged:
            _find_by_id(segment, stubs, read, found)
    except LookupError:
        raise _missing(segment, wanted[0][0], "the segment is missing") from None
    if len(found) < len(wanted) and not is_salvaged:
        lost = next(offset for offset, id_ in wanted if (offset, id_) not in found)
        raise _missing(segment, lost, "no message lies where the log says")
    return found


def _find_by_id(
    segment: int, stubs: dict[Key, PinnedStub], read: PinnedReader, found: Found
) -> None:
    """Behind what was lost records lie elsewhere in a segment that was salvaged."""
    lacking = {stub.id: key for key, stub in stubs.items() if key not in found}
    for _, kind, _, payload, position in singly(read(segment)):
        for offset, message in pinned_messages(kind, payload, position & _OFFSET_MASK):
            told = lacking.get(message.id)
            if told is not None:
                found[told] = offset, message


def _missing(segment: int, offset: int, detail: str) -> StoreCorrupt:
    return StoreCorrupt(file=f"{segment:016d}.pinned", offset=offset, lsn=0, detail=detail)


def pinned_messages(kind: int, payload: Payload, at: int) -> Iterator[tuple[int, StoredMessage]]:
    """A record's messages and where each one lies; the record's payload lies at that offset."""
    if kind == RecordType.GROUP:
        group = decode_group(payload)
        for record, offset in zip(group.records, group.offsets, strict=True):
            yield from pinned_messages(record.type, record.parts[0], at + offset)
    elif kind == RecordType.SENT:
        yield from _sent(payload, at)
    elif kind == RecordType.MOVED:
        yield from _moved(payload, at)


def messages_of(record: Sent, rows: Sequence[Row]) -> list[StoredMessage]:
    """The messages of a SENT record, whose rows these are."""
    return make_messages(
        rows,
        record.payloads(rows),
        record.first_message_id,
        record.first_seq,
        record.timestamp_ms,
        is_persistent=True,
    )


def _sent(payload: Payload, at: int) -> Iterator[tuple[int, StoredMessage]]:
    record = decode_sent(payload)
    messages = messages_of(record, record.rows())
    start = at + record.pack_offset + ROW.size * record.message_count
    return zip(offsets_of(messages, start), messages, strict=True)


def _moved(payload: Payload, at: int) -> Iterator[tuple[int, StoredMessage]]:
    kept, start = decode_moved(payload)
    view, where = memoryview(payload), start
    for one in kept:
        length = one.head_bytes + one.body_bytes
        yield at + where, message_of(one, bytes(view[where : where + length]))
        where += length


def message_of(kept: Kept, payload: bytes) -> StoredMessage:
    """The message that a MOVED record tells of."""
    return StoredMessage.of(
        kept.id,
        kept.seq,
        kept.timestamp_ms,
        kept.expires_at_ms,
        kept.priority,
        kept.kind,
        kept.head_bytes,
        payload,
        is_persistent=True,
    )


def in_blocks(found: Found) -> Iterator[tuple[list[StoredMessage], list[int]]]:
    """Messages and their offsets, as many at a time as a block of the live index has."""
    order = sorted(found.values(), key=itemgetter(0))
    for start in range(0, len(order), BLOCK_MESSAGES):
        chosen = order[start : start + BLOCK_MESSAGES]
        yield [message for _, message in chosen], [offset for offset, _ in chosen]
