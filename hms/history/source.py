"""The data source "hms": what `spark.read.format("hms")` reads.

Spark calls these methods by keyword, so their parameters keep Spark's names. Spark hands out no
list of needed columns: who needs few gives a schema with those, which spares decoding the rest.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from field_buffer.catalogue import HistoryError, NotSupported
from hms.history.events import COLUMNS
from hms.history.scan import Part, plan, read_part, selector_test, to_record_batch
from hms.history.scope import Scope, parse_scope

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["HmsDataSource", "HmsReader"]


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
        path = self.options.get("path")
        if not path:
            raise HistoryError(detail="no path; give .load(PATH), the directory of the store")
        return HmsReader(path, parse_scope(self.options), schema)

    def streamReader(self, schema: "StructType") -> NoReturn:  # noqa: N802, ARG002 - Spark's name
        """Refused."""
        raise NotSupported(
            feature='spark.readStream.format("hms")',
            instead='Use spark.read.format("hms") and go on from startingOffsets.',
        )

    def simpleStreamReader(self, schema: "StructType") -> NoReturn:  # noqa: N802 - Spark's name
        """Refused."""
        self.streamReader(schema)

    def writer(self, schema: "StructType", overwrite: bool) -> NoReturn:  # noqa: ARG002
        """Refused."""
        raise NotSupported(
            feature='df.write.format("hms")',
            instead="Use hms.history.replay() to send history into a destination.",
        )

    def streamWriter(self, schema: "StructType", overwrite: bool) -> NoReturn:  # noqa: N802
        """Refused."""
        self.writer(schema, overwrite)


class HmsReader(DataSourceReader):  # type: ignore[misc]
    """Reads the parts of a scope; made on the driver, copied to the executors."""

    def __init__(self, path: str, scope: Scope, schema: "StructType") -> None:
        unknown = [name for name in schema.names if name not in COLUMNS]
        if unknown:
            raise HistoryError(detail=f"there is no column {unknown[0]!r}")
        if scope.selector:
            selector_test(scope.selector)  # a wrong selector is refused before anything is read
        self._path = path
        self._scope = scope
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per segment, in the order of the log."""
        return [InputPartition(part) for part in plan(self._path, self._scope)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The Arrow batches of a partition; Spark makes one of nothing when there is no history."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - needs pyarrow

        part: Part | None = partition.value
        if part is None:
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for events in read_part(part, self._scope, self._schema.names):
            yield to_record_batch(events, schema)
