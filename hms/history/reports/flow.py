"""Throughput and backlog: how much came and went, and how much waited."""

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hms.history.reports.table import (
    ARRIVALS,
    ENDS,
    Asked,
    Curve,
    Point,
    Report,
    bucket_ms,
    place,
    steps,
    time_of,
    wanted_places,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["backlog", "throughput"]

_COUNTED = ("sent", "delivered", "acknowledged", "expired", "dead_lettered")
LINES_MAX = 8
"""A curve shows so many places, the busiest."""


def throughput(asked: Asked) -> Report:
    """How many messages came and went, by place, and how many a second at most."""
    columns = ("event", "time", "destination", "destination_kind", "subscription")
    step_ms, rows = _by_step(asked.events(*columns, events=",".join(_COUNTED)), "event")
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    peaks: dict[str, float] = defaultdict(float)
    lines: dict[str, list[Point]] = defaultdict(list)
    for where, event, at_ms, count in rows:
        totals[where][event] += count
        if event == "sent":
            a_second = count * 1000 / step_ms
            peaks[where] = max(peaks[where], a_second)
            lines[where].append((at_ms, a_second))
    times = [at_ms for _, _, at_ms, _ in rows]
    span_s = (max(times) - min(times) + step_ms) / 1000 if times else 1.0
    table = [
        (where, *(counts[name] for name in _COUNTED), counts["sent"] / span_s, peaks[where])
        for where, counts in sorted(totals.items())
    ]
    head = ("place", *(n.replace("_", "-") for n in _COUNTED), "sent per s", "peak per s")
    curve = Curve("Sent", "messages a second", _busiest(lines, dict(peaks)))
    step = f"A peak is the mean of {step_ms // 1000} s."
    return Report("Throughput", head, table, [curve], [step] if rows else [])


def backlog(asked: Asked) -> Report:
    """How much waited, over time; how much waits at the end, and since when."""
    moves = movements(asked)
    lines, oldest = _levels(moves), _oldest(moves)
    table = []
    for where, points in sorted(lines.items()):
        at_ms, most = max(points, key=lambda point: point[1])
        now, since = int(points[-1][1]), time_of(oldest.get(where))
        table.append((where, now, since, int(most), time_of(at_ms)))
    from_ms = asked.from_ms or 0
    shown = {where: [p for p in points if p[0] >= from_ms] for where, points in lines.items()}
    peaks = {where: max((v for _, v in points), default=0.0) for where, points in shown.items()}
    head = ("place", "waiting", "oldest since", "most", "at")
    return Report("Backlog", head, table, [Curve("Waiting", "messages", _busiest(shown, peaks))])


def _levels(moves: "DataFrame") -> dict[str, list[Point]]:
    """How much waited at each place at the end of each step."""
    step_ms, rows = _by_step(moves, "change")
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for where, change, at_ms, count in rows:
        changes[where][at_ms] += change * count
    times = [at_ms for _, _, at_ms, _ in rows]
    every = steps(min(times), max(times), step_ms) if times else ()
    return {where: _level(found, every) for where, found in changes.items()}


def _oldest(moves: "DataFrame") -> dict[str, int]:
    """When the message came that waits longest, by place."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    left = moves.groupBy("place", "message_id").agg(
        F.sum("change").alias("n"), F.min("time").alias("t")
    )
    waiting = left.where("n > 0").groupBy("place").agg(F.unix_millis(F.min("t")).alias("t"))
    return {row.place: int(row.t) for row in waiting.collect()}


def movements(asked: Asked) -> "DataFrame":
    """place, message_id, time, offset and change: 1 where a message comes to wait, -1 where it
    leaves; what a topic's subscriptions and queues took comes to wait there. is_moved: it came from
    another node, or went to one."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    columns = ("event", "time", "offset", "message_id", "destination", "destination_kind")
    wanted = ",".join((*ARRIVALS, *ENDS))
    more = ("cause", "subscription", "subscriptions")
    frame = asked.events(*columns, *more, is_whole=True, events=wanted)
    frame = frame.where(F.col("destination_kind").isin("queue", "topic"))
    both = _at_places(frame)
    change = F.when(F.col("event").isin(*ARRIVALS), 1).otherwise(-1)
    is_moved = F.coalesce(F.col("cause") == "moved", F.lit(False)).alias("is_moved")  # noqa: FBT003
    told = ("place", "message_id", "time", "offset", "event")
    moves = both.select(*told, change.alias("change"), is_moved)
    places = wanted_places(asked.destination)
    return moves.where(F.col("place").rlike(places)) if places else moves


def _at_places(frame: "DataFrame") -> "DataFrame":
    """Rows with their place; what was sent to a topic once for each that took it."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    is_arrival = frame.event.isin(*ARRIVALS)
    own = frame.where(~is_arrival | (frame.destination_kind == "queue")).withColumn("place", spot())
    taken = frame.where(is_arrival & (frame.destination_kind == "topic"))
    taken = taken.withColumn("subscriber", F.explode("subscriptions")).withColumn(
        "place",
        F.when(F.col("subscriber").startswith("queue:"), F.col("subscriber")).otherwise(
            F.concat(F.lit("subscription:"), F.col("subscriber"))
        ),
    )
    return own.unionByName(taken.drop("subscriber"))


def spot() -> Any:
    """queue:NAME or subscription:NAME: where a message waits, whatever topic it came by."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    return F.when(
        F.col("subscription").isNotNull(), F.concat(F.lit("subscription:"), F.col("subscription"))
    ).otherwise(F.concat_ws(":", "destination_kind", "destination"))


def _by_step(frame: "DataFrame", *keys: str) -> tuple[int, list[tuple[str, Any, int, int]]]:
    """The width of a step, and (place, key, its beginning, count) in order of time."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    if "place" not in frame.columns:
        frame = frame.withColumn("place", place())
    frame = frame.withColumn("ms", F.unix_millis("time"))
    first = frame.agg(F.min("ms"), F.max("ms")).first()
    if first is None or first[0] is None:
        return 1000, []
    step_ms = bucket_ms(first[1] - first[0])
    at = (F.col("ms") - F.col("ms") % step_ms).alias("at")
    found = frame.groupBy("place", *keys, at).count().orderBy("at").collect()
    return step_ms, [(row[0], row[1], int(row[2]), int(row[3])) for row in found]


def _level(changes: dict[int, int], times: Any) -> list[Point]:
    levels = accumulate(changes.get(at, 0) for at in times)
    return [(at, float(level)) for at, level in zip(times, levels, strict=True)]


def _busiest(lines: dict[str, list[Point]], peaks: dict[str, float]) -> dict[str, list[Point]]:
    names = sorted(lines, key=lambda name: -peaks.get(name, 0))[:LINES_MAX]
    return {name: lines[name] for name in names}
