"""Erasing from segments: what a person's messages say is overwritten where it lies.

Bodies become zeros and heads say nothing; ids, times, sizes and places stay, and so do all
positions, so that the books balance and a reader finds every record where it was. Of a record
of the audit the arguments go, of which its hash covers a digest alone.

A segment of the log is left alone: the log is read at a boot, by rules that look into heads. It is
overwritten when it has left the log, as a copy that takes its place.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from string import ascii_letters, digits
from typing import NamedTuple

from hms.engine.messages import StoredMessage
from hms.history.selection import message_test
from hms.records import (
    RecordType,
    decode_group,
    decode_moved,
    decode_prepared,
    decode_sent,
)
from hms.records.audit import audit_record, decode_audit, without_arguments
from hms.store.journal.format import (
    KIND_SEAL,
    SEGMENT_HEADER_BYTES,
    record_bytes,
    set_checksum,
    unpack_record_header,
)
from hms.store.journal.segment_walk import ERASED_SUFFIX, SegmentInfo, is_whole
from hms.wire.packed_messages import ROW, unpack_rows

__all__ = ["AUDIT", "Content", "Erasure", "blank_head"]

_LETTERS = ascii_letters + digits
_BEFORE = rf"(?:(?<![{_LETTERS}])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{{4}}))"
"""No letter, or one with which JSON writes another character."""
AUDIT = 0
"""In place of a message's id: a record of the audit."""
_EMPTY_HEADS = {0: b"", 1: b"\x90", 2: b"\x91\x80", 3: b"\xdc\0\0"}
_UNFINISHED = ".erasing"


class Content(NamedTuple):
    """A message, and where its head and body lie."""

    id: int
    timestamp_ms: int
    expires_at_ms: int
    priority: int
    head: memoryview | bytes
    body: memoryview | bytes

    @property
    def is_blank(self) -> bool:
        """Whether nothing is left of it."""
        head = bytes(self.head)
        return head == blank_head(len(head)) and bytes(self.body).count(0) == len(self.body)


def blank_head(size: int) -> bytes:
    """A head that says nothing, in so many bytes: without properties, and with codes of types for
    none."""
    if size in _EMPTY_HEADS:
        return _EMPTY_HEADS[size]
    for mark, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        left = size - len(b"\x92\x80") - len(mark) - width
        if 0 <= left < 1 << 8 * width:
            return b"\x92\x80" + mark + left.to_bytes(width, "big") + bytes(left)
    raise AssertionError(size)


def _as_word(word: str) -> str:
    """A pattern of a word that is no part of another one."""
    before = _BEFORE if word[0] in _LETTERS else ""
    behind = f"(?![{_LETTERS}])" if word[-1] in _LETTERS else ""
    return before + re.escape(word) + behind


class Erasure:
    """What is to be erased: messages that a selector chooses, and arguments of the audit that have
    one of these words, not as a part of another one: a short value would take the whole audit."""

    def __init__(self, selector: str, words: Sequence[str]) -> None:
        self._is_chosen: Callable[[StoredMessage], bool] = message_test(selector)
        found = "|".join(f"(?:{_as_word(word)})" for word in words if word)
        self._words = re.compile(found) if found else None

    def found(self, info: SegmentInfo) -> list[int]:
        """Ids of messages of a segment that are not blank yet, AUDIT for records of the audit."""
        data = bytearray(info.file.read_bytes())
        return [id_ for _, _, ids in self._records(data, info, ()) for id_ in ids]

    def blank(self, info: SegmentInfo, spared: Collection[int]) -> None:
        """Write a copy of a segment beside it that lacks what was found, but for messages that are
        still needed."""
        data = bytearray(info.file.read_bytes())
        for at, places, _ in self._records(data, info, spared):
            _overwrite(places)
            if places:
                set_checksum(data, at)
        half = info.file.with_suffix(_UNFINISHED)
        half.unlink(missing_ok=True)
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, info.file.stat().st_mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(handle)
        half.rename(info.file.with_suffix(ERASED_SUFFIX))

    def _records(
        self, data: bytearray, info: SegmentInfo, spared: Collection[int]
    ) -> Iterator[tuple[int, list[Content], list[int]]]:
        """Where a record with something to erase lies, and that. Arguments of the audit are places
        too: erased here at once, as they are not zeros."""
        view, at = memoryview(data), SEGMENT_HEADER_BYTES
        while (header := unpack_record_header(view, at, info.salt)) and header.kind != KIND_SEAL:
            start = at + record_bytes(0)
            payload = view[start : start + header.length]
            if not is_whole(header, payload):
                break  # it is being written, or damaged: then nobody reads on
            if header.kind == RecordType.AUDIT:
                if (blank := self.blank_audit(payload)) is not None:
                    payload[:] = blank
                    set_checksum(data, at)
                    yield at, [], [AUDIT]
            else:
                places = self._chosen(header.kind, payload, spared)
                if places:
                    yield at, places, [place.id for place in places]
            at += record_bytes(header.length)

    def blank_audit(self, payload: bytes | memoryview) -> bytes | None:
        """A record of the audit without its arguments, as long as it was; None when it may stay."""
        entry = decode_audit(payload)
        if self._words is None or not self._words.search(entry.arguments):
            return None
        blank = bytes(audit_record(without_arguments(entry)).parts[0])
        return None if blank == payload else blank

    def blank_payload(
        self, kind: int, payload: bytearray, spared: Collection[int] = ()
    ) -> list[int]:
        """Blank what is chosen in the payload of any record, where it lies; whose messages it was,
        AUDIT for arguments of the audit."""
        view = memoryview(payload)
        if kind == RecordType.AUDIT:
            blank = self.blank_audit(view)
            if blank is not None:
                view[:] = blank
            return [] if blank is None else [AUDIT]
        places = self._chosen(kind, view, spared)
        _overwrite(places)
        return [place.id for place in places]

    def _chosen(self, kind: int, payload: memoryview, spared: Collection[int]) -> list[Content]:
        return [
            place
            for place in _places(kind, payload)
            if place.id not in spared and not place.is_blank and self.chooses(place)
        ]

    def chooses(self, one: Content) -> bool:
        """Whether the selector chooses a message."""
        head = bytes(one.head)
        about = one.timestamp_ms, one.expires_at_ms, one.priority, 0, len(head), head
        return self._is_chosen(StoredMessage.of(one.id, 0, *about, is_persistent=True))


def _overwrite(places: Iterable[Content]) -> None:
    for place in places:
        assert isinstance(place.head, memoryview)
        assert isinstance(place.body, memoryview)
        place.head[:] = blank_head(len(place.head))
        place.body[:] = bytes(len(place.body))


def _places(kind: int, payload: memoryview) -> Iterator[Content]:
    """The messages whose bytes a record holds."""
    if kind == RecordType.SENT:
        record = decode_sent(payload)
        first = record.first_message_id, record.timestamp_ms
        yield from _packed(record.pack, record.message_count, *first)
    elif kind == RecordType.GROUP:
        for part in decode_group(payload).records:
            (view,) = part.parts
            assert isinstance(view, memoryview)
            yield from _places(part.type, view)
    elif kind == RecordType.MOVED:
        messages, at = decode_moved(payload)
        for one in messages:
            middle, end = at + one.head_bytes, at + one.head_bytes + one.body_bytes
            head, body = payload[at:middle], payload[middle:end]
            yield Content(one.id, one.timestamp_ms, one.expires_at_ms, one.priority, head, body)
            at = end
    elif kind == RecordType.PREPARED:
        content, packs = decode_prepared(payload)
        for batch, pack in zip(content.batches, packs, strict=True):
            yield from _packed(pack, batch.count, batch.first_message_id, batch.timestamp_ms)


def _packed(pack: memoryview, count: int, first_id: int, timestamp_ms: int) -> Iterator[Content]:
    at = count * ROW.size
    for number, row in enumerate(unpack_rows(pack, count)):
        middle, end = at + row.head_bytes, at + row.head_bytes + row.body_bytes
        expires_ms = timestamp_ms + row.ttl_ms if row.ttl_ms else 0
        head, body = pack[at:middle], pack[middle:end]
        yield Content(first_id + number, timestamp_ms, expires_ms, row.priority, head, body)
        at = end
