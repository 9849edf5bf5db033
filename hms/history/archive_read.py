"""Reading archive and log as one table, natively: Spark's own Parquet reader for what is archived.

The same rows as `spark.read.format("hms")`, several times as fast for the archived part, of which
Spark reads only the columns and pages that a query needs.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from hms.history.archive_hadoop import place_of
from hms.history.archive_mark import read_mark
from hms.history.archive_place import ArchivePlace, is_url
from hms.history.archive_write import WHOLE, frame_of_files
from hms.history.events import COLUMNS, Event
from hms.history.faults import as_own
from hms.history.manifest import Manifest, load_manifest
from hms.history.planning import check_kinship
from hms.history.scan import PathName, is_archive, plan
from hms.history.scope import WITH_HEAD, Scope, parse_scope
from hms.history.segments import Tail, survey
from hms.history.selection import selector_test
from hms.history.spark import register, require_spark
from hms.history.tables import is_database, tables_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["archived_until", "end_offset", "first_offset", "read"]


def read(
    spark: "SparkSession",
    path: PathName,
    *,
    archive: str | None = None,
    columns: Sequence[str] | None = None,
    **options: str,
) -> "DataFrame":
    """The history as one table: what the archive has, and the log behind it. No order is promised.

    path: the directory of a store, or an archive's directory or URL; archive: where it lies when
    the store does not say so, "none" to leave it aside; columns: those that are needed, to spare
    decoding the others; options: as of format("hms"). Raises what parse_scope() and plan() raise,
    at once.
    """
    require_spark()
    register(spark)
    given = {**options, **({"archive": archive} if archive else {})}
    scope = parse_scope(given)
    if scope.selector:
        selector_test(scope.selector)
    names = list(columns or COLUMNS)
    with as_own():
        place, manifest = _archive(spark, path, archive)
        if place is None or manifest is None:
            return _logged(spark, path, names, given)
        rows = _archived(spark, place, manifest, scope).select(*names)
        if _is_archive_alone(path):
            return rows
        return rows.unionByName(_logged(spark, path, names, _behind(given, manifest)))


def _logged(
    spark: "SparkSession", path: PathName, columns: Sequence[str], options: dict[str, str]
) -> "DataFrame":
    plan(path, parse_scope(options))  # what is wrong is raised here, not in the middle of a job
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in columns)
    return spark.read.format("hms").schema(schema).options(**options).load(os.fspath(path))


def _behind(given: dict[str, str], manifest: Manifest) -> dict[str, str]:
    """The options for the log alone, from where the archive ends."""
    kept = {name: text for name, text in given.items() if name.lower() not in _REPLACED}
    first = parse_scope(given).first_offset
    return kept | {"archive": "none", "startingOffsets": str(max(first, manifest.until_offset))}


_REPLACED = frozenset(("archive", "startingoffsets"))


def _archive(
    spark: "SparkSession | None", path: PathName, archive: str | None
) -> tuple[ArchivePlace | None, Manifest | None]:
    where = _where(path, archive)
    if where is None:
        return None, None
    if spark is None:
        from hms.history.archive_place import local_place  # noqa: PLC0415

        place: ArchivePlace = local_place(where)
    else:
        place = place_of(spark, where)
    manifest = load_manifest(place)
    if manifest is not None and not _is_archive_alone(path):
        check_kinship(path, place.where, manifest)
    return place, manifest


def _where(path: PathName, archive: str | None) -> str | None:
    if is_database(path) or archive == "none":
        return None
    if archive:
        return archive
    if _is_archive_alone(path):
        return os.fspath(path)
    mark = read_mark(path)
    return mark.where if mark else None


def _is_archive_alone(path: PathName) -> bool:
    return not is_database(path) and (is_url(str(path)) or is_archive(path))


def _archived(
    spark: "SparkSession", place: ArchivePlace, manifest: Manifest, scope: Scope
) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    names = [file.name for file in manifest.files if file.may_hold(scope, scope.until_offset)]
    if not names:
        return spark.createDataFrame([], WHOLE)
    rows = frame_of_files(spark, place, names)
    for condition in _conditions(scope, manifest.until_offset):
        rows = rows.where(condition)
    if scope.selector:
        rows = rows.where(_selected(scope.selector))
    return rows if scope.includes_body else rows.withColumn("body", F.lit(None).cast("binary"))


def _conditions(scope: Scope, until: int) -> "Iterator[Column]":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    offset, time = F.col("offset"), F.col("time")
    yield offset >= scope.first_offset
    yield offset < (until if scope.until_offset is None else min(until, scope.until_offset))
    if scope.from_ms is not None:
        yield time >= F.timestamp_millis(F.lit(scope.from_ms))
    if scope.until_ms is not None:
        yield time < F.timestamp_millis(F.lit(scope.until_ms))
    if scope.events:
        yield F.col("event").isin(*sorted(scope.events))
    if scope.selector:
        yield F.col("event").isin(*sorted(WITH_HEAD))
    name = F.col("destination")
    places = [(name == text) & _kind_is(kind) for kind, text in scope.destinations]
    places += [name.rlike(text) & _kind_is(kind) for kind, text in scope.expressions()]
    if places:
        yield reduce(or_, places)


def _kind_is(kind: str | None) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.lit(True) if kind is None else F.col("destination_kind") == kind  # noqa: FBT003


_JUDGED = ("offset", "message_id", "timestamp", "expiration", "priority", "persistent", "head")


def _selected(selector: str) -> "Column":
    """The broker's own judgement, batch by batch in Spark's workers."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    times = {"timestamp", "expiration"}
    columns = [F.unix_millis(name) if name in times else F.col(name) for name in _JUDGED]
    return F.arrow_udf(_judge(selector), "boolean")(*columns)


def _judge(selector: str) -> Callable[..., Any]:
    def judge(*columns: "pa.Array") -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        test, blank = selector_test(selector), Event(0, "", 0, "", None, None, None)
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array(
            [test(blank._replace(**dict(zip(_JUDGED, row, strict=True)))) for row in rows]
        )

    judge.__annotations__ = {}
    return judge


def archived_until(path: PathName, archive: str | None = None) -> int:
    """Offsets below this one come from the archive; 0 when there is none. Not for Hadoop URLs."""
    manifest = _archive(None, path, archive)[1]
    return manifest.until_offset if manifest else 0


def first_offset(path: PathName, archive: str | None = None) -> int:
    """The oldest offset that can be read. Not for Hadoop URLs."""
    if is_database(path):
        return next((table.first_offset for table in tables_for(str(path), Scope())), 1)
    manifest = _archive(None, path, archive)[1]
    return manifest.first_offset if manifest else survey(path)[0].first_lsn


def end_offset(path: PathName, archive: str | None = None) -> int:
    """The first offset that is not there yet. Not for Hadoop URLs."""
    if is_database(path):
        return max((table.until_offset for table in tables_for(str(path), Scope())), default=1)
    if _is_archive_alone(path):
        return archived_until(path, archive)
    return Tail(path).end()
