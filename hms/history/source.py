"""The data source "hms": what `spark.read`, `readStream`, `write` and `writeStream` find.

Spark calls these methods by keyword, so their parameters keep Spark's names. Spark hands out no
list of needed columns: who needs few gives a schema with those, which spares decoding the rest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from hms.errors.catalogue import HistoryError, SinkError
from hms.history.events import COLUMNS
from hms.history.pushed import narrowed
from hms.history.scan import Part, plan, read_batches
from hms.history.scope import Scope, parse_scope
from hms.history.selection import selector_test

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from hms.history.sink import HmsStreamWriter, HmsWriter
    from hms.history.stream import HmsStreamReader

__all__ = ["HmsDataSource", "HmsReader", "PushingHmsDataSource"]

PARTITIONS = 256
"""Parts that are smaller than this share of all are read together."""


class HmsDataSource(DataSource):  # type: ignore[misc]
    """The history in a store's directory; see docs/reference/history.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(…)`."""
        return "hms"

    def schema(self) -> str:
        """All columns; a user's own `.schema(…)` may name fewer."""
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> "HmsReader":
        """A reader of one consistent picture of the history."""
        return HmsReader(self._path(), parse_scope(self.options), schema)

    def streamReader(self, schema: "StructType") -> "HmsStreamReader":  # noqa: N802 - Spark's name
        """A reader that follows the history."""
        from hms.history.stream import HmsStreamReader  # noqa: PLC0415 - newer than the rest

        options = dict(self.options.items())
        starting = "startingoffsets"
        is_latest = options.get(starting, "").lower() == "latest"
        if is_latest:
            del options[starting]
        scope = parse_scope(options)
        _check(scope, schema)
        return HmsStreamReader(self._path(), scope, schema, is_latest=is_latest)

    def simpleStreamReader(self, schema: "StructType") -> NoReturn:  # noqa: N802, ARG002 - Spark's
        """Never asked for: there is the other one."""
        raise HistoryError(detail="a stream reads the history by streamReader()")

    def writer(self, schema: "StructType", overwrite: bool) -> "HmsWriter":
        """A writer that sends the frame's rows as messages."""
        from hms.history.sink import HmsWriter, Writing  # noqa: PLC0415 - loads the client

        if overwrite:
            raise SinkError(detail='messages cannot be overwritten; write with .mode("append")')
        return HmsWriter(Writing.parse(self.options, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,
    ) -> "HmsStreamWriter":
        """A writer that sends each batch's rows as messages."""
        from hms.history.sink import HmsStreamWriter, Writing  # noqa: PLC0415 - loads the client

        if overwrite:
            raise SinkError(detail='messages cannot be overwritten; use .outputMode("append")')
        return HmsStreamWriter(Writing.parse(self.options, schema))

    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise HistoryError(detail="no path; give .load(PATH), the directory of the store")
        return str(path)


class PushingHmsDataSource(HmsDataSource):
    """The same for sessions that let data sources see filters; hms.history.register() does both.

    Spark refuses every reading of a source that wants filters where that is not switched on. It is
    only done with the option `pushdown`: two scans of one DataFrame in one query share the reader,
    and the filters of one would hold for the other too.
    """

    def reader(self, schema: "StructType") -> "HmsReader":
        """A reader that takes over Spark's filters."""
        scope = parse_scope(self.options)
        reader = _PushingReader if scope.pushes_down else HmsReader
        return reader(self._path(), scope, schema)


class HmsReader(DataSourceReader):  # type: ignore[misc]
    """Reads the parts of a scope; made on the driver, copied to the executors."""

    def __init__(self, path: str, scope: Scope, schema: "StructType") -> None:
        _check(scope, schema)
        self._path = path
        self._scope = scope
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per segment or file of the archive; small ones together."""
        return [InputPartition(parts) for parts in _together(plan(self._path, self._scope))]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The Arrow batches of a partition; Spark makes one of nothing when there is no history."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - needs pyarrow

        parts: list[Part] | None = partition.value
        for part in parts or ():
            schema = to_arrow_schema(self._schema, timezone="UTC")
            yield from read_batches(part, self._scope, schema)


class _PushingReader(HmsReader):
    """Leaves out what Spark's filters would drop anyway."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Spark applies all of them again, as they hold for single rows too."""
        self._scope = narrowed(self._scope, filters)
        return filters


def _together(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """A partition costs Spark milliseconds, and a history may have thousands of segments that were
    sealed early: small neighbours are read one after the other in one. Of a range of a database the
    size is not known."""
    most = sum(part.size for part in parts) // PARTITIONS
    group, size = list[Part](), 0
    for part in parts:
        if group and (part.table is not None or size + part.size > most):
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size
    if group:
        yield group


def _check(scope: Scope, schema: "StructType") -> None:
    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise HistoryError(detail=f"there is no column {unknown[0]!r}")
    if scope.selector:
        selector_test(scope.selector)  # a wrong selector is refused before anything is read
