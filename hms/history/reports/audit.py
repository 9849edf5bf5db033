"""Audit: every message that came to a place left it once, or is there.

For each place: arrivals = acknowledged + expired + dead-lettered + purged + moved-out + discarded +
waiting; of the arrivals, moved-in are those that another node of the cluster gave. A message that
left more often than it came, that came more often than it left and is there twice, or that left
before it came, is listed. With a node to compare with, what should be waiting is held against what
the node has: it may have more (what is not persistent is not in the history), but never less.
"""

from typing import TYPE_CHECKING, Any

from hms.history.reports.flow import movements
from hms.history.reports.table import ENDS, Asked, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["audit"]

LISTED_MAX = 20
"""So many messages that do not add up are named, of each kind."""
_TRIES = 3
_NODE_DIGITS = 2
"""Of an id: which node gave it. Of another node's ids nobody here knows when they were given."""

_FAULTS = {
    "left more often than it came": "arrivals > 0 AND ends > arrivals",
    "is there more than once": "arrivals > ends + 1",
    "left, but never came": "arrivals = 0 AND NOT is_older",
    "left before it came": "arrivals > 0 AND ends = arrivals AND last_end < last_arrival",
}


def audit(asked: Asked) -> Report:
    """Whether every message is accounted for, by place and in all."""
    lives = _lives(asked).cache()
    try:
        rows = [tuple(row) for row in _sums(lives).collect()]
        faults = _faults(lives)
    finally:
        lives.unpersist()
    held, missing = _compared(asked, {row[0]: row[-2] for row in rows})
    faults += missing
    table: list[tuple[Any, ...]] = [(row[0], *row[1:-1], held.get(row[0]), row[-1]) for row in rows]
    if len(table) > 1:
        table.append(("all", *(_sum(column) for column in list(zip(*table, strict=True))[1:])))
    ends = ["moved-out" if name == "moved" else name.replace("_", "-") for name in ENDS]
    head = ("place", "came", "moved-in", *ends, "waiting", "node has", "older")
    notes = faults or ["Everything adds up."]
    if any(row[-1] for row in rows):
        notes.append("older: left, and came before the history begins.")
    return Report("Audit", head, table, notes=notes, is_good=not faults)


def _lives(asked: Asked) -> "DataFrame":
    """One row for each message at each place: how often it came and left, and by what."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    moves = movements(asked)
    came, event = F.col("change") > 0, F.col("event")
    lives = moves.groupBy("place", "message_id").agg(
        F.sum(came.cast("int")).alias("arrivals"),
        F.sum((came & F.col("is_moved")).cast("int")).alias("moved_in"),
        F.sum((~came).cast("int")).alias("ends"),
        *(F.sum((event == name).cast("int")).alias(name) for name in ENDS),
        F.max(F.when(came, F.col("offset"))).alias("last_arrival"),
        F.max(F.when(~came, F.col("offset"))).alias("last_end"),
    )
    oldest, own_id = F.col("oldest"), F.col("message_id")
    is_foreign = F.substring(own_id, 1, _NODE_DIGITS) != F.substring(oldest, 1, _NODE_DIGITS)
    is_older = oldest.isNull() | (own_id < oldest) | is_foreign
    return lives.crossJoin(_oldest(asked)).withColumn("is_older", is_older).drop("oldest")


def _oldest(asked: Asked) -> "DataFrame":
    """The first id that was given in the history: all before it are older. A transaction tells at
    its commit of ids that it was given long before."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    sent = asked.events("offset", "message_id", "transaction", is_whole=True, event="sent")
    return sent.where("transaction IS NULL").agg(F.min_by("message_id", "offset").alias("oldest"))


def _sums(lives: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as Spark's own documents do

    is_here = (F.col("arrivals") > F.col("ends")).cast("int")
    is_older = (F.col("is_older") & (F.col("arrivals") == 0)).cast("int")
    return (
        lives.groupBy("place")
        .agg(
            F.sum("arrivals"),
            F.sum("moved_in"),
            *(F.sum(name) for name in ENDS),
            F.sum(is_here).alias("waiting"),
            F.sum(is_older).alias("older"),
        )
        .orderBy("place")
    )


def _faults(lives: "DataFrame") -> list[str]:
    found = []
    for what, condition in _FAULTS.items():
        wrong = lives.where(condition)
        count = wrong.count()
        if count:
            some = wrong.orderBy("place", "message_id").limit(LISTED_MAX).collect()
            named = ", ".join(f"{row.message_id} at {row.place}" for row in some)
            more = f" and {count - len(some):,} more" if count > len(some) else ""
            found.append(f"{count:,} {what}: {named}{more}.")
    return found


def _compared(asked: Asked, waiting: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    """What a node holds, by place, and where it holds less than the history says is there.

    The node goes on meanwhile: a place that lacks something is looked at again, history and node.
    """
    if asked.address is None:
        return {}, []
    held = _held(asked.address)
    for _ in range(_TRIES):
        short = {name for name, count in waiting.items() if held.get(name, 0) < count}
        if not short:
            break
        waiting = {row[0]: row[-2] for row in _sums(_lives(asked)).collect()}
        held = _held(asked.address)
    wrong = [
        f"{name}: the history says that {count:,} wait, the node has {held.get(name, 0):,}."
        for name, count in sorted(waiting.items())
        if held.get(name, 0) < count
    ]
    return held, wrong


def _held(address: str) -> dict[str, int]:
    from hms.client.connection import Connection  # noqa: PLC0415 - loads the client
    from hms.client.profiles.profiled import tool_connection  # noqa: PLC0415 - the same

    made = tool_connection(Connection, address, client_name="hms history report")
    with made.open() as connection:
        queues = connection.administer("queue.list")
        subscriptions = connection.administer("subscription.list")
    found = {f"queue:{one['name']}": _count(one) for one in queues}
    for one in subscriptions:
        name = f"subscription:{one['name']}"
        found[name] = found.get(name, 0) + _count(one)
    return found


def _count(described: dict[str, Any]) -> int:
    return sum(int(described[name]) for name in ("waiting", "delayed", "in_flight"))


def _sum(values: tuple[Any, ...]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
