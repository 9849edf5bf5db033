"""Scanning: from segments of the log to batches of events.

A scan is planned once: every segment is a part of its own, and the last one, which the node may
still be writing, ends at the newest record of that moment. So all parts together are one consistent
picture, however long their reading takes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from field_buffer.catalogue import HistoryError
from hms.engine.messages import StoredMessage, selector_view
from hms.engine.selector import Selector
from hms.history.events import Event, EventDecoder
from hms.history.scope import Scope
from hms.store.journal.reader import last_lsn, list_segments, read_segment

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Part", "plan", "read_events", "read_part", "to_record_batch"]

BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends at this many rows or bytes of heads and bodies, whichever comes first."""

PathName = str | os.PathLike[str]
LogRecord = tuple[int, int, int, bytes | memoryview, int]
"""lsn, type, count, payload, position."""


@dataclass(frozen=True, slots=True)
class Part:
    """One segment, from its beginning (definitions stand there) up to an offset, excluded."""

    file: str
    until_offset: int


def plan(path: PathName, scope: Scope) -> list[Part]:
    """The parts of the history that hold what is asked for, oldest first."""
    # In this order: a segment that begins after the newest record was found is left out below.
    end = last_lsn(path) + 1
    segments = list_segments(path)
    if scope.until_offset is not None:
        end = min(end, scope.until_offset)
    firsts = [segment.first_lsn for segment in segments]
    ends = [*firsts[1:], end]
    return [
        Part(str(segment.file), min(stop, end))
        for segment, stop in zip(segments, ends, strict=True)
        if segment.first_lsn < end and stop > scope.first_offset
    ]


def read_part(part: Part, scope: Scope, columns: Sequence[str]) -> Iterator[list[Event]]:
    """Batches of the events of a part; columns: those that must be filled."""
    try:
        events = read_events(_whole(part), scope, columns, part.until_offset)
        yield from _batches(events)
    except FileNotFoundError as gone:
        detail = f"{part.file} was retired before it was read; start the reading again"
        raise HistoryError(detail=detail) from gone


def _whole(part: Part) -> Iterator[LogRecord]:
    """The records of a part, which must reach up to its end: nothing is left out in silence."""
    reached = 0
    for record in read_segment(part.file, until_lsn=part.until_offset - 1):
        yield record
        reached = record[0] + record[2]
    if reached < part.until_offset:
        detail = f"{part.file} ends before offset {reached}, but the history goes on at "
        detail += f"{part.until_offset}: a segment is missing or damaged"
        raise HistoryError(detail=detail)


def read_events(
    records: Iterable[LogRecord],
    scope: Scope,
    columns: Iterable[str] = Event._fields,
    until_offset: int | None = None,
) -> Iterator[Event]:
    """The events of records that a scope asks for."""
    matches = selector_test(scope.selector) if scope.selector else None
    decoder = EventDecoder(scope.wants, _needed(scope, columns))
    for lsn, record_type, count, payload, _ in records:
        events = decoder.decode(lsn, record_type, payload)
        if lsn < scope.first_offset or (until_offset is not None and lsn + count > until_offset):
            events = filter(partial(_is_between, scope.first_offset, until_offset), events)
        yield from filter(matches, events) if matches else events


def _needed(scope: Scope, columns: Iterable[str]) -> set[str]:
    """The columns to fill; a selector looks at the head."""
    return {*columns, *(["head"] if scope.selector else [])} - (
        set() if scope.includes_body else {"body"}
    )


def selector_test(text: str) -> Callable[[Event], bool]:
    """Whether a sent or forwarded event passes a selector, judged by the broker's own rules."""
    selector = Selector(text)
    names = selector.names

    def matches(event: Event) -> bool:
        head = event.head or b""
        message = StoredMessage(
            int(event.message_id, 16),
            event.offset,
            event.timestamp or 0,
            event.expiration or 0,
            event.priority or 0,
            0,
            len(head),
            head,
            event.persistent,
        )
        return selector.matches(selector_view(message, names)) is True

    return matches


def to_record_batch(events: Sequence[Event], schema: "pa.Schema") -> "pa.RecordBatch":
    """Events as an Arrow batch of exactly that schema."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    columns = dict(zip(Event._fields, zip(*events, strict=True), strict=True))
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("ms", kind.tz)).cast(kind)
    return pa.array(values, kind)


def _is_between(first: int, until: int | None, event: Event) -> bool:
    return event.offset >= first and (until is None or event.offset < until)


def _batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    batch: list[Event] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.head or b"") + len(event.body or b"")
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
