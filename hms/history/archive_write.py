"""Writing a piece of the archive with Spark, and proving that it equals the log."""

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hms.errors.catalogue import ArchiveMismatch
from hms.history.archive_place import ArchivePlace
from hms.history.events import COLUMNS
from hms.history.manifest import ArchiveFile, known_destinations

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "DATA",
    "DRAFT",
    "HASHED",
    "WHOLE",
    "Summary",
    "files_of",
    "frame_of_files",
    "frame_of_log",
    "summary",
    "write_files",
]

DRAFT, DATA = "draft", "data"
"""Folders: what a run is writing, and the files that a manifest may name."""
FILE_LOG_BYTES = 256 * 1024 * 1024
"""So much of the log goes into one file, about: some tens of MiB of Parquet."""
_ROW_GROUP_BYTES = 32 * 1024 * 1024
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
HASHED = [name for name, kind in COLUMNS.items() if not kind.startswith("map")]
"""Maps have no hash; all that is in them is in the head as well."""
_ORDER = ("day", "destination_kind", "destination", "offset")
WHOLE = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


class Summary(NamedTuple):
    """What two sets of rows have alike only if they are the same ones."""

    rows: int
    proof: int


def frame_of_log(
    spark: "SparkSession",
    store: str,
    first: int,
    until: int,
    columns: Sequence[str] = tuple(COLUMNS),
) -> "DataFrame":
    """Rows of the log alone."""
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in columns)
    options = {"archive": "none", "startingOffsets": str(first), "endingOffsets": str(until)}
    return spark.read.format("hms").schema(schema).options(**options).load(store)


def frame_of_files(spark: "SparkSession", place: ArchivePlace, names: Sequence[str]) -> "DataFrame":
    """Rows of files of the archive."""
    # Spark takes what it reads for patterns, not what it writes.
    plain = [re.sub(r"([\\{}\[\]*?])", r"\\\1", place.url(name)) for name in names]
    return spark.read.schema(WHOLE).parquet(*plain)


def write_files(rows: "DataFrame", place: ArchivePlace, first: int, size: int) -> list[str]:
    """Write rows by day, destination and offset; the names of files that no manifest names yet.

    size: what they take in the log, which says how many files there will be.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    draft = f"{DRAFT}/{uuid.uuid4().hex}"
    days = F.expr("date_add(DATE'1970-01-01', CAST(unix_millis(time) DIV 86400000 AS INT))")
    count = max(1, -(-size // FILE_LOG_BYTES))
    spread = rows.withColumn("day", days.cast("string")).repartition(count, *_ORDER[:3])
    writer = spread.sortWithinPartitions(*_ORDER).write.partitionBy("day")
    options = {"compression": "zstd", "parquet.block.size": str(_ROW_GROUP_BYTES)}
    with _micros(rows.sparkSession):
        writer.options(**options).parquet(place.url(draft))
    return _take_over(place, draft, first)


@contextmanager
def _micros(spark: "SparkSession") -> Iterator[None]:
    """Times that other readers understand, and that pages can be passed over by."""
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMPS, before)


def _take_over(place: ArchivePlace, draft: str, first: int) -> list[str]:
    """Give the files of a draft their names, safe on the disk."""
    run = draft.rpartition("/")[2][:12]
    names = []
    for number, source in enumerate(sorted(place.files(draft))):
        folder, _, file = source.rpartition("/")
        if file.endswith(".parquet") and not file.startswith(("_", ".")):
            day = folder.rpartition("/")[2]
            names.append(f"{DATA}/{day}/{first:016d}-{run}-{number:05d}.parquet")
            place.move(source, names[-1])
    place.sync(names)
    place.remove(draft)
    return names


def summary(rows: "DataFrame") -> Summary:
    """How many rows there are, and a number drawn from all of them in any order."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    found = rows.agg(F.count("*"), F.bit_xor(_proof())).collect()[0]
    return Summary(found[0], found[1] or 0)


def _proof() -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    # A null alone leaves the hash as it is, so that it could stand in the wrong column.
    nulls = [F.col(name).isNull() for name in HASHED]
    return F.xxhash64(*[F.col(name) for name in HASHED], *nulls)


def files_of(
    spark: "SparkSession",
    place: ArchivePlace,
    names: Sequence[str],
    whole: Summary,
    span: tuple[int, int],
) -> list[ArchiveFile]:
    """What the manifest tells of files, which must hold the very rows that the summary is of.

    span: the first and last offset, for the error. ArchiveMismatch.
    """
    told = _statistics(frame_of_files(spark, place, names)) if names else []
    rows, proof = sum(row["rows"] for row in told), 0
    for row in told:
        proof ^= row["proof"]
    if (rows, proof) != whole:
        detail = f"{rows} rows of {whole.rows}" if rows != whole.rows else "rows differ"
        raise ArchiveMismatch(where=place.where, first=span[0], last=span[1], detail=detail)
    sizes = place.files(DATA)
    by_file = {name.rpartition("/")[2]: name for name in names}
    return [_file(by_file[row["file"]], sizes, row) for row in told]


def _statistics(rows: "DataFrame") -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    place = F.concat_ws(":", "destination_kind", "destination")
    grouped = rows.groupBy(F.element_at(F.split(F.input_file_name(), "/"), -1).alias("file"))
    told: list[Any] = grouped.agg(
        F.count("*").alias("rows"),
        F.bit_xor(_proof()).alias("proof"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min(F.unix_millis("time")).alias("from_ms"),
        F.max(F.unix_millis("time")).alias("to_ms"),
        F.collect_set(place).alias("destinations"),
        F.collect_set("event").alias("events"),
    ).collect()
    return told


def _file(name: str, sizes: dict[str, int], row: Any) -> ArchiveFile:
    day = name.split("/")[1].removeprefix("day=")
    return ArchiveFile(
        name,
        day,
        row["rows"],
        sizes[name],
        *(row["first"], row["last"], row["from_ms"], row["to_ms"]),
        known_destinations(row["destinations"]),
        sorted(row["events"]),
    )
