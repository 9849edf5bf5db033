"""Dead letters and expiry: messages that were not handled."""

from hms.history.reports.flow import spot
from hms.history.reports.table import Asked, Report, time_of

__all__ = ["dead_letters", "expiry"]


def dead_letters(asked: Asked) -> Report:
    """What was put among dead letters, by origin and reason."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    columns = ("time", "destination", "destination_kind", "properties")
    frame = asked.events(*columns, event="forwarded")
    reason = F.col("properties")["$DeadReason"]
    rows = (
        frame.where(reason.isNotNull())
        .groupBy(
            F.col("properties")["$DeadOrigin"].alias("origin"),
            reason.alias("reason"),
            F.concat_ws(":", "destination_kind", "destination").alias("into"),
        )
        .agg(
            F.count("*").alias("n"),
            F.unix_millis(F.min("time")).alias("first"),
            F.unix_millis(F.max("time")).alias("last"),
        )
        .orderBy(F.desc("n"), "origin", "reason")
        .collect()
    )
    table = [(r.origin, r.reason, r.into, r.n, time_of(r.first), time_of(r.last)) for r in rows]
    head = ("origin", "reason", "into", "messages", "first", "last")
    note = "A destination here is the queue that keeps the letters." if asked.destination else ""
    return Report("Dead letters", head, table, notes=[note] if note else [])


def expiry(asked: Asked) -> Report:
    """What expired, by place, and how late that was seen."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    columns = ("event", "time", "message_id", "destination", "destination_kind", "subscription")
    frame = asked.events(*columns, "expiration", events="sent,expired").withColumn("place", spot())
    sent = frame.where("event = 'sent'")
    limits = sent.groupBy("message_id").agg(F.min("expiration").alias("limit"))
    gone = frame.where("event = 'expired'").select("place", "message_id", "time")
    late = F.unix_millis("time") - F.unix_millis("limit")
    counted = gone.join(limits, "message_id", "left").groupBy("place")
    rows = counted.agg(
        F.count("*").alias("n"), F.avg(late).alias("mean"), F.max(late).alias("most")
    ).collect()
    whole = {row.place: row["count"] for row in sent.groupBy("place").count().collect()}
    table = [
        (r.place, whole.get(r.place), r.n, _share(r.n, whole.get(r.place)), r.mean, r.most)
        for r in sorted(rows, key=lambda row: row.place)
    ]
    head = ("place", "sent", "expired", "percent", "seen late ms", "at most ms")
    return Report("Expiry", head, table)


def _share(count: int, whole: int | None) -> float | None:
    return 100 * count / whole if whole else None
