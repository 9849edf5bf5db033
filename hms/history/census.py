"""Census: what a replay would send, counted and not sent."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import MessageFormatError
from hms.history.chunks import REPLAY_RUN, is_file
from hms.history.reading import chosen, end_offset, first_offset, spark_faults
from hms.history.replay import check, source_name, wanted_options
from hms.history.scan import PathName
from hms.history.spark import borrowed_session
from hms.history.wanted import Wanted, When
from hms.wire.packed_messages import decode_head

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Census", "preview"]

_SCHEMA = (
    "destination string, kind string, messages bigint, copies bigint, first bigint, last bigint, "
    "files bigint"
)


@dataclass(frozen=True, slots=True)
class Census:
    """What of one destination would be sent: so many messages, into there; copies are left out,
    and files, whose content the history does not have."""

    destination: str
    into: str
    messages: int
    copies: int
    first_offset: int
    last_offset: int
    files: int = 0


def preview(
    spark: "SparkSession | None",
    path: PathName,
    *,
    destination: str = "",
    into: str,
    from_: When = None,
    to: When = None,
    selector: str = "",
    takes_copies: bool = False,
    master: str | None = None,
) -> list[Census]:
    """What replay() with the same arguments would send as a new run, by destination."""
    wanted = Wanted(into, wanted_options(destination, from_, to, selector), takes_copies)
    source = source_name(path)
    check(source, wanted.options)
    with borrowed_session(spark, "hms-replay", master) as session, spark_faults():
        window = (first_offset(source), end_offset(source))
        frame = chosen(session, source, wanted.options, window, with_body=False)
        counted = frame.mapInArrow(_count, _SCHEMA).groupBy("destination", "kind")
        sums = {"messages": "sum", "copies": "sum", "files": "sum", "first": "min", "last": "max"}
        rows = counted.agg(sums).orderBy("kind", "destination").collect()
    return [_census(row.asDict(), wanted) for row in rows]


def _census(row: dict[str, Any], wanted: Wanted) -> Census:
    name, kind = row["destination"] or "?", row["kind"] or "?"
    copies, all_of_it = row["sum(copies)"], row["sum(messages)"]
    sent = all_of_it if wanted.takes_copies else all_of_it - copies
    left_out = 0 if wanted.takes_copies else copies
    into, span = ":".join(wanted.target.place(name, kind)), (row["min(first)"], row["max(last)"])
    return Census(f"{kind}:{name}", into, sent, left_out, *span, row["sum(files)"])


@dataclass(slots=True)
class _Counted:
    """One destination of a batch; the order of _SCHEMA."""

    messages: int
    copies: int
    first: int
    last: int
    files: int


def _count(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Runs in Spark's workers: a row for each destination of a batch."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    for batch in batches:
        found: dict[tuple[str, str], _Counted] = {}
        names = ("destination", "destination_kind", "offset", "head", "kind")
        for name, kind, offset, head, body_kind in zip(
            *(batch.column(column).to_pylist() for column in names), strict=True
        ):
            counted = found.setdefault((name, kind), _Counted(0, 0, offset, offset, 0))
            if is_file(body_kind):
                counted.files += 1
            else:
                counted.messages += 1
                counted.copies += _is_copy(head or b"")
            counted.first, counted.last = min(counted.first, offset), max(counted.last, offset)
        rows = [(*place, *astuple(counted)) for place, counted in found.items()]
        columns = list(zip(*rows, strict=True)) or [()] * 7
        kinds = [pa.string()] * 2 + [pa.int64()] * 5
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        fields = [part.split()[0] for part in _SCHEMA.split(", ")]
        yield pa.RecordBatch.from_arrays(arrays, fields)


def _is_copy(head: bytes) -> bool:
    try:
        return REPLAY_RUN in decode_head(head).node
    except MessageFormatError:
        return False
