"""Message arrays: what stands in the messages of runs, as Arrow arrays out of compiled loops.

One pass over the packs fills the buffers of all wanted columns, with a null for each event that has
no message. A head that says something unusual is read by `head_fields`, as everywhere.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from hms.history.events import KINDS, TIME_MS_MAX
from hms.history.heads import HEAD_FIELDS, head_fields
from hms.history.runs import Run
from hms.wire.packed_messages import ROW, message_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MessageArrays"]

_OF_PACKS = ("head", "body", *HEAD_FIELDS)
"""The columns that message_columns() makes, in its order."""
_ROW_FIELDS: Any = {
    "names": ["ttl_ms", "priority", "kind"],
    "formats": ["<u8", "u1", "u1"],
    "offsets": [8, 24, 25],
    "itemsize": ROW.size,
}


class MessageArrays:
    """The columns that only sent and forwarded rows have, for all events of some runs."""

    def __init__(self, found: Sequence[Any], runs: Sequence[Run]) -> None:
        import numpy as np  # noqa: PLC0415 - an optional package

        self._np, self._found = np, dict(zip(_OF_PACKS, found[1:], strict=True))
        self._rows: Any = np.frombuffer(found[0], _ROW_FIELDS)
        sizes = [run.size for run in runs]
        stamps = [run.sent.timestamp_ms if run.sent else 0 for run in runs]
        self._stamps = np.repeat(np.array(stamps, np.int64), sizes)
        self._absent = np.repeat(np.array([run.sent is None for run in runs]), sizes)

    @classmethod
    def of(cls, runs: Sequence[Run], names: Collection[str]) -> "MessageArrays | None":
        """The arrays; None where nothing is compiled, or when a pack does not add up.

        names: the columns that will be asked for.
        """
        if message_columns is None:
            return None
        wanted = sum(1 << i for i, name in enumerate(_OF_PACKS) if name in names)
        packs = [
            (run.sent.pack, run.sent.message_count, run.skipped, run.size)
            if run.sent
            else (None, 0, 0, run.size)
            for run in runs
        ]
        found = message_columns(packs, wanted, head_fields)
        return None if found is None else cls(found, runs)

    def column(self, name: str, kind: "pa.DataType") -> "pa.Array":
        """The values of one column."""
        if name in self._found:
            return self._of_packs(name).cast(kind)
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        if name == "kind":
            numbers = pa.array(self._rows["kind"], mask=self._absent)
            return pa.array([*KINDS, *[None] * (256 - len(KINDS))], kind).take(numbers)
        if name == "priority":
            return pa.array(self._rows["priority"], mask=self._absent).cast(kind)
        absent = self._absent if name == "timestamp" else self._absent | ~self._expires()
        # What is too late for a timestamp is masked, and the sum of what is not stays small.
        ttl = 0 if name == "timestamp" else self._rows["ttl_ms"].astype(self._np.int64)
        return pa.array(self._stamps + ttl, pa.timestamp("ms", kind.tz), mask=absent).cast(kind)

    def _expires(self) -> Any:
        ttl, stamps = self._rows["ttl_ms"], self._stamps.astype(self._np.uint64)
        is_early = (ttl <= TIME_MS_MAX) & (stamps <= TIME_MS_MAX)
        return (ttl > 0) & is_early & (stamps + ttl <= TIME_MS_MAX)

    def _of_packs(self, name: str) -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        size, buffers = len(self._rows), [_buffer(data) for data in self._found[name]]
        if name in ("head", "body"):
            return pa.Array.from_buffers(pa.binary(), size, buffers)
        if name in HEAD_FIELDS[:3]:
            return pa.Array.from_buffers(pa.string(), size, buffers)
        valid, offsets, key_ends, key_data, *items = buffers
        kind = pa.map_(pa.string(), _ITEMS[name](pa))
        pairs = key_ends.size // 4 - 1
        keys = pa.Array.from_buffers(pa.string(), pairs, [None, key_ends, key_data])
        values = pa.Array.from_buffers(kind.item_type, pairs, [None, *items])
        both = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, size, [valid, offsets], children=[both])


_ITEMS = {
    "properties": lambda pa: pa.string(),
    "string_properties": lambda pa: pa.string(),
    "long_properties": lambda pa: pa.int64(),
    "double_properties": lambda pa: pa.float64(),
    "boolean_properties": lambda pa: pa.bool_(),
}


def _buffer(data: bytes | None) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    return None if data is None else pa.py_buffer(data)
