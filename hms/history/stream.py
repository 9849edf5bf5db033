"""The stream: `spark.readStream.format("hms")`, exact over restarts from its checkpoint.

An offset of the stream, {"offset": n, "node": uid, "store": …, "boot": …}, is the first offset of
the history that was not read yet: a number of that node's log that holds wherever the events lie by
then; store and boot say who wrote what stands before it (see identity). Only what is safe is shown.
A batch is cut into ranges of offsets that follow from its beginning and end alone, and each range
is read in order: a batch that is repeated after a crash has the same rows in the same tasks,
whatever the node or an archive has moved meanwhile, so that a sink recognises them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from hms.errors.catalogue import HistoryError
from hms.history.identity import check_writer
from hms.history.manifest import load_manifest
from hms.history.scan import Part, PathName, archive_of, is_archive, plan, read_batches
from hms.history.scope import Scope
from hms.history.segments import Tail, survey
from hms.history.tables import is_database
from hms.records import Writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["HmsStreamReader"]

Offset = dict[str, int | str]
OFFSETS_MAX = 1_000_000
"""A batch has no more offsets unless maxOffsetsPerTrigger says so."""
RANGE_OFFSETS = 65_536
RANGES_MAX = 64
"""A batch is cut into ranges of that size, or larger ones so that they are no more."""


class HmsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans on the driver; is copied to the tasks, which read."""

    def __init__(
        self, path: PathName, scope: Scope, schema: "StructType", *, is_latest: bool
    ) -> None:
        if is_database(path):
            detail = "a stream follows the log of a store; a database is read with spark.read"
            raise HistoryError(detail=detail)
        if is_archive(path):
            detail = "a stream follows a store; give its directory, not that of an archive"
            raise HistoryError(detail=detail)
        if scope.until_offset is not None:
            raise HistoryError(detail="a stream has no end; leave endingOffsets out")
        self._path, self._scope, self._schema = path, scope, schema
        self._is_latest = is_latest
        self._tail = Tail(path)
        self._node = survey(path)[0].node_uid
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a query begins that has no checkpoint."""
        if self._is_latest:
            return self._at(self._tail.end())
        return self._at(self._scope.first_offset or first_offset(self._path, self._scope))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch takes."""
        return ReadMaxRows(self._scope.offsets_max or OFFSETS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From here on nothing that comes later is shown."""
        self._target = self._tail.end()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """How far a query might read now."""
        return self._at(self._tail.end())

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset, limit: ReadLimit
    ) -> Offset:
        """The end of the next batch; HistoryError when the log ends before its beginning."""
        first, end = self._offset(start), self._tail.end()
        if end < first:
            detail = f"the log of {self._path} ends at offset {end}, and the checkpoint goes on at "
            detail += f"{first}: it is of another store, or this one was set back to an older state"
            raise HistoryError(detail=detail)
        if self._target is not None:
            end = max(first, min(end, self._target))
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + max(1, limit.max_rows))
        elif not isinstance(limit, ReadAllAvailable):
            raise HistoryError(detail=f"a limit of the kind {type(limit).__name__} is not known")
        return self._at(end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One partition for each range of a batch; HistoryGone when its beginning is gone."""
        first, until = self._offset(start), self._offset(end)
        if first >= until:
            return []
        scope = replace(self._scope, first_offset=first, until_offset=until)
        parts = plan(self._path, scope, self._tail)
        return [InputPartition((one, parts_of(parts, one))) for one in ranges_of(first, until)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The Arrow batches of a range, in the order of the log."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - needs pyarrow

        value: Any = partition.value
        if value is None:
            return
        (first, until), parts = value
        scope = replace(self._scope, first_offset=first, until_offset=until)
        yield from _in_order(parts, scope, to_arrow_schema(self._schema, timezone="UTC"))

    def _at(self, offset: int) -> Offset:
        writer = self._tail.writer_before(offset)._asdict()
        known = {name: number for name, number in writer.items() if number}
        return {"offset": offset, "node": self._node, **known}

    def _offset(self, at: Offset) -> int:
        """The offset in a checkpoint. HistoryError for that of another node's log."""
        node = at.get("node", self._node)
        if node != self._node:
            detail = f"the checkpoint is of node {node}, and {self._path} of node {self._node}: it "
            detail += "is of another store; give its directory, or another checkpoint"
            raise HistoryError(detail=detail)
        offset = int(at["offset"])
        told = Writer(str(at.get("store", "")), str(at.get("boot", "")))
        check_writer("the checkpoint", self._path, offset, told, self._tail.writer_before(offset))
        return offset


def first_offset(path: PathName, scope: Scope) -> int:
    """The oldest offset that can be read."""
    place = archive_of(path, scope.archive)
    manifest = load_manifest(place) if place else None
    return manifest.first_offset if manifest else survey(path)[0].first_lsn


def ranges_of(first: int, until: int) -> list[tuple[int, int]]:
    """A batch's ranges; they follow from its two ends alone."""
    width = max(RANGE_OFFSETS, -((first - until) // RANGES_MAX))
    return [(at, min(at + width, until)) for at in range(first, until, width)]


def parts_of(parts: Sequence[Part], span: tuple[int, int]) -> list[Part]:
    """What of them may hold offsets of a range; a file of the archive may hold any."""
    first, until = span
    return [
        _up_to(part, min(until, part.until_offset))
        for part in parts
        if part.segment is None or (part.segment.first_offset < until and part.until_offset > first)
    ]


def _up_to(part: Part, until: int) -> Part:
    segment = part.segment and replace(part.segment, until_offset=until)
    return replace(part, until_offset=until, segment=segment)


def _in_order(
    parts: Sequence[Part], scope: Scope, schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    """The parts of the log are in order; the rows of an archive are put in order here."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    archived = [part for part in parts if part.segment is None]
    if archived:
        wider = (
            schema if "offset" in schema.names else schema.append(pa.field("offset", pa.int64()))
        )
        batches = [batch for part in archived for batch in read_batches(part, scope, wider)]
        table = pa.Table.from_batches(batches, wider).sort_by("offset").select(schema.names)
        yield from table.to_batches(max_chunksize=8192)
    for part in parts:
        if part.segment is not None:
            yield from read_batches(part, scope, schema)
