"""Columns: from runs of events to Arrow batches, without a Python object for each cell.

What is alike in a run is one value with a length, ids and offsets are counted by numpy, and what
stands in a message itself is looked at one by one: by compiled loops (see message_arrays), or here
where nothing is compiled.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from hms.history.events import KINDS, expiration_ms
from hms.history.heads import HEAD_FIELDS, head_fields
from hms.history.message_arrays import MessageArrays
from hms.history.runs import Run
from hms.wire.packed_messages import ROW, Row, unpack_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "arrow_array", "batches_of"]

BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends at this many rows or bytes of heads and bodies, whichever comes first."""

_ID_DIGITS = 12
_NIBBLES = b"0123456789abcdef"
_MAPS = frozenset(HEAD_FIELDS[3:])
_OF_RUNS: dict[str, Callable[[Run], Any]] = {
    "event": lambda run: run.event,
    "time": lambda run: run.time,
    "destination": lambda run: run.place.destination,
    "destination_kind": lambda run: run.place.kind,
    "subscription": lambda run: run.place.subscription,
    "transaction": lambda run: run.transaction,
    "cause": lambda run: run.cause,
    "operation": lambda run: run.operation,
    "persistent": lambda _: True,
}
_WITHOUT_MESSAGES = {"offset", "message_id", "subscriptions", *_OF_RUNS}
_OF_ROWS: dict[str, Callable[[Row], Any]] = {
    "priority": lambda row: row.priority,
    "kind": lambda row: KINDS[row.kind] if row.kind < len(KINDS) else None,
}


def batches_of(
    runs: Iterable[Run], schema: "pa.Schema", left_out: Collection[str] = ()
) -> "Iterator[pa.RecordBatch]":
    """Arrow batches of exactly that schema; left_out: columns that stay empty."""
    waiting: list[Run] = []
    rows = size = 0
    for run in _small(runs):
        waiting.append(run)
        rows += run.size
        size += len(run.sent.pack) * run.size // run.sent.message_count if run.sent else 0
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _Batch(waiting, rows, left_out).to_arrow(schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _Batch(waiting, rows, left_out).to_arrow(schema)


def _small(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs of a batch's size at most."""
    for run in runs:
        if run.size <= BATCH_ROWS:
            yield run
            continue
        for start in range(run.offset, run.offset + run.size, BATCH_ROWS):
            cut = run.between(start, start + BATCH_ROWS)
            assert cut is not None
            yield cut


class _Batch:
    """The runs of one batch."""

    def __init__(self, runs: list[Run], rows: int, left_out: Collection[str]) -> None:
        import numpy as np  # noqa: PLC0415 - an optional package

        self._np, self._runs, self._rows = np, runs, rows
        self._left_out = left_out
        self._sizes = np.array([run.size for run in runs], np.int64)
        self._run_of = np.repeat(np.arange(len(runs)), self._sizes)
        starts = np.cumsum(self._sizes) - self._sizes
        self._place = np.arange(rows) - starts[self._run_of]
        self._messages: _Messages | None = None
        self._arrays: MessageArrays | None = None
        self._has_messages = any(run.sent is not None for run in runs)

    def to_arrow(self, schema: "pa.Schema") -> "pa.RecordBatch":
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        names = set(schema.names).difference(self._left_out, _WITHOUT_MESSAGES)
        if names and self._has_messages:
            self._arrays = MessageArrays.of(self._runs, names)
        arrays = [self._column(field.name, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, kind: "pa.DataType") -> "pa.Array":
        if name == "offset":
            return _plain(self._counted([run.offset for run in self._runs]), kind)
        if name == "message_id":
            return self._ids().cast(kind)
        if name in _OF_RUNS:
            return self._of_runs(list(map(_OF_RUNS[name], self._runs)), kind)
        if name in self._left_out or not self._has_messages:
            return self._of_runs([], kind)
        if name == "subscriptions":
            return self._subscriptions(kind)
        return self._of_messages(name, kind)

    def _of_runs(self, values: list[Any], kind: "pa.DataType") -> "pa.Array":
        """A value for each run; most runs of a batch have the same transaction and cause: none."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        if not any(value is not None for value in values):
            return pa.nulls(self._rows, kind)
        return arrow_array(values, kind).take(_plain(self._run_of))

    def _subscriptions(self, kind: "pa.DataType") -> "pa.Array":
        if not any(run.place.kind == "topic" for run in self._runs):
            return self._of_runs([], kind)
        return arrow_array([names for run in self._runs for names in run.subscriptions()], kind)

    def _counted(self, firsts: list[int]) -> Any:
        return self._np.array(firsts, self._np.int64)[self._run_of] + self._place

    def _ids(self) -> "pa.Array":
        """Message ids as the client shows them: twelve hexadecimal digits."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        np, ids = self._np, self._counted([run.first_id for run in self._runs])
        shifts = np.arange(_ID_DIGITS - 1, -1, -1) * 4
        digits = np.frombuffer(_NIBBLES, np.uint8)[(ids[:, None] >> shifts) & 15]
        offsets = np.arange(0, (self._rows + 1) * _ID_DIGITS, _ID_DIGITS, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
        return pa.Array.from_buffers(pa.string(), self._rows, buffers)

    def _of_messages(self, name: str, kind: "pa.DataType") -> "pa.Array":
        """A column that only sent and forwarded rows have."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        if self._arrays is not None:
            return self._arrays.column(name, kind)
        if self._messages is None:
            self._messages = _Messages([run for run in self._runs if run.sent is not None])
        values = self._messages.column(name, kind)
        if self._messages.size == self._rows:
            return values
        np = self._np
        is_sent = np.array([run.sent is not None for run in self._runs])[self._run_of]
        return values.take(pa.array(np.cumsum(is_sent) - 1, mask=~is_sent))


class _Messages:
    """The messages of runs that have any, where nothing is compiled."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs
        self.size = sum(run.size for run in runs)
        self._rows: list[Row] = []
        self._stamps: list[int] = []
        self._heads: list[bytes] = []
        self._bodies: list[Any] = []
        self._fields: list[tuple[Any, ...]] | None = None
        for run in runs:
            self._take(run)

    def _take(self, run: Run) -> None:
        record = run.sent
        assert record is not None
        rows = unpack_rows(record.pack, record.message_count)
        start = len(rows) * ROW.size
        lengths = [row.head_bytes + row.body_bytes for row in rows]
        ends = list(accumulate(lengths, initial=start))
        wanted, view = slice(run.skipped, run.skipped + run.size), memoryview(record.pack)
        for row, (begin, end) in list(zip(rows, pairwise(ends), strict=True))[wanted]:
            middle = begin + row.head_bytes
            self._heads.append(bytes(view[begin:middle]))
            self._bodies.append(view[middle:end])
        self._rows += rows[wanted]
        self._stamps += [record.timestamp_ms] * run.size

    def column(self, name: str, kind: "pa.DataType") -> "pa.Array":
        """The values of one column."""
        if name in _MAPS:
            return _map_array(self._field(name), kind)
        return arrow_array(self._values(name), kind)

    def _values(self, name: str) -> list[Any]:
        if name == "timestamp":
            return self._stamps
        if name == "expiration":
            both = zip(self._stamps, self._rows, strict=True)
            return [expiration_ms(at, row.ttl_ms) for at, row in both]
        if name in _OF_ROWS:
            return list(map(_OF_ROWS[name], self._rows))
        if name in ("head", "body"):
            return self._heads if name == "head" else self._bodies
        return self._field(name)

    def _field(self, name: str) -> list[Any]:
        place = HEAD_FIELDS.index(name)
        return [fields[place] for fields in self._head()]

    def _head(self) -> list[tuple[Any, ...]]:
        if self._fields is None:
            self._fields = [head_fields(head) for head in self._heads]
        return self._fields


def _map_array(values: list[dict[str, Any] | None], kind: "pa.DataType") -> "pa.Array":
    """Maps from all their keys and all their values: thrice as fast as from the maps."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    keys: list[str] = []
    items: list[Any] = []
    ends: list[int | None] = []
    for value in values:
        ends.append(None if value is None else len(keys))
        if value:
            keys.extend(value)
            items.extend(value.values())
    ends.append(len(keys))
    offsets = pa.array(ends, pa.int32())
    return pa.MapArray.from_arrays(
        offsets, arrow_array(keys, kind.key_type), arrow_array(items, kind.item_type)
    ).cast(kind)


def arrow_array(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Plain values as an array; times are milliseconds since 1970 UTC."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("ms", kind.tz)).cast(kind)
    return pa.array(values, kind)


def _plain(values: Any, kind: "pa.DataType | None" = None) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    return pa.array(values, kind)
