"""Reading for replays without Spark: the log of a store on this machine, in this process.

A replay of one log is bound by what the node takes and by one sender, which a loop in one thread
keeps busy; a session of Spark costs seconds before the first row and hands each row over between
Java and Python. Where an archive has part of the history, or many nodes are to read, Spark does it.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from hms.engine.settings import REPLAY_QUEUE
from hms.history.chunks import COLUMNS, Row, rows_in
from hms.history.events import COLUMNS as KINDS
from hms.history.reading import Window, archived_until, is_archive_alone
from hms.history.scan import PathName, plan, read_batches
from hms.history.scope import parse_scope
from hms.history.tables import is_database

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ahead", "is_read_here", "rows_of"]

_T = TypeVar("_T")


def is_read_here(path: PathName) -> bool:
    """Whether all of the history is the log in a directory."""
    return not (is_database(path) or is_archive_alone(path) or archived_until(path))


def rows_of(path: PathName, options: Mapping[str, str], window: Window) -> Iterator[Row]:
    """The messages of a window that options ask for, in order, but for the ledgers of replays: an
    old entry that comes again would set its run back."""
    offsets = {"startingOffsets": str(window[0]), "endingOffsets": str(window[1])}
    scope = parse_scope({**options, **offsets, "view": "messages"})
    schema = _schema()
    for part in plan(path, scope):
        for batch in read_batches(part, scope, schema):
            if REPLAY_QUEUE not in batch.column("destination").unique().to_pylist():
                yield from rows_in(batch)
                continue
            for row in rows_in(batch):
                if row.destination != REPLAY_QUEUE or row.destination_kind != "queue":
                    yield row


def ahead(items: Iterable[_T]) -> Generator[_T, None, None]:
    """The same items; the next one is made while the one before is in use."""
    left = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(1, thread_name_prefix="hms-history") as pool:
        coming = pool.submit(next, left, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, left, end)
            yield item


def _schema() -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    kinds = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, kinds[KINDS[name]]) for name in COLUMNS])
