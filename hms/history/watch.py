"""Watch: a stream over the history that counts by the minute, and raises alerts.

Spark keeps the counts of the minutes that are not over yet, and its checkpoint knows up to which
offset they go; what comes later than the watermark allows is left out, and counted as late. Behind
each batch the counts are taken over by the file of the minutes, then the alerts that are new go
out, in one transaction with the ledger of the watch: each once, whatever dies in between.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hms.errors.catalogue import HistoryError
from hms.history.faults import as_own
from hms.history.interruption import Interruption
from hms.history.minutes import Alert, Minute, Minutes, open_minutes
from hms.history.replay import check, source_name
from hms.history.reports.table import time_of
from hms.history.rules import Rule, parse_rule
from hms.history.scan import PathName
from hms.history.scope import parse_destination
from hms.history.spark import borrowed_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Watched", "watch"]

LATE_S = 120
LOOK_S = 0.5
_SCHEMA = "event string, time timestamp, destination string, destination_kind string"

Tell = Callable[[Sequence[Minute], Sequence[Alert]], object]


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch did until it ended. late: events that came too late to be counted."""

    batches: int
    alerts: int
    late: int


def watch(
    spark: "SparkSession | None",
    path: PathName,
    *,
    checkpoint: str | Path,
    rules: Iterable[str] = (),
    address: str | None = None,
    alert: str = "",
    interval_s: float = 10,
    late_s: int = LATE_S,
    is_once: bool = False,
    batch_offsets: int = 200_000,
    master: str | None = None,
    tell: Tell = lambda _, __: None,
) -> Watched:
    """Count the events of a store by place and minute, until it is interrupted or the query ends.

    checkpoint: a directory that a later watch goes on from. rules: see parse_rule; alert: where
    alerts go, topic:NAME or queue:NAME, on the node at address. is_once: up to the end that the
    history has now. tell: called behind each batch with the minutes it changed, and new alerts.
    """
    judged = [parse_rule(text) for text in rules]
    if judged and not (alert and address):
        raise HistoryError(detail="a rule needs a node and a destination for its alerts")
    source, folder = source_name(path), Path(checkpoint)
    check(source, {})
    with (
        Interruption() as interruption,
        open_minutes(folder, source) as kept,
        borrowed_session(spark, "hms-watch", master) as own,
    ):
        run = _Run(kept, judged, address, alert, tell)
        reader = own.readStream.format("hms").schema(_SCHEMA)
        events = reader.option("maxOffsetsPerTrigger", str(batch_offsets)).load(source)
        with as_own():
            writer = _by_minute(events, late_s).writeStream.outputMode("update")
            writer = writer.option("checkpointLocation", str(folder / "spark"))
            how = {"availableNow": True} if is_once else {"processingTime": f"{interval_s} seconds"}
            query = writer.foreachBatch(run.batch).trigger(**how).start()
            interruption.take()
            while not (interruption.is_set() or query.awaitTermination(LOOK_S)):
                pass
            with _silent_bridge():
                query.stop()
            return Watched(run.batches, run.alerts, _late(query))


@contextmanager
def _silent_bridge() -> Iterator[None]:
    """A stop may cancel a batch underway. The next watch takes that batch again, so it is no fault,
    but the bridge between Java and Python logs the traceback of each call that was cancelled."""
    bridge = logging.getLogger("py4j")
    before = bridge.level
    bridge.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        bridge.setLevel(before)


def _by_minute(events: "DataFrame", late_s: int) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    place = F.concat_ws(":", "destination_kind", "destination").alias("place")
    return (
        events.withWatermark("time", f"{late_s} seconds")
        .groupBy(F.window("time", "1 minute").alias("minute"), place, "event")
        .count()
    )


def _late(query: Any) -> int:
    return sum(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )


class _Run:
    """What is done behind each batch, in this process."""

    def __init__(
        self, kept: Minutes, rules: Sequence[Rule], address: str | None, alert: str, tell: Tell
    ) -> None:
        self._kept, self._rules, self._tell = kept, rules, tell
        self._address, self._alert = address, alert
        self.batches = self.alerts = 0

    def batch(self, counted: "DataFrame", _: int) -> None:
        """Called by Spark; a batch may come again after a crash, with the same rows."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        begin = F.unix_millis("minute.start").alias("ms")
        rows = counted.select(begin, "place", "event", "count").collect()
        found = [Minute(*row) for row in rows]
        self._kept.apply(found, self._rules)
        raised = self._raise() if self._rules else []
        self.batches, self.alerts = self.batches + 1, self.alerts + len(raised)
        self._tell(found, raised)

    def _raise(self) -> list[Alert]:
        """Send what the node does not have yet; the ledger says which that is."""
        import hms  # noqa: PLC0415 - loads the client
        from hms.history.ledger import Entry, open_ledger  # noqa: PLC0415

        if not self._kept.alerts_behind(0):
            return []
        assert self._address is not None, "checked"
        run = f"watch-{self._kept.name}"
        with open_ledger(self._address, run) as ledger:
            entry = ledger.read() or Entry(run, "watch")
            found = self._kept.alerts_behind(entry.next_offset)
            if found:
                kind, name = parse_destination(self._alert)
                place = hms.Topic(name) if kind == "topic" else hms.Queue(name)
                ledger.session.producer(place).send_many([_message(one) for one in found])
                sent = entry.sent + len(found)
                ledger.note(replace(entry, next_offset=found[-1].number, sent=sent))
                ledger.commit()
        return found


def _message(alert: Alert) -> Any:
    import hms  # noqa: PLC0415 - loads the client

    told = {
        "rule": alert.rule,
        "place": alert.place,
        "minute": time_of(alert.minute_ms),
        "count": alert.count,
    }
    return hms.Message.text(json.dumps(told), told, type="hms.alert")
