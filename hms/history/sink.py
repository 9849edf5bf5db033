"""The sink: what `df.write.format("hms")` and `writeStream` do in Spark's tasks.

Each task sends its rows over a connection of its own, a few thousand a transaction, all confirmed
by the node before the task counts as done; a task that is tried again sends only what is missing
(sink_link). A task's rows become visible as its transactions commit, not with the whole job.
"""

import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from hms.errors.catalogue import SinkError
from hms.history.sink_link import ExactSender, Sent
from hms.history.sink_rows import Target, check_columns, messages_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

__all__ = ["WRITE_OPTIONS", "HmsStreamWriter", "HmsWriter", "Writing"]

WRITE_OPTIONS = ("address", "destination", "runId", "persistent", "ttl", "priority")
"""What `df.write.format("hms").option(…)` understands; case does not matter."""

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Under these names Spark tells a task which query and which batch of it it works for."""
_OF_SPARK = frozenset(("path", "checkpointlocation", "queryname"))
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Writing:
    """Where and how rows are sent. run_id: of all attempts that belong together."""

    address: str
    target: Target
    run_id: str
    persistent: bool = True
    ttl_s: float = 0.0

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: "StructType") -> "Writing":
        """What options ask for; raises SinkError for what is not understood."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        address = given.get("address", "")
        if not address.startswith(("tcp://", "ipc://")):
            detail = f"address {address!r} is not of the form tcp://HOST:PORT or ipc://PATH"
            raise SinkError(detail=detail)
        target = Target(given.get("destination", ""), int(_number(given, "priority", 4, 9)))
        check_columns(schema.names, target)
        persistent = given.get("persistent", "true").lower()
        if persistent not in _TRUTH:
            raise SinkError(detail=f"persistent is true or false, not {persistent!r}")
        ttl_s = _number(given, "ttl", 0, math.inf)
        return cls(address, target, given.get("runid", ""), _TRUTH[persistent], ttl_s)

    def send(self, run_id: str, part: int, batches: "Iterator[pa.RecordBatch]") -> Sent:
        """Send the rows of a task; all of them are confirmed when this returns."""
        how = {"client_name": "spark", "persistent": self.persistent, "ttl_s": self.ttl_s}
        with ExactSender(self.address, run_id, part, **how) as sender:  # type: ignore[arg-type]
            return sender.send(messages_of(batches, self.target))


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in WRITE_OPTIONS}
    for name in given:
        if name not in known and name not in _OF_SPARK:
            near = get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {known[near[0]]!r}?"
                if near
                else f"known are {', '.join(WRITE_OPTIONS)}"
            )
            raise SinkError(detail=f"there is no option {name!r} ({hint})")


def _number(given: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = given.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or math.isinf(value):
        raise SinkError(detail=f"{name} is a number from 0 on, not {text!r}")
    return value


@dataclass
class Done(WriterCommitMessage):  # type: ignore[misc]
    """What a task did."""

    rows: int
    repeated: int


class HmsWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Sends a frame; made on the driver, copied to the tasks."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._run_id = writing.run_id or uuid.uuid4().hex

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Done:
        """Send the rows of one task."""
        sent = self._writing.send(self._run_id, _context().partitionId(), iterator)
        return Done(sent.rows, sent.repeated)


class HmsStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Sends the batches of a query; one that comes again after a crash is recognised."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Done:
        """Send the rows of one task of one batch."""
        context = _context()
        query, batch = (context.getLocalProperty(name) for name in (_QUERY, _BATCH))
        if batch is None or not (query or self._writing.run_id):
            raise SinkError(detail="Spark does not tell of which query and batch they are")
        run_id = f"{self._writing.run_id or query}/{batch}"
        sent = self._writing.send(run_id, context.partitionId(), iterator)
        return Done(sent.rows, sent.repeated)

    def commit(self, messages: object, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every row of the batch was confirmed before."""

    def abort(self, messages: object, batchId: int) -> None:  # noqa: N803 - Spark's name
        """What was sent stays; the same batch, tried again, sends the rest."""


def _context() -> "TaskContext":
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    found = TaskContext.get()
    assert found is not None, "this runs in a task"
    return found
