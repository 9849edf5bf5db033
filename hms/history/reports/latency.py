"""Latency: from sending to the first delivery, and to the acknowledgement."""

from hms.history.reports.flow import spot
from hms.history.reports.table import Asked, Report

__all__ = ["latency"]

_ACCURACY = 1000
_SHARES = (0.5, 0.95, 0.99)


def latency(asked: Asked) -> Report:
    """Milliseconds by place: half, 95 and 99 of a hundred messages were not slower."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    columns = ("event", "time", "message_id", "destination", "destination_kind")
    frame = asked.events(*columns, "subscription", events="sent,delivered,acknowledged").withColumn(
        "ms", F.unix_millis("time")
    )
    sent = frame.where("event = 'sent'").groupBy("message_id").agg(F.min("ms").alias("sent"))
    later = frame.where(frame.event.isin("delivered", "acknowledged")).withColumn("place", spot())
    first = later.groupBy("message_id", "place").agg(
        F.min(F.when(F.col("event") == "delivered", F.col("ms"))).alias("delivered"),
        F.min(F.when(F.col("event") == "acknowledged", F.col("ms"))).alias("acknowledged"),
    )
    both = first.join(sent, "message_id").select(
        "place",
        (F.col("delivered") - F.col("sent")).alias("delivery"),
        (F.col("acknowledged") - F.col("sent")).alias("end"),
    )
    shares = [
        F.percentile_approx(name, list(_SHARES), _ACCURACY).alias(name)
        for name in ("delivery", "end")
    ]
    most = [F.max(name).alias(f"{name}_max") for name in ("delivery", "end")]
    counted = both.groupBy("place").agg(F.count("delivery").alias("n"), *shares, *most)
    rows = [
        (
            row.place,
            row.n,
            *(row.delivery or (None,) * 3),
            row.delivery_max,
            *(row.end or (None,) * 3),
            row.end_max,
        )
        for row in counted.orderBy("place").collect()
    ]
    shown = ("p50", "p95", "p99", "max")
    head = ("place", "messages", *(f"delivered {s}" for s in shown), *(f"done {s}" for s in shown))
    note = "Milliseconds from sending to the first delivery, and to the acknowledgement."
    return Report("Latency", head, rows, notes=[note])
