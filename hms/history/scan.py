"""Scan: from the files of an archive and the segments of a log to batches of events.

What is read was planned before (see planning), part by part.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hms.errors.catalogue import HistoryGone
from hms.history.archive_place import local_place
from hms.history.columns import BATCH_BYTES, BATCH_ROWS, arrow_array, batches_of
from hms.history.events import Event, EventDecoder
from hms.history.manifest import load_manifest
from hms.history.planning import Part, archive_of, is_archive, plan, replace_first
from hms.history.runs import Run, RunDecoder
from hms.history.scope import Scope
from hms.history.segments import LogRecord, PathName, Tail, records_of
from hms.history.selection import selector_test
from hms.history.tables import records_of_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Part",
    "PathName",
    "Tail",
    "archive_of",
    "is_archive",
    "plan",
    "read_batches",
    "read_events",
    "read_part",
    "to_record_batch",
]

# ---- reading


def read_part(part: Part, scope: Scope, columns: Sequence[str]) -> Iterator[list[Event]]:
    """Batches of the events of a part; columns: those that must be filled.

    HistoryGone when it was let go before it was read.
    """
    if part.is_archived:
        from hms.history import archive_files  # noqa: PLC0415 - needs pyarrow

        yield from archive_files.read_events(part.file, scope, part.until_offset, columns)
        return
    events = read_events(records_in(part), _within(part, scope), columns, part.until_offset)
    yield from _batches(events)


def read_batches(part: Part, scope: Scope, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """Arrow batches of a part, of exactly that schema."""
    from hms.history import archive_files  # noqa: PLC0415 - needs pyarrow

    if part.is_archived:
        yield from archive_files.read_batches(part.file, scope, part.until_offset, schema)
        return
    is_begun = False
    try:
        for batch in _log_batches(part, scope, schema):
            yield batch
            is_begun = True
    except HistoryGone:
        if is_begun or not part.archive:
            raise
        yield from _instead(part, scope, schema)


def _instead(part: Part, scope: Scope, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """A segment that was let go since the plan was made, out of the archive that has it now."""
    from hms.history import archive_files  # noqa: PLC0415 - needs pyarrow

    segment, place = part.segment, local_place(part.archive)
    assert segment is not None
    manifest = load_manifest(place)
    if manifest is None or manifest.until_offset < part.until_offset:
        detail = f"{part.file} was let go, and the archive does not have it"
        raise HistoryGone(first=segment.first_offset, last=part.until_offset - 1, detail=detail)
    first = max(scope.first_offset, segment.first_offset)
    inside = replace(scope, first_offset=first)
    for file in manifest.files:
        if file.may_hold(inside, part.until_offset):
            name = str(place.path(file.name))
            yield from archive_files.read_batches(name, inside, part.until_offset, schema)


def records_in(part: Part) -> Iterator[LogRecord]:
    """The records of a segment, or of a range of a database."""
    if part.table is not None:
        return records_of_table(part.table)
    assert part.segment is not None
    return records_of(part.segment)


def _within(part: Part, scope: Scope) -> Scope:
    """A segment begins with a record; a range of a database may begin in the middle of one."""
    return replace_first(scope, part.table.first_offset) if part.table else scope


def _log_batches(part: Part, scope: Scope, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    records, until, scope = records_in(part), part.until_offset, _within(part, scope)
    if scope.selector or scope.message_ids:
        for events in _batches(read_events(records, scope, schema.names, until)):
            yield to_record_batch(events, schema)
        return
    narrowed = {} if scope.includes_body else {"body"}
    yield from batches_of(read_runs(records, scope, until), schema, narrowed)


def read_runs(
    records: Iterable[LogRecord], scope: Scope, until_offset: int | None = None
) -> Iterator[Run]:
    """The runs of records that a scope asks for, but for its selector and message ids."""
    decoder, first = RunDecoder(scope.wants), scope.first_offset
    for lsn, record_type, count, payload, _ in records:
        if lsn + count <= first:
            decoder.define(record_type, payload)
        elif lsn >= first and (until_offset is None or lsn + count <= until_offset):
            yield from decoder.runs(lsn, record_type, payload)
        else:
            cut = (
                run.between(first, until_offset) for run in decoder.runs(lsn, record_type, payload)
            )
            yield from (run for run in cut if run is not None)


def read_events(
    records: Iterable[LogRecord],
    scope: Scope,
    columns: Iterable[str] = Event._fields,
    until_offset: int | None = None,
) -> Iterator[Event]:
    """The events of records that a scope asks for."""
    matches = selector_test(scope.selector) if scope.selector else None
    decoder = EventDecoder(columns=_needed(scope, columns))
    runs = read_runs(records, scope, until_offset)
    if scope.message_ids:
        runs = _of_ids(runs, sorted(scope.message_ids))
    for run in runs:
        for event in decoder.expand(run):
            if matches is None or matches(event):
                yield event


def _of_ids(runs: Iterable[Run], ids: Sequence[int]) -> Iterator[Run]:
    """What runs have of these messages, ids in order. The ids of a run follow one another, so the
    others need not be unpacked: a trace in a log of 250 MB takes 0.3 s of a core, not 1.5."""
    for run in runs:
        at = bisect_left(ids, run.first_id)
        while at < len(ids) and ids[at] < run.first_id + run.size:
            offset = run.offset + ids[at] - run.first_id
            cut = run.between(offset, offset + 1)
            assert cut is not None, "it is in the run"
            yield cut
            at += 1


def _needed(scope: Scope, columns: Iterable[str]) -> set[str]:
    """The columns to fill; a selector looks at the head."""
    return {*columns, *(["head"] if scope.selector else [])} - (
        set() if scope.includes_body else {"body"}
    )


def to_record_batch(events: Sequence[Event], schema: "pa.Schema") -> "pa.RecordBatch":
    """Events as an Arrow batch of exactly that schema."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    columns = dict(zip(Event._fields, zip(*events, strict=True), strict=True))
    arrays = [arrow_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
