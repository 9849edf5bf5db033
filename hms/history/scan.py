"""Scanning: from an archive and the segments of a log to batches of events.

A scan is planned once: the archive has the offsets up to where its manifest says, the log those
behind. Every file is a part of its own, and the last segment, which the node may still be writing,
ends at the newest safe record of that moment. So all parts together are one consistent picture,
however long their reading takes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from field_buffer.catalogue import HistoryGone
from hms.engine.messages import StoredMessage, selector_view
from hms.engine.selector import Selector
from hms.history.archive_mark import read_mark
from hms.history.archive_place import LocalPlace, is_url, local_place
from hms.history.columns import BATCH_BYTES, BATCH_ROWS, arrow_array, batches_of
from hms.history.events import Event, EventDecoder
from hms.history.manifest import FOLDER, Manifest, load_manifest
from hms.history.runs import Run, RunDecoder
from hms.history.scope import Scope
from hms.history.segments import (
    LogRecord,
    PathName,
    Segment,
    Tail,
    records_of,
    segments_for,
    survey,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Part",
    "PathName",
    "plan",
    "read_batches",
    "read_events",
    "read_part",
    "selector_test",
    "to_record_batch",
]

_PLANS_MAX = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of the log, or a file of the archive, up to an offset, excluded.

    archive: where what is gone from the log may be found; "" without one.
    """

    file: str
    until_offset: int
    size: int = 0
    segment: Segment | None = None
    archive: str = ""


def plan(path: PathName, scope: Scope, tail: Tail | None = None) -> list[Part]:
    """The parts of the history that hold what is asked for, the archive's before the log's.

    HistoryGone when it begins behind the first offset that is asked for; ArchiveError.
    """
    for _ in range(_PLANS_MAX):
        place = archive_of(path, scope.archive)
        manifest = load_manifest(place) if place else None
        parts = [] if place is None or manifest is None else _archived(place, manifest, scope)
        if place is not None and manifest is not None and is_archive(path):
            return parts
        until = manifest.until_offset if manifest else 0
        begin = survey(path)[0].first_lsn
        # Else the archive went on, and the log let go, between the two looks.
        if not manifest or begin <= until or until == _until(path, scope):
            _check_loss(scope, manifest, begin)
            return parts + _logged(path, replace_first(scope, until), place, tail)
    raise HistoryGone(first=until, last=begin - 1, detail="the archive does not have them yet")


def replace_first(scope: Scope, first: int) -> Scope:
    """The scope without the offsets that the archive has."""
    return replace(scope, first_offset=max(scope.first_offset, first))


def _until(path: PathName, scope: Scope) -> int:
    place = archive_of(path, scope.archive)
    manifest = load_manifest(place) if place else None
    return manifest.until_offset if manifest else 0


def archive_of(path: PathName, archive: str) -> LocalPlace | None:
    """The archive that belongs to a path: itself, the one that is named, or the store's own."""
    shown = str(path)
    if archive == "none":
        return None
    if archive:
        return local_place(archive)
    if is_url(shown) or is_archive(path):
        return local_place(shown)
    mark = read_mark(path)
    return local_place(mark.where) if mark else None


def is_archive(path: PathName) -> bool:
    """Whether a path is an archive, not a store."""
    shown = str(path)
    return is_url(shown) or bool(LocalPlace(shown, Path(path)).names(FOLDER))


def _archived(place: LocalPlace, manifest: Manifest, scope: Scope) -> list[Part]:
    until = manifest.until_offset
    if scope.until_offset is not None:
        until = min(until, scope.until_offset)
    return [
        Part(str(place.path(file.name)), until, file.size, archive=place.where)
        for file in manifest.files
        if file.may_hold(scope, until)
    ]


def _logged(
    path: PathName, scope: Scope, place: LocalPlace | None, tail: Tail | None
) -> list[Part]:
    end = (tail or Tail(path)).end()
    where = place.where if place else ""
    return [
        Part(segment.file, segment.until_offset, segment.size, segment, where)
        for segment in segments_for(path, scope, end)
    ]


def _check_loss(scope: Scope, manifest: Manifest | None, begin: int) -> None:
    """Who goes on from an offset must not pass over what is gone without a word."""
    oldest = min(begin, manifest.first_offset) if manifest else begin
    if scope.fails_on_loss and 0 < scope.first_offset < oldest:
        detail = f"they were let go; the oldest that is left is {oldest}"
        raise HistoryGone(first=scope.first_offset, last=oldest - 1, detail=detail)


# ---- reading


def read_part(part: Part, scope: Scope, columns: Sequence[str]) -> Iterator[list[Event]]:
    """Batches of the events of a part; columns: those that must be filled.

    HistoryGone when it was let go before it was read.
    """
    if part.segment is None:
        from hms.history import archive_files  # noqa: PLC0415 - needs pyarrow

        yield from archive_files.read_events(part.file, scope, part.until_offset, columns)
        return
    events = read_events(records_of(part.segment), scope, columns, part.until_offset)
    yield from _batches(events)


def read_batches(part: Part, scope: Scope, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """Arrow batches of a part, of exactly that schema."""
    from hms.history import archive_files  # noqa: PLC0415 - needs pyarrow

    if part.segment is None:
        yield from archive_files.read_batches(part.file, scope, part.until_offset, schema)
        return
    is_begun = False
    try:
        for batch in _log_batches(part.segment, scope, part.until_offset, schema):
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


def _log_batches(
    segment: Segment, scope: Scope, until: int, schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    records = records_of(segment)
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
    tests = [*([selector_test(scope.selector)] if scope.selector else [])]
    if scope.message_ids:
        names = {f"{number:012x}" for number in scope.message_ids}
        tests.insert(0, lambda event: event.message_id in names)
    decoder = EventDecoder(columns=_needed(scope, columns))
    for run in read_runs(records, scope, until_offset):
        for event in decoder.expand(run):
            if all(test(event) for test in tests):
                yield event


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
