"""The history of the demonstration: Spark reads it from the running node, and replays a day."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

import hms
from hms.boot.demo.flights import as_message
from hms.client.connection import Connection
from hms.history import register, replay, session
from hms.testing import TestNode

REPLAYED_DAY = 10
REPLAYED_QUEUE, REPLAY_QUEUE = "FLIGHTS.LGA", "FLIGHTS.REPLAYED"
SELECTOR = f"day = {REPLAYED_DAY} AND carrier = 'DL'"
SENT = "event = 'sent' AND destination LIKE 'FLIGHTS.%'"
WORST = """
    SELECT string_properties['carrier'] AS carrier, count(*) AS flights,
           round(avg(long_properties['dep_delay']), 1) AS mean_delay
    FROM history
    WHERE event = 'sent' AND destination LIKE 'FLIGHTS.%'
    GROUP BY 1 ORDER BY mean_delay DESC LIMIT 10
"""


def read_and_replay(
    running: TestNode,
    connection: Connection,
    flights: list[dict[str, str]],
    window: tuple[float, float],
) -> list[str]:
    """Report the ten worst carriers, send one day again; what does not agree with the input."""
    click.echo("Spark reads the history of the running node ...")
    spark = session("hms-demo")
    try:
        register(spark)
        history = spark.read.format("hms").option("path", str(running.store)).load()
        history.createOrReplaceTempView("history")
        sent = history.where(SENT).count()
        worst = spark.sql(WORST).collect()
        click.echo("The ten carriers with the longest mean departure delay, in minutes:")
        for row in worst:
            click.echo(f"  {row.carrier}  {row.mean_delay:>6}   of {row.flights:,} flights")
        began, ended = (datetime.fromtimestamp(at, UTC) for at in window)
        report = replay(
            spark,
            running.store,
            address=running.address,
            destination=REPLAYED_QUEUE,
            into=REPLAY_QUEUE,
            from_=began,
            to=ended,
            selector=SELECTOR,
        )
    finally:
        spark.stop()
    return _compare(connection, flights, sent, report.sent)


def count_at_each(stores: Mapping[str, Path]) -> dict[str, int]:
    """How many sent flights the history of each copy of one log has, as Spark counts them; the
    processes work on."""
    spark = session("hms-demo")
    try:
        register(spark)
        return {
            name: spark.read.format("hms").option("path", str(store)).load().where(SENT).count()
            for name, store in stores.items()
        }
    finally:
        spark.stop()


def _compare(
    connection: Connection, flights: list[dict[str, str]], sent: int, replayed: int
) -> list[str]:
    faults = []
    if sent != len(flights):
        faults.append(f"the history has {sent} sent flights, {len(flights)} were sent")
    origin = REPLAYED_QUEUE.removeprefix("FLIGHTS.")
    original = [
        as_message(row)
        for row in flights
        if (row["day"], row["origin"], row["carrier"]) == (str(REPLAYED_DAY), origin, "DL")
    ]
    with connection.session() as looking:
        browser = looking.browser(hms.Queue(REPLAY_QUEUE), oldest_first=True)
        copies = list(browser)
    click.echo(
        f"Replayed {replayed} flights of January {REPLAYED_DAY} from {REPLAYED_QUEUE} "
        f"({SELECTOR}) into {REPLAY_QUEUE}."
    )
    if [(m.body, dict(m.properties)) for m in copies] != [
        (m.body, dict(m.properties)) for m in original
    ]:
        faults.append(f"{len(copies)} replayed flights differ from the {len(original)} originals")
    return faults
