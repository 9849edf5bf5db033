"""What a rules table would have done with the dead letters of the past (hms dlq simulate).

The same matcher as the live handler's looks at each letter that came to the queue. That an action
succeeds is assumed: of each letter the first rule counts that means it. A selector is judged on
the letter as it came to the queue.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hms.client.letter_rules.letter_fields import fields_of
from hms.client.letter_rules.rules_table import Table
from hms.engine.messages import StoredMessage
from hms.history.events import KINDS
from hms.history.faults import as_own
from hms.history.reports.table import Asked
from hms.history.scan import PathName
from hms.history.scope import as_time_ms
from hms.history.selection import message_test
from hms.history.spark import borrowed_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["simulated"]

DEAD_LETTER_QUEUE = "HMS.DLQ"
EXAMPLES = 5
NO_RULE = -1
Fits = frozenset[str]
OF_SELECTORS = ("head", "priority", "timestamp", "expiration", "persistent")
COLUMNS = ("message_id", "kind", "reply_to", "correlation_id", "properties", "long_properties")


def simulated(
    table: Table,
    path: PathName,
    queue: str = "",
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    node: str = "",
    spark: "SparkSession | None" = None,
    master: str | None = None,
) -> dict[str, Any]:
    """Per rule matches and examples, letters that no rule takes, and how many came back. node: the
    name of the one that had them. HistoryError."""
    for selector in table.selectors:
        message_test(selector)  # a wrong one is refused before anything is read
    place = queue or table.control.input_queue or DEAD_LETTER_QUEUE
    with borrowed_session(spark, "hms-dlq-simulate", master) as session, as_own():
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's documents do

        asked = Asked(session, path, f"queue:{place}", since, until)
        columns = (*COLUMNS, *OF_SELECTORS) if table.selectors else COLUMNS
        frame = asked.events(*columns, event="forwarded")
        letters = frame.where(F.col("properties")["$DeadReason"].isNotNull())
        found = letters.mapInArrow(_matching(table, node), "message_id string, at int")
        found = found.cache()
        counted = {
            row.at: row
            for row in found.groupBy("at")
            .agg(
                F.count("*").alias("n"),
                F.slice(F.sort_array(F.collect_set("message_id")), 1, EXAMPLES).alias("ids"),
            )
            .collect()
        }
        every = found.groupBy("message_id").count()
        again = every.agg(F.coalesce(F.sum(F.col("count") - 1), F.lit(0)).alias("n")).first()
        found.unpersist()
    rules = [
        {
            "line": rule.line,
            "action": rule.action,
            "matched": counted[at].n if at in counted else 0,
            "examples": list(counted[at].ids) if at in counted else [],
        }
        for at, rule in enumerate(table.rules)
    ]
    unmatched = counted[NO_RULE].n if NO_RULE in counted else 0
    return {"rules": rules, "unmatched": unmatched, "again": again.n if again else 0}


def _matching(table: Table, node: str) -> Any:
    def match(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        tests = {selector: message_test(selector) for selector in table.selectors}
        for batch in batches:
            ids, ats = [], []
            for row in batch.to_pylist():
                ids.append(row["message_id"])
                ats.append(_first(table, node, row, _fits(tests, row)))
            names = ["message_id", "at"]
            yield pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ats, pa.int32())], names)

    return match


def _fits(tests: Mapping[str, Callable[[StoredMessage], bool]], row: dict[str, Any]) -> Fits:
    """The selectors that hold for a letter."""
    if not tests:
        return frozenset()
    head: bytes = row["head"] or b""
    message = StoredMessage.of(
        int(row["message_id"], 16),
        0,
        as_time_ms(row["timestamp"]) if row["timestamp"] else 0,
        as_time_ms(row["expiration"]) if row["expiration"] else 0,
        row["priority"] or 0,
        0,
        len(head),
        head,
        is_persistent=row["persistent"],
    )
    return frozenset(selector for selector, test in tests.items() if test(message))


def _first(table: Table, node: str, row: dict[str, Any], fits: Fits) -> int:
    """The place of the rule that means a letter first."""
    said = {**dict(row["properties"] or {}), **dict(row["long_properties"] or {})}
    own = {"JMSReplyTo": row["reply_to"], "JMSCorrelationID": row["correlation_id"]}
    said |= {name: value for name, value in own.items() if value is not None}
    kind = (row["kind"] or "").partition("+")[0]
    number = KINDS.index(kind) if kind in KINDS else len(KINDS)
    listed = {"id": row["message_id"], "kind": number, "persistent": True, "properties": said}
    at_ms = said.get("$DeadTime", 0)
    letter = fields_of(listed, node, at_ms if isinstance(at_ms, int) else 0, fits)
    for at, rule in enumerate(table.rules):
        if rule.matches(letter):
            return at
    return NO_RULE
