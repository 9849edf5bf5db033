"""Latency: from sending to the first delivery, and to the acknowledgement."""

from typing import TYPE_CHECKING, Any

from hms.history.reports.flow import spot
from hms.history.reports.table import Asked, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["latency"]

_ACCURACY = 1000
_SHARES = (0.5, 0.95, 0.99)


def latency(asked: Asked) -> Report:
    """Milliseconds by place: half, 95 and 99 of a hundred messages were not slower."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    names = ("delivery", "end")
    shares = [F.percentile_approx(name, list(_SHARES), _ACCURACY).alias(name) for name in names]
    most = [F.max(name).alias(f"{name}_max") for name in names]
    counted = _waits(asked).groupBy("place").agg(F.count("delivery").alias("n"), *shares, *most)
    rows = [_row(row) for row in counted.orderBy("place").collect()]
    shown = ("p50", "p95", "p99", "max")
    head = ("place", "messages", *(f"delivered {s}" for s in shown), *(f"done {s}" for s in shown))
    note = "Milliseconds from sending to the first delivery, and to the acknowledgement."
    return Report("Latency", head, rows, notes=[note])


def _waits(asked: Asked) -> "DataFrame":
    """place, delivery and end of each message: milliseconds since it was sent."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    columns = ("event", "time", "message_id", "destination", "destination_kind", "subscription")
    frame = asked.events(*columns, events="sent,delivered,acknowledged")
    frame = frame.withColumn("ms", F.unix_millis("time"))
    sent = frame.where("event = 'sent'").groupBy("message_id").agg(F.min("ms").alias("sent"))
    later = frame.where("event <> 'sent'").withColumn("place", spot())
    first = later.groupBy("message_id", "place").agg(
        *(
            F.min(F.when(F.col("event") == name, F.col("ms"))).alias(name)
            for name in ("delivered", "acknowledged")
        )
    )
    return first.join(sent, "message_id").select(
        "place",
        (F.col("delivered") - F.col("sent")).alias("delivery"),
        (F.col("acknowledged") - F.col("sent")).alias("end"),
    )


def _row(row: Any) -> tuple[Any, ...]:
    nothing = (None,) * len(_SHARES)
    delivery = (*(row.delivery or nothing), row.delivery_max)
    return (row.place, row.n, *delivery, *(row.end or nothing), row.end_max)
