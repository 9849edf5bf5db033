"""Files of the archive, read through Arrow: for the format "hms", and for counts without Spark."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import ArchiveError, SparkMissing
from hms.history.columns import BATCH_ROWS
from hms.history.events import Event
from hms.history.scope import WITH_HEAD, Scope
from hms.history.selection import selector_test

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_batches", "read_events"]

_SELECTED = ("offset", "message_id", "timestamp", "expiration", "priority", "persistent", "head")
"""What a selector looks at."""
_ALWAYS = (*_SELECTED[:2], "event", "time", "destination", "destination_kind", "subscription")


def read_batches(
    file: str, scope: Scope, until_offset: int, schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    """The rows of a file that a scope asks for, of exactly that schema."""
    names = list(dict.fromkeys([*schema.names, *(_SELECTED if scope.selector else ())]))
    for batch in _scan(file, scope, until_offset, names):
        found = _selected(batch, scope) if scope.selector else batch
        if found.num_rows:
            yield _as(found, schema, scope)


def read_events(
    file: str, scope: Scope, until_offset: int, columns: Sequence[str]
) -> Iterator[list[Event]]:
    """The same as events, with these columns filled and those that tell what happened where."""
    more = _SELECTED if scope.selector else ()
    names = list(dict.fromkeys([*_ALWAYS, *columns, *more]))
    for batch in _scan(file, scope, until_offset, names):
        found = _selected(batch, scope) if scope.selector else batch
        kept = [name for name in names if scope.includes_body or name != "body"]
        arrays = {name: _in_ms(found.column(name)) for name in kept}
        rows = zip(
            *(array.to_pylist(maps_as_pydicts="strict") for array in arrays.values()), strict=True
        )
        events = [Event(**dict(zip(arrays, row, strict=True))) for row in rows]
        if events:
            yield events


def _scan(
    file: str, scope: Scope, until_offset: int, names: list[str]
) -> "Iterator[pa.RecordBatch]":
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        import pyarrow.dataset as ds  # noqa: PLC0415 - an optional package
    except ImportError as fault:
        raise SparkMissing(what="an archive", package="pyarrow") from fault
    try:
        found = ds.dataset(file, format="parquet")
        condition = _condition(scope, until_offset)
        known = [name for name in names if name in found.schema.names]
        for batch in found.scanner(
            columns=known, filter=condition, batch_size=BATCH_ROWS
        ).to_batches():
            for name in names:
                if name not in known:  # a column that is younger than the file
                    batch = batch.append_column(name, pa.nulls(batch.num_rows))  # noqa: PLW2901
            yield batch
    except FileNotFoundError as fault:
        detail = "a file was replaced before it was read; start the reading again"
        raise ArchiveError(where=file, detail=detail) from fault
    except (OSError, pa.ArrowException) as fault:
        raise ArchiveError(where=file, detail=str(fault)) from fault


def _condition(scope: Scope, until_offset: int) -> Any:
    """What Parquet can pass over whole pages by."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional package

    time, name, kind = pc.field("time"), pc.field("destination"), pc.field("destination_kind")
    found = (pc.field("offset") >= scope.first_offset) & (pc.field("offset") < until_offset)
    for at_ms, is_from in ((scope.from_ms, True), (scope.until_ms, False)):
        if at_ms is not None:
            at = pa.scalar(at_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
            found &= time >= at if is_from else time < at
    events = (scope.events or WITH_HEAD) & WITH_HEAD if scope.selector else scope.events
    if scope.events or scope.selector:
        found &= pc.field("event").isin(sorted(events))
    if scope.message_ids:
        found &= pc.field("message_id").isin([f"{one:012x}" for one in sorted(scope.message_ids)])
    if scope.destinations or scope.patterns:
        either = pc.scalar(value=False)
        both = [(its_kind, name == its_name) for its_kind, its_name in scope.destinations]
        both += [
            (its_kind, pc.match_substring_regex(name, text))
            for its_kind, text in scope.expressions()
        ]
        for its_kind, one in both:
            either |= one if its_kind is None else one & (kind == its_kind)
        found &= either
    return found


def _selected(batch: "pa.RecordBatch", scope: Scope) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    test = selector_test(scope.selector)
    columns = [_in_ms(batch.column(name)).to_pylist() for name in _SELECTED]
    rows = zip(*columns, strict=True)
    blank = Event(0, "", 0, "", None, None, None)
    wanted = [test(blank._replace(**dict(zip(_SELECTED, row, strict=True)))) for row in rows]
    return batch.filter(pa.array(wanted, pa.bool_()))


def _in_ms(column: "pa.Array") -> "pa.Array":
    """Times as milliseconds since 1970 UTC; other columns as they are."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())


def _as(batch: "pa.RecordBatch", schema: "pa.Schema", scope: Scope) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    arrays = [
        pa.nulls(batch.num_rows, field.type)
        if field.name == "body" and not scope.includes_body
        else batch.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
