"""Reading for replays: rows in the order of the log, window after window.

A window is a stretch of offsets, a segment of the log where there is one. Each is a small Spark job
of its own, and a few run ahead of the one that is wanted next: so a sender is busy while the next
rows are read, the driver holds little at a time, and what an archive has in another order is sorted
where it is small.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hms.engine.settings import REPLAY_QUEUE
from hms.history.archive_place import is_url
from hms.history.archive_read import archived_until, end_offset, first_offset, read
from hms.history.chunks import COLUMNS
from hms.history.events import COLUMNS as KINDS
from hms.history.faults import as_own
from hms.history.scan import PathName, is_archive
from hms.history.segments import survey
from hms.history.tables import is_database

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Window",
    "archived_until",
    "chosen",
    "end_offset",
    "first_offset",
    "in_order",
    "is_archive_alone",
    "narrow",
    "spark_faults",
    "windows",
]

WINDOW_OFFSETS = 250_000
"""The size of a window where no segment sets one."""
WINDOW_BYTES = 32 * 1024 * 1024
"""And the least bytes of one where segments do."""
AHEAD_MAX = 4
"""So many windows are read at once at most; the driver holds them."""

_NO_LEDGER = f"NOT (destination <=> '{REPLAY_QUEUE}' AND destination_kind <=> 'queue')"
"""An old entry that comes again would set its run back, and what it has sent would go out twice."""

Window = tuple[int, int]
"""The first offset, and the one behind the last."""


def is_archive_alone(path: PathName) -> bool:
    """Whether it is no store, but an archive."""
    return not is_database(path) and (is_url(str(path)) or is_archive(path))


def windows(path: PathName, first: int, until: int) -> list[Window]:
    """What lies between two offsets, in windows, in order."""
    begins = _begins(path, first)
    steps = range(first, min([*begins, until]), WINDOW_OFFSETS)
    cuts = sorted({first, *steps, *(at for at in begins if first < at < until), until})
    return list(pairwise(cuts))


def _begins(path: PathName, first: int) -> list[int]:
    """Where windows over the log begin: every segment, or every few where segments are small, as
    each window costs a job."""
    if is_database(path) or is_archive_alone(path):
        return []
    behind, begins, size = max(first, archived_until(path)), list[int](), WINDOW_BYTES
    for segment in survey(path):
        if segment.first_lsn >= behind and size >= WINDOW_BYTES:
            begins.append(segment.first_lsn)
            size = 0
        size += segment.size
    return begins


def chosen(
    spark: "SparkSession",
    path: str,
    options: Mapping[str, str],
    window: Window,
    *,
    with_body: bool = True,
) -> "DataFrame":
    """The messages of a window that options ask for, in order, but for the ledgers of replays."""
    names = [name for name in COLUMNS if with_body or name != "body"]
    offsets = {"startingOffsets": str(window[0]), "endingOffsets": str(window[1])}
    given = {**options, **offsets, "view": "messages"}
    frame = narrow(spark, path, names, given).where(_NO_LEDGER)
    return frame.orderBy("offset") if window[0] < archived_until(path) else frame


def narrow(
    spark: "SparkSession", path: str, names: Sequence[str], given: Mapping[str, str]
) -> "DataFrame":
    """Some columns of the history; of the log alone only those are decoded."""
    if archived_until(path):
        return read(spark, path, columns=names, **given).select(*names)
    schema = ", ".join(f"{name} {KINDS[name]}" for name in names)
    return spark.read.format("hms").schema(schema).options(**given).load(path)


def in_order(
    spark: "SparkSession", wanted: Sequence[Window], read: Callable[[Window], "pa.Table"]
) -> Iterator["pa.Table"]:
    """What each window gives, in order, the next ones being read meanwhile."""
    ahead = max(2, min(AHEAD_MAX, spark.sparkContext.defaultParallelism))
    left, running = deque(wanted), deque[Future[Any]]()
    pool = ThreadPoolExecutor(ahead, thread_name_prefix="hms-history")
    try:
        while left or running:
            while left and len(running) < ahead:
                running.append(pool.submit(read, left.popleft()))
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


spark_faults = as_own
"""What fails in Spark is raised as our own error."""
